#include "store/store.h"

#include <future>
#include <thread>

#include "unit_support.h"

namespace lazyck::rt {

using unit::has;
using unit::made_file;
using unit::message_of;
using unit::Scratch;
using unit::Variables;

namespace {

// A store with an empty cache, for the manifest that unit_binary.py made.
class OneStore {
 public:
    OneStore() : bytes(made_file("manifest")), manifest(bytes.data(), bytes.size(), "here") {
        config.cache_dir = scratch / "cache";
        config.jobs = 1;
        store = std::make_unique<Store>(config, LibraryPaths{scratch / "libdemo.so", {}});
    }
    // Puts the entry of a blob where another process would publish it.
    void publish_entry(std::uint32_t blob, const char* library) {
        const EntryKey key = store->key_of({manifest, blob}, archs);
        Cache other(config.cache_dir);
        other.make_directories_for(key);
        unit::write_file(other.entry_path(key), made_file(library));
        REQUIRE(chmod(other.entry_path(key).c_str(), 0644) == 0);
        const UniqueFd fd = open_file(other.entry_path(key), O_RDWR | O_APPEND);
        seal_entry(fd.get(), key.id());
    }

    Scratch scratch;
    const std::string bytes;
    const ManifestView manifest;
    const Strings archs = {"x86_64"};
    Config config;
    std::unique_ptr<Store> store;
};

BlobRow row_of(const char* kernel) { return {"blob", "source", "digest", 0, 0, 0, kernel, 0, false}; }

}  // namespace

TEST_CASE("what another process publishes between a miss and the lock is taken, not compiled") {
    OneStore one;
    REQUIRE(!one.store->find({one.manifest, 0}, one.archs));
    one.publish_entry(0, "library.so");
    // The sources are not there, so that a compile would fail.
    const Entry entry = one.store->fill({one.manifest, 0}, one.archs);
    CHECK(entry.origin == "cache");
    CHECK(entry.functions.size() == 2);
    CHECK(one.store->counters.compiles == 0);
    CHECK(one.store->counters.misses == 1);
    CHECK(one.store->counters.failures == 0);
}

TEST_CASE("without such an entry a miss goes on to the compile") {
    OneStore one;
    CHECK(has(message_of([&] { one.store->fill({one.manifest, 0}, one.archs); }), "plain"));
}

TEST_CASE("what is cached is found and counted") {
    OneStore one;
    std::string path;
    CHECK(!one.store->is_cached({one.manifest, 0}, one.archs, path));
    one.publish_entry(0, "library.so");
    CHECK(one.store->is_cached({one.manifest, 0}, one.archs, path));
    CHECK(is_file(path));
    const auto found = one.store->find({one.manifest, 0}, one.archs);
    REQUIRE(found);
    CHECK(found->origin == "cache");
    CHECK(one.store->counters.hits == 1);
    CHECK(one.store->obtain({one.manifest, 0}, one.archs).path == path);
    CHECK(one.store->counters.misses == 0);
}

TEST_CASE("a damaged entry is a miss, and is moved aside before the compile") {
    OneStore one;
    one.publish_entry(0, "library.so");
    std::string path;
    REQUIRE(one.store->is_cached({one.manifest, 0}, one.archs, path));
    unit::write_file(path, "damaged");
    CHECK(!one.store->find({one.manifest, 0}, one.archs));
    message_of([&] { one.store->fill({one.manifest, 0}, one.archs); });
    CHECK(!is_file(path));
    CHECK(one.store->counters.damaged == 1);
}

TEST_CASE("a key takes its parts from manifest, settings and device") {
    OneStore one;
    one.config.salt = "salt";
    const Store store(one.config, {});
    const EntryKey key = store.key_of({one.manifest, 0}, {"90"});
    CHECK(key.library == "demo");
    CHECK(key.blob == "plain");
    CHECK(key.digest == std::string(64, 'a'));
    CHECK(key.archs == Strings{"90"});
    CHECK(key.toolchain_id == "g++-12");
    CHECK(key.salt == "salt");
    CHECK(key.machine == one.manifest.machine());
    CHECK(!key.is_text);
}

TEST_CASE("a compile that is forbidden says what forbids it and what builds the entry") {
    OneStore one;
    one.store->jit.forbid(true);
    const std::string said = message_of([&] { one.store->fill({one.manifest, 0}, one.archs); });
    CHECK(has(said, "lazyck_forbid_jit"));
    CHECK(has(said, "is missing"));
    CHECK(has(said, "lazyck prebuild build"));
    CHECK(has(said, " plain"));
}

TEST_CASE("a kernel's row names its host unit and its line") {
    CHECK(kernel_of(row_of("")) == "");
    CHECK(host_unit_of(row_of("")) == "");
    CHECK(kernel_of(row_of("unit\tsymbol\tx")) == "symbol\tx");
    CHECK(host_unit_of(row_of("unit\tsymbol\tx")) == "unit");
}

TEST_CASE("device code has an entry for each arch, host code one for all") {
    const Strings two = {"80", "90"};
    CHECK(archs_of_entries(row_of(""), two) == std::vector<Strings>{two});
    CHECK(archs_of_entries(row_of("unit\tunit"), two) == std::vector<Strings>{two});
    CHECK(archs_of_entries(row_of("unit\tsymbol"), two) == std::vector<Strings>{{"80"}, {"90"}});
    CHECK(archs_of_entries(row_of("unit\tsymbol"), {"80"}) == std::vector<Strings>{{"80"}});
    CHECK(archs_of_entries(row_of("unit\tsymbol"), {}) == std::vector<Strings>{{}});
}

TEST_CASE("memory is reserved by what a compile took, plus a fifth") {
    Config config;
    Guess guess;
    CHECK(memory_for(config, guess) == 4L * 1024 * 1024);
    guess.largest.peak_kib = 500;
    CHECK(memory_for(config, guess) == 600);
    guess.blob.peak_kib = 100;
    CHECK(memory_for(config, guess) == 120);
    config.mem_per_job_kib = 0;
    CHECK(memory_for(config, guess) == 0);
    config.mem_per_job_kib = 7;
    CHECK(memory_for(config, guess) == 7);
}

TEST_CASE("another process is waited for four times as long as the slowest compile, but twenty minutes at least") {
    Config config;
    Guess guess;
    CHECK(patience(config, guess) == 1200);
    guess.blob.seconds = 299;
    CHECK(patience(config, guess) == 1200);
    guess.blob.seconds = 301;
    CHECK(patience(config, guess) == 1204);
    guess.largest.seconds = 400;
    CHECK(patience(config, guess) == 1600);
    config.lock_timeout = 0;
    CHECK(patience(config, guess) == 0);
    config.lock_timeout = 5;
    CHECK(patience(config, guess) == 5);
}

TEST_CASE("a source that leads out of the bundle is refused") {
    BlobRow row = row_of("");
    row.source = "a/b..c/..d/x.cpp";
    check_stays_inside(row);
    for (const char* bad : {"..", "../x", "a/../x", "/a/.."}) {
        row.source = bad;
        CHECK(has(message_of([&] { check_stays_inside(row); }), "leads out of the bundle"));
    }
}

TEST_CASE("a process has as many permits to compile as jobs") {
    ProcessPermits permits(2);
    auto held = std::make_unique<HeldPermit>(permits, "a");
    CHECK(held->takes_one_more());
    CHECK(!held->takes_one_more());
    auto waiting = std::async(std::launch::async, [&] { const HeldPermit other(permits, "b"); });
    CHECK(waiting.wait_for(std::chrono::milliseconds(50)) == std::future_status::timeout);
    held.reset();
    waiting.get();
    CHECK(std::make_unique<HeldPermit>(permits, "c")->takes_one_more());
}

TEST_CASE("a blob that is behind another gets a permit only after it") {
    ProcessPermits permits(2);
    permits.announce("b", "a");
    CHECK(permits.announced() == 1);
    auto later = std::async(std::launch::async, [&] { const HeldPermit second(permits, "b"); });
    CHECK(later.wait_for(std::chrono::milliseconds(50)) == std::future_status::timeout);
    const HeldPermit first(permits, "a");
    later.get();
    permits.withdraw();
    CHECK(permits.announced() == 0);
    permits.announce("d", "c");
    auto other = std::async(std::launch::async, [&] { const HeldPermit second(permits, "d"); });
    CHECK(other.wait_for(std::chrono::milliseconds(50)) == std::future_status::timeout);
    permits.needs_none("x");
    CHECK(other.wait_for(std::chrono::milliseconds(50)) == std::future_status::timeout);
    permits.needs_none("c");
    other.get();
}

TEST_CASE("work that no call waits for comes after those that wait") {
    ProcessPermits permits(1);
    auto held = std::make_unique<HeldPermit>(permits, "a");
    std::atomic<bool> has_waited{false};
    std::promise<void> begins;
    auto call = std::async(std::launch::async, [&] {
        begins.set_value();
        const HeldPermit waited(permits, "b");
        has_waited = true;
    });
    begins.get_future().get();  // a busy machine may start a thread late
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    auto later = std::async(std::launch::async, [&] {
        const HeldPermit unhurried(permits);
        return has_waited.load();
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    held.reset();
    call.get();
    CHECK(later.get());
}

TEST_CASE("the name of a cache is the user's, else the library's") {
    OneStore one;
    const Variables variables;
    one.config.cache_dir = "";
    one.config.caches = one.scratch.path();
    std::string path;
    Store(one.config, {}).is_cached({one.manifest, 0}, one.archs, path);
    CHECK(path.rfind(one.scratch / "shelf/", 0) == 0);
    one.config.name = "mine";
    Store(one.config, {}).is_cached({one.manifest, 0}, one.archs, path);
    CHECK(path.rfind(one.scratch / "mine/", 0) == 0);
}

}  // namespace lazyck::rt
