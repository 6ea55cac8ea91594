#include "cache/cache.h"

#include <elf.h>

#include <functional>
#include <set>

#include "unit_support.h"

namespace lazyck::rt {

using unit::has;
using unit::message_of;
using unit::Scratch;

namespace unit {

inline EntryKey some_key() { return {"lib", "blob", std::string(64, 'a'), {"90"}, "nvcc-12", "", EM_X86_64}; }

}  // namespace unit

using unit::some_key;

TEST_CASE("everything that changes the compiled code changes the id of the key") {
    const auto id_with = [](const std::function<void(EntryKey&)>& change) {
        EntryKey key = some_key();
        change(key);
        return key.id().hex();
    };
    const std::set<std::string> ids = {
        some_key().id().hex(),
        id_with([](EntryKey& key) { key.library = "other"; }),
        id_with([](EntryKey& key) { key.blob = "other"; }),
        id_with([](EntryKey& key) { key.digest = std::string(64, 'b'); }),
        id_with([](EntryKey& key) { key.archs = {"80"}; }),
        id_with([](EntryKey& key) { key.archs = {"80", "90"}; }),
        id_with([](EntryKey& key) { key.toolchain_id = "nvcc-13"; }),
        id_with([](EntryKey& key) { key.salt = "salt"; }),
        id_with([](EntryKey& key) { key.machine = EM_AARCH64; }),
    };
    CHECK(ids.size() == 9);
    CHECK(id_with([](EntryKey& key) { key.is_text = true; }) == some_key().id().hex());
}

TEST_CASE("the parts of a key cannot run into each other") {
    EntryKey one = some_key(), other = some_key();
    one.library = "ab";
    one.blob = "c";
    other.library = "a";
    other.blob = "bc";
    CHECK(one.id() != other.id());
    other.library = "ab1:c";
    other.blob = "";
    CHECK(one.id() != other.id());
}

TEST_CASE("the id of a key never changes, because entries record it") {
    CHECK(some_key().id().hex() == "5907dd6736d2f39e257af04ab246cd5b");
}

TEST_CASE("archs are joined for people, and hold no dash in file names") {
    EntryKey key = some_key();
    key.archs = {"gfx9-4-generic", "gfx950"};
    CHECK(key.arch_label() == "gfx9-4-generic+gfx950");
    CHECK(key.archs_in_name() == "gfx9_4_generic+gfx950");
    key.archs = {};
    CHECK(key.arch_label() == "any");
    CHECK(key.archs_in_name() == "any");
}

TEST_CASE("an entry's place tells library, archs, toolchain, salt and blob") {
    Cache cache("/root/of");
    EntryKey key = some_key();
    const std::string name = "blob-" + std::string(16, 'a') + ".so";
    CHECK(Cache::file_name(key) == name);
    CHECK(Cache::entry_name(key) == "lib/90-nvcc-12/" + name);
    CHECK(cache.entry_path(key) == "/root/of/" LAZYCK_CACHE_VERSION "/lib/90-nvcc-12/" + name);
    CHECK(cache.log_path(key) ==
          "/root/of/" LAZYCK_CACHE_VERSION "/lib/90-nvcc-12/blob-" + std::string(16, 'a') + ".log");
    CHECK(cache.lock_path(key) == "/root/of/.locks/blob-" + key.id().hex() + ".lock");
    CHECK(cache.history_path() == "/root/of/.history/" + safe_name(host_name()));
    CHECK(cache.permits_dir() == "/root/of/.slots/" + safe_name(host_name()));
    CHECK(cache.staging_prefix(key).rfind("/root/of/.staging/blob", 0) == 0);
    key.salt = "salt";
    CHECK(Cache::entry_name(key) == "lib/90-nvcc-12-" + hash("salt").hex().substr(0, 12) + "/" + name);
    CHECK(cache.entry_path(key) == "/root/of/" LAZYCK_CACHE_VERSION "/" + Cache::entry_name(key));
    // Each part of a directory's name is remembered apart.
    const std::vector<std::function<void(EntryKey&)>> changes = {
        [](EntryKey& changed) { changed.library = "other"; },
        [](EntryKey& changed) { changed.toolchain_id = "other"; },
        [](EntryKey& changed) { changed.salt = "other"; },
        [](EntryKey& changed) { changed.archs = {"80"}; },
    };
    for (const auto& change : changes) {
        EntryKey changed = key;
        change(changed);
        CHECK(cache.entry_path(changed) == "/root/of/" LAZYCK_CACHE_VERSION "/" + Cache::entry_name(changed));
        CHECK(cache.entry_path(changed) != cache.entry_path(key));
    }
}

TEST_CASE("notes on a tier's entries are kept in the user's own cache, or nowhere") {
    const EntryKey key = some_key();
    Cache own("/own");
    CHECK(!own.is_tier());
    CHECK(own.note_path(key) == own.entry_path(key) + ".seen");
    Cache tier("/tier", "/own");
    CHECK(tier.is_tier());
    CHECK(tier.root() == "/tier");
    CHECK(tier.note_path(key) == "/own/.seen/" + hash(tier.entry_path(key)).hex());
    CHECK(Cache("/tier", "").note_path(key) == "");
}

TEST_CASE("what a compile needs is made private, and found again") {
    const Scratch scratch;
    Cache cache(scratch / "cache");
    const EntryKey key = some_key();
    CHECK(!cache.open_directory(key));
    cache.make_directories_for(key);
    for (const char* name : {"", "/.locks", "/.staging", "/.costs", "/.history", "/.slots"}) {
        struct stat st = {};
        REQUIRE(stat((cache.root() + name).c_str(), &st) == 0);
        CHECK((st.st_mode & 0777) == 0700);
    }
    CHECK(is_directory(cache.permits_dir()));
    const UniqueFd first = cache.open_directory(key), second = cache.open_directory(key);
    CHECK(first);
    CHECK(second);
    CHECK(is_directory(directory_of(cache.entry_path(key))));
    CHECK(cache.make_own_directory("mine") == cache.root() + "/mine");
    CHECK(is_directory(cache.root() + "/mine"));
}

TEST_CASE("a directory that others can write is refused, wherever it is on the way") {
    const EntryKey key = some_key();
    for (const char* place :
         {"", "/" LAZYCK_CACHE_VERSION, "/" LAZYCK_CACHE_VERSION "/lib", "/" LAZYCK_CACHE_VERSION "/lib/90-nvcc-12"}) {
        CAPTURE(place);
        const Scratch scratch;
        Cache maker(scratch / "cache");
        maker.make_directories_for(key);
        REQUIRE(chmod((maker.root() + place).c_str(), 0777) == 0);
        Cache cache(maker.root());
        CHECK(has(message_of([&] { cache.open_directory(key); }), maker.root()));
        CHECK(has(message_of([&] { cache.make_directories_for(key); }), maker.root()));
        const std::string moved = scratch / "moved";
        REQUIRE(rename((maker.root() + place).c_str(), moved.c_str()) == 0);
        CHECK(!cache.open_directory(key));
        REQUIRE(symlink(moved.c_str(), (maker.root() + place).c_str()) == 0);
        CHECK(has(message_of([&] { cache.open_directory(key); }), "it is a symbolic link"));
        REQUIRE(unlink((maker.root() + place).c_str()) == 0);
        unit::write_file(maker.root() + place, "file");
        CHECK(has(message_of([&] { cache.open_directory(key); }), "it is not a directory"));
    }
}

TEST_CASE("a directory that was good is checked again when it is opened again") {
    const Scratch scratch;
    Cache cache(scratch / "cache");
    const EntryKey key = some_key();
    cache.make_directories_for(key);
    const std::string leaf = directory_of(cache.entry_path(key));
    REQUIRE(cache.open_directory(key));
    REQUIRE(chmod(leaf.c_str(), 0777) == 0);
    CHECK(has(message_of([&] { cache.open_directory(key); }), leaf));
    REQUIRE(chmod(leaf.c_str(), 0700) == 0);
    REQUIRE(cache.open_directory(key));
    // Another directory in its place is not taken for the one that was checked.
    REQUIRE(rename(leaf.c_str(), (leaf + ".old").c_str()) == 0);
    CHECK(!cache.open_directory(key));
    REQUIRE(mkdir(leaf.c_str(), 0777) == 0);
    REQUIRE(chmod(leaf.c_str(), 0777) == 0);
    CHECK(has(message_of([&] { cache.open_directory(key); }), leaf));
}

TEST_CASE("once it was opened, an entry's directory is opened by its path alone") {
    const Scratch scratch;
    Cache cache(scratch / "cache");
    const EntryKey key = some_key();
    cache.make_directories_for(key);
    REQUIRE(cache.open_directory(key));
    REQUIRE(chmod(cache.root().c_str(), 0777) == 0);
    CHECK(cache.open_directory(key));
}

TEST_CASE("what is published replaces what was there, in a directory that can be trusted") {
    const Scratch scratch;
    Cache cache(scratch / "cache");
    const EntryKey key = some_key();
    cache.make_directories_for(key);
    const UniqueFd staging = open_file(cache.root() + "/.staging", O_PATH | O_DIRECTORY);
    unit::write_file(cache.entry_path(key), "old");
    unit::write_file(cache.root() + "/.staging/made", "new");
    publish(staging.get(), "made", cache.entry_path(key));
    CHECK(unit::read_file_of(cache.entry_path(key)) == "new");
    CHECK(!is_file(cache.root() + "/.staging/made"));
    CHECK(has(message_of([&] { publish(staging.get(), "made", cache.entry_path(key)); }), "cannot publish"));
    unit::write_file(cache.root() + "/.staging/made", "evil");
    REQUIRE(chmod((cache.root() + "/" LAZYCK_CACHE_VERSION).c_str(), 0777) == 0);
    CHECK(has(message_of([&] { publish(staging.get(), "made", cache.entry_path(key)); }), LAZYCK_CACHE_VERSION));
    CHECK(unit::read_file_of(cache.entry_path(key)) == "new");
}

TEST_CASE("whoever can write above the root does not matter") {
    const Scratch scratch;
    Cache cache(scratch / "cache");
    const EntryKey key = some_key();
    cache.make_directories_for(key);
    REQUIRE(chmod(scratch.path().c_str(), 0777) == 0);
    CHECK(cache.open_directory(key));
    const std::string staged = cache.root() + "/.staging/made";
    unit::write_file(staged, "new");
    const UniqueFd staging = open_file(directory_of(staged), O_PATH | O_DIRECTORY);
    publish(staging.get(), "made", cache.entry_path(key));
    CHECK(unit::read_file_of(cache.entry_path(key)) == "new");
    Cache other(cache.root());
    other.make_directories_for(key);
}

TEST_CASE("a root that cannot be made is refused with the variable that names another") {
    const Scratch scratch;
    prepare_cache_root(scratch / "cache");
    CHECK(is_directory(scratch / "cache"));
    unit::write_file(scratch / "file", "x");
    CHECK(has(message_of([&] { prepare_cache_root(scratch / "file/cache"); }), LAZYCK_ENV_CACHE_DIR));
    CHECK(has(message_of([&] { prepare_cache_root(scratch / "file"); }), scratch / "file"));
}

TEST_CASE("records of costs are kept by library, in names that file systems can hold") {
    const Scratch scratch;
    Cache cache(scratch / "cache");
    EntryKey key = some_key();
    key.blob = "a/b";
    cache.make_directories_for(key);
    cache.costs(key).add({1.5, 100});
    CHECK(unit::read_file_of(cache.root() + "/.costs/lib") == "1.500 100 " + safe_name("a/b") + " 90\n");
    cache.by_kernel("lib", "a/b").add("refused 0");
    CHECK(unit::read_file_of(cache.root() + "/.costs/lib.by-kernel") == "refused 0 " + safe_name("a/b") + "\n");
}

}  // namespace lazyck::rt
