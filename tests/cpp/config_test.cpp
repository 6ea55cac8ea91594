#include "platform/config.h"

#include "unit_support.h"

namespace lazyck::rt {

using unit::has;
using unit::message_of;
using unit::Variables;

namespace {

// Reads the settings with one variable set. Returns the message if that is refused.
std::string refusal_of(const char* variable, const char* value) {
    Variables variables;
    variables.set(variable, value);
    return message_of([] { read_config(); });
}

Config config_with(const char* variable, const char* value) {
    Variables variables;
    variables.set(variable, value);
    return read_config();
}

}  // namespace

TEST_CASE("a process may use the cores that it is bound to") {
    cpu_set_t before;
    REQUIRE(sched_getaffinity(0, sizeof before, &before) == 0);
    CHECK(usable_cores() == static_cast<unsigned>(CPU_COUNT(&before)));
    cpu_set_t one;
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu) {
        if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
    }
    REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
    CHECK(usable_cores() == 1);
    sched_setaffinity(0, sizeof before, &before);
}

TEST_CASE("without variables the settings are the documented ones") {
    Variables variables;
    variables.set("HOME", "/home/me");
    const Config config = read_config();
    CHECK(config.cache_dir == "");
    CHECK(config.caches == "/home/me/.cache");
    CHECK(config.name == "");
    CHECK(config.jit == Jit::on);
    CHECK(config.by_kernel == ByKernelChoice::by_cost);
    CHECK(config.has_preambles);
    CHECK(config.has_text_keys);
    CHECK(!config.has_all_text_keys);
    CHECK(config.archs.empty());
    CHECK(config.jobs == usable_cores());
    CHECK(!config.has_remote);
    CHECK(config.compile_service == "");
    CHECK(config.remote_helper == LAZYCK_REMOTE_HELPER);
    CHECK(config.launcher.empty());
    CHECK(config.salt == "");
    CHECK(config.lock_timeout == -1);
    CHECK(config.compile_timeout == 3600);
    CHECK(config.cache_path.empty());
    CHECK(config.mem_per_job_kib == -1);
    CHECK(config.cache_max_kib == LAZYCK_DEFAULT_CACHE_MAX_KIB);
    CHECK(config.profile + config.prefetch + config.trace + config.root == "");
}

TEST_CASE("each variable sets what it names") {
    CHECK(config_with("LAZYCK_CACHE_DIR", "/a//b/./c/").cache_dir == "/a/b/c");
    CHECK(config_with("LAZYCK_ROOT", "/bundle").root == "/bundle");
    CHECK(config_with("LAZYCK_ROOT", "bundle").root == absolute("bundle"));
    CHECK(config_with("LAZYCK_NAME", "mine").name == "mine");
    CHECK(config_with("LAZYCK_JIT", "on").jit == Jit::on);
    CHECK(config_with("LAZYCK_JIT", "warn").jit == Jit::warn);
    CHECK(config_with("LAZYCK_JIT", "error").jit == Jit::error);
    CHECK(config_with("LAZYCK_JIT", "off").jit == Jit::off);
    CHECK(config_with("LAZYCK_BY_KERNEL", "1").by_kernel == ByKernelChoice::always);
    CHECK(config_with("LAZYCK_BY_KERNEL", "0").by_kernel == ByKernelChoice::never);
    CHECK(!config_with("LAZYCK_PREAMBLES", "off").has_preambles);
    CHECK(config_with("LAZYCK_TEXT_KEYS", "1").has_all_text_keys);
    CHECK(config_with("LAZYCK_TEXT_KEYS", "1").has_text_keys);
    CHECK(!config_with("LAZYCK_TEXT_KEYS", "no").has_text_keys);
    CHECK(config_with("LAZYCK_ARCHS", "90;80").archs == Strings{"80", "90"});
    CHECK(config_with("LAZYCK_JOBS", "4096").jobs == 4096);
    CHECK(config_with("LAZYCK_JOBS", "1").jobs == 1);
    CHECK(config_with("LAZYCK_REMOTE", "/shared").has_remote);
    CHECK(config_with("LAZYCK_REMOTE_COMPILE", "tcp://x").compile_service == "tcp://x");
    CHECK(config_with("LAZYCK_REMOTE_HELPER", "/usr/bin/helper").remote_helper == "/usr/bin/helper");
    CHECK(config_with("LAZYCK_LAUNCHER", "ccache -x").launcher == Strings{"ccache", "-x"});
    CHECK(config_with("LAZYCK_EXTRA_CACHE_KEY", "salt").salt == "salt");
    CHECK(config_with("LAZYCK_LOCK_TIMEOUT", "0").lock_timeout == 0);
    CHECK(config_with("LAZYCK_COMPILE_TIMEOUT", "1000000000").compile_timeout == 1e9);
    CHECK(config_with("LAZYCK_MEM_PER_JOB", "2M").mem_per_job_kib == 2048);
    CHECK(config_with("LAZYCK_MEM_PER_JOB", "1B").mem_per_job_kib == 1);
    CHECK(config_with("LAZYCK_MEM_PER_JOB", "0").mem_per_job_kib == 0);
    CHECK(config_with("LAZYCK_CACHE_MAXSIZE", "1G").cache_max_kib == 1024 * 1024);
    CHECK(config_with("LAZYCK_CACHE_PATH", "/a:/b/").cache_path == Strings{"/a", "/b"});
    CHECK(config_with("LAZYCK_RECORD", "/r").profile == "/r");
    CHECK(config_with("LAZYCK_PREFETCH", "/p").prefetch == "/p");
    CHECK(config_with("LAZYCK_TRACE", "/t").trace == "/t");
    for (const char* yes : {"1", "true", "yes", "on"}) CHECK(config_with("LAZYCK_TEXT_KEYS", yes).has_all_text_keys);
    for (const char* no : {"", "0", "false", "no", "off"})
        CHECK(!config_with("LAZYCK_TEXT_KEYS", no).has_all_text_keys);
}

TEST_CASE("a value that makes no sense is refused, and the message names variable and value") {
    const char* const bad[][2] = {
        {"LAZYCK_CACHE_DIR", "here"},
        {"LAZYCK_CACHE_DIR", "/a/../b"},
        {"LAZYCK_CACHE_PATH", "/a:here"},
        {"LAZYCK_NAME", "../up"},
        {"LAZYCK_NAME", ".hidden"},
        {"LAZYCK_NAME", "a/b"},
        {"LAZYCK_JIT", "maybe"},
        {"LAZYCK_BY_KERNEL", "x"},
        {"LAZYCK_ARCHS", "-x"},
        {"LAZYCK_JOBS", "0"},
        {"LAZYCK_JOBS", "4097"},
        {"LAZYCK_JOBS", "-1"},
        {"LAZYCK_JOBS", "1:"},
        {"LAZYCK_JOBS", "42949672970"},
        {"LAZYCK_LOCK_TIMEOUT", "soon"},
        {"LAZYCK_COMPILE_TIMEOUT", "1000000001"},
        {"LAZYCK_MEM_PER_JOB", "much"},
        {"LAZYCK_CACHE_MAXSIZE", "20"},
        {"LAZYCK_ON_ERROR", "ignore"},
        {"LAZYCK_PREAMBLES", "2"},
        {"LAZYCK_TEXT_KEYS", "2"},
    };
    for (const auto& each : bad) {
        CAPTURE(each[0]);
        CAPTURE(each[1]);
        const std::string said = refusal_of(each[0], each[1]);
        CAPTURE(said);
        CHECK(has(said, each[0]));
    }
}

TEST_CASE("the user's caches are below XDG_CACHE_HOME, or else below the home directory") {
    Variables variables;
    variables.set("HOME", "/home/me");
    variables.set("XDG_CACHE_HOME", "/xdg");
    CHECK(read_caches(false) == "/xdg");
    variables.set("XDG_CACHE_HOME", "relative");
    CHECK(read_caches(false) == "/home/me/.cache");
    variables.set("HOME", "relative");
    CHECK(read_caches(true) == "");
    const std::string home = home_of_account();
    const passwd* const account = getpwuid(geteuid());
    CHECK(home == (account == nullptr ? "" : account->pw_dir));
    CHECK(read_caches(false) == (home.empty() ? "" : home + "/.cache"));
    variables.set("HOME", "");
    CHECK(read_caches(true) == "");
}

TEST_CASE("a cache's root is absolute and leads where it looks") {
    CHECK(cache_root("/a", "") == "/a");
    CHECK(cache_root("/a/b", "") == "/a/b");
    CHECK(cache_root("/a/b/", "") == "/a/b");
    CHECK(cache_root("/a//b", "") == "/a/b");
    CHECK(cache_root("/a/./b/.", "") == "/a/b");
    CHECK(cache_root("/a/.b", "") == "/a/.b");
    CHECK(cache_root("/a/..b", "") == "/a/..b");
    CHECK(has(message_of([] { cache_root("a", "who: "); }), "who: a: a cache below the working directory"));
    CHECK(has(message_of([] { cache_root("", ""); }), "a cache below the working directory"));
    CHECK(has(message_of([] { cache_root("/a/../b", ""); }), "'..' in the cache's path"));
    CHECK(has(message_of([] { cache_root("/a/..", ""); }), "'..' in the cache's path"));
    for (const char* root : {"/", "//", "/.", "/./"})
        CHECK(has(message_of([&] { cache_root(root, ""); }), "the root directory cannot be the cache"));
}

TEST_CASE("the default cache has a plain name below the user's caches") {
    CHECK(default_cache_dir("/home/me/.cache", "lib") == "/home/me/.cache/lib");
    for (const char* bad : {"", ".x", "a/b"})
        CHECK(has(message_of([&] { default_cache_dir("/c", bad); }), "is not a plain directory name"));
    CHECK(has(message_of([] { default_cache_dir("", "lib"); }), "no home directory"));
}

TEST_CASE("archs have one spelling and one order") {
    CHECK(parse_archs("", "V").empty());
    CHECK(parse_archs("gfx942:sramecc+:xnack-", "V") == Strings{"gfx942"});
    CHECK(parse_archs("sm_90, compute_80\t9.0;8.6\n7.5", "V") == Strings{"75", "80", "86", "90"});
    CHECK(parse_archs("gfx9-4-generic;aZ_09", "V") == Strings{"aZ_09", "gfx9-4-generic"});
    CHECK(parse_archs("zA", "V") == Strings{"zA"});
    for (const char* bad : {"-x", "sm_", "a/b", "a.b", ":x", "a@", "a[", "a`", "a{"})
        CHECK(has(message_of([&] { parse_archs(bad, "V"); }), "not a list of archs"));
}

TEST_CASE("only the value abort ends the process") {
    Variables variables;
    CHECK(!aborts_on_error());
    variables.set("LAZYCK_ON_ERROR", "throw");
    CHECK(!aborts_on_error());
    read_config();
    variables.set("LAZYCK_ON_ERROR", "abort");
    CHECK(aborts_on_error());
    read_config();
}

}  // namespace lazyck::rt
