#include "cache/entry.h"

#include <elf.h>
#include <sys/time.h>

#include <cstring>

#include "cache/cache.h"
#include "unit_support.h"

namespace lazyck::rt {

using unit::has;
using unit::made_file;
using unit::message_of;
using unit::Scratch;
using unit::some_key;

namespace {

const Strings k_both = {"first", "second"};

// A cache with one entry, which may be changed behind its back.
class OneEntry {
 public:
    explicit OneEntry(const char* library = "library.so") : cache(scratch / "cache"), key(some_key()) {
        cache.make_directories_for(key);
        path = cache.entry_path(key);
        note = path + ".seen";
        seal(made_file(library), key.id());
    }
    void seal(const std::string& image, const Digest& id, const Digest& text = {}) {
        unit::write_file(path, image);
        REQUIRE(chmod(path.c_str(), 0644) == 0);
        const UniqueFd fd = open_file(path, O_RDWR | O_APPEND);
        seal_entry(fd.get(), id, text);
    }
    EntryLookup look(const Strings& symbols = k_both) { return look_up_entry(cache, key, symbols); }
    std::string text() const { return unit::read_file_of(path); }
    void replace(const std::string& contents) { unit::write_file(path, contents); }
    // Waits until the clock of change times has gone on, so that a note may be kept.
    void settle() {
        struct stat st = {};
        REQUIRE(stat(path.c_str(), &st) == 0);
        while (std::time(nullptr) - st.st_ctim.tv_sec < k_settled) usleep(20000);
    }

    Scratch scratch;
    Cache cache;
    EntryKey key;
    std::string path, note;
};

std::string damage_in(OneEntry& one) {
    return find_damage(Directory::open(directory_of(one.path)), file_name_of(one.path));
}

}  // namespace

TEST_CASE("a whole entry is ready, with its functions in the order that was asked for") {
    OneEntry one;
    const EntryLookup found = one.look();
    REQUIRE(found.state == EntryState::ready);
    CHECK(found.problem == "");
    CHECK(found.entry.path == one.path);
    REQUIRE(found.entry.functions.size() == 2);
    const std::string image = made_file("library.so");
    const ElfView elf(reinterpret_cast<const unsigned char*>(image.data()), image.size());
    CHECK(found.entry.functions[0].value == elf.find_function("first")->value);
    CHECK(found.entry.functions[1].value == elf.find_function("second")->value);
    CHECK(!found.entry.functions[0].is_ifunc);
    CHECK(one.look({"chosen"}).entry.functions[0].is_ifunc);
    CHECK(found.entry.header_state == HeaderState::none);
    CHECK(found.entry.file->size() == image.size() + 64);
    CHECK(damage_in(one) == "");
}

TEST_CASE("no entry is missing, not damaged") {
    OneEntry one;
    REQUIRE(unlink(one.path.c_str()) == 0);
    CHECK(one.look().state == EntryState::missing);
    std::filesystem::remove_all(one.cache.root());
    CHECK(one.look().state == EntryState::missing);
    CHECK(has(find_damage(Directory::open(one.scratch.path()), "absent"), "No such file"));
}

TEST_CASE("a changed byte, wherever it is, is damage") {
    OneEntry one;
    const std::string whole = one.text();
    const std::size_t trailer = whole.size() - 64;
    struct {
        std::size_t at;
        const char* problem;
    } const changes[] = {
        {0, "its contents changed"},
        {trailer - 1, "its contents changed"},
        {trailer, "cut short, or not written by lazyck"},
        {trailer + 7, "cut short, or not written by lazyck"},
        {trailer + 8, "written by another version of lazyck"},
        {trailer + 16, "cut short"},
        {trailer + 24, "its contents changed"},
        {trailer + 32, "its contents changed"},
        {trailer + 40, "an entry for another key"},
        {trailer + 48, "an entry for another key"},
    };
    for (const auto& change : changes) {
        CAPTURE(change.at);
        std::string changed = whole;
        changed[change.at] = static_cast<char>(changed[change.at] ^ 1);
        one.replace(changed);
        const EntryLookup found = one.look();
        CHECK(found.state == EntryState::damaged);
        CHECK(found.problem == change.problem);
        // Without a key, an entry for another key is as good as any.
        const bool is_about_key = has(change.problem, "key");
        CHECK(damage_in(one) == (is_about_key ? "" : change.problem));
    }
}

TEST_CASE("an entry that is cut short is damaged") {
    OneEntry one;
    const std::string whole = one.text();
    for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{63}}) {
        one.replace(whole.substr(0, size));
        CHECK(one.look().problem == "cut short");
    }
    one.replace(whole.substr(0, whole.size() - 1));
    CHECK(one.look().problem == "cut short, or not written by lazyck");
    one.replace(whole.substr(1));
    CHECK(one.look().problem == "cut short");
    one.replace(whole.substr(whole.size() - 64));
    CHECK(one.look().problem == "cut short");
}

TEST_CASE("a trailer alone is no entry") {
    OneEntry one;
    one.seal("", one.key.id());
    CHECK(one.text().size() == 64);
    CHECK(one.look().problem == "not an ELF file");
    CHECK(damage_in(one) == "not an ELF file");
}

TEST_CASE("an entry that others could have written is not taken") {
    OneEntry one;
    for (const mode_t mode : {0664, 0646}) {
        REQUIRE(chmod(one.path.c_str(), mode) == 0);
        CHECK(one.look().state == EntryState::damaged);
        CHECK(one.look().problem != "");
        CHECK(damage_in(one) != "");
    }
    REQUIRE(chmod(one.path.c_str(), 0600) == 0);
    CHECK(one.look().state == EntryState::ready);
}

TEST_CASE("sealing takes the right to write away from others") {
    OneEntry one;
    unit::write_file(one.path, made_file("library.so"));
    REQUIRE(chmod(one.path.c_str(), 0777) == 0);
    const UniqueFd fd = open_file(one.path, O_RDWR | O_APPEND);
    seal_entry(fd.get(), one.key.id());
    struct stat st = {};
    REQUIRE(stat(one.path.c_str(), &st) == 0);
    CHECK((st.st_mode & 0777) == 0755);
    const UniqueFd unwritable = open_file(one.path, O_RDONLY);
    CHECK(has(message_of([&] { seal_entry(unwritable.get(), one.key.id()); }), "cannot write what was compiled"));
}

TEST_CASE("a link in the place of an entry is not followed") {
    OneEntry one;
    REQUIRE(rename(one.path.c_str(), (one.path + ".real").c_str()) == 0);
    REQUIRE(symlink((one.path + ".real").c_str(), one.path.c_str()) == 0);
    CHECK(one.look().state == EntryState::damaged);
    CHECK(one.look().problem != "");
}

TEST_CASE("a whole entry that lacks a function is an error, not damage") {
    OneEntry one;
    for (const char* name : {"hidden", "missing", "variable", "absent", "firs", "first0"}) {
        CAPTURE(name);
        CHECK(has(message_of([&] { one.look({"first", name}); }), std::string("does not define '") + name + "'"));
        const UniqueFd fd = open_file(one.path, O_RDONLY);
        CHECK(find_entry_fault(fd.get(), one.key, {"first", name}) ==
              std::string("it does not define '") + name + "', which the library expects of it");
    }
    const UniqueFd fd = open_file(one.path, O_RDONLY);
    CHECK(find_entry_fault(fd.get(), one.key, k_both) == "");
}

TEST_CASE("an entry of a text is known by the lower half of the text's id") {
    OneEntry one;
    EntryKey text = some_key();
    text.digest = std::string(64, 'f');
    text.is_text = true;
    one.seal(made_file("library.so"), one.key.id(), text.id());
    const UniqueFd fd = open_file(one.path, O_RDONLY);
    CHECK(find_entry_fault(fd.get(), text, k_both) == "");
    CHECK(find_entry_fault(fd.get(), one.key, k_both) == "");
    text.digest = std::string(64, 'e');
    CHECK(find_entry_fault(fd.get(), text, k_both) == "an entry for another key");
    one.key.is_text = true;
    CHECK(find_entry_fault(fd.get(), one.key, k_both) == "an entry for another key");
}

TEST_CASE("an entry is of the machine of its key") {
    OneEntry one;
    one.key.machine = EM_AARCH64;
    one.path = one.cache.entry_path(one.key);
    one.seal(made_file("library.so"), one.key.id());
    CHECK(one.look().problem == "it is for x86_64, but the library is for aarch64");
    const UniqueFd fd = open_file(one.path, O_RDONLY);
    CHECK(find_fault(fd.get(), EM_AARCH64, k_both) == "it is for x86_64, but the library is for aarch64");
    CHECK(find_fault(fd.get(), EM_X86_64, k_both) == "");
    CHECK(find_fault(fd.get(), EM_X86_64, {"absent"}) ==
          "it does not define 'absent', which the library expects of it");
    CHECK(damage_in(one) == "");
}

TEST_CASE("what cannot be read is an error of the system") {
    OneEntry one;
    const UniqueFd directory = open_file(one.scratch.path(), O_RDONLY | O_DIRECTORY);
    CHECK(has(message_of([&] { find_fault(directory.get(), EM_X86_64, {}); }), "cannot read what was compiled"));
    CHECK(find_entry_fault(directory.get(), one.key, {}) != "");
    CHECK(has(message_of([&] { copy_library(directory.get(), directory.get()); }), "cannot read an entry"));
}

TEST_CASE("a copy of the library is without the trailer") {
    OneEntry one;
    const UniqueFd from = open_file(one.path, O_RDONLY);
    const UniqueFd to = open_file(one.scratch / "copy", O_RDWR | O_CREAT);
    copy_library(from.get(), to.get());
    CHECK(unit::read_file_of(one.scratch / "copy") == made_file("library.so"));
    CHECK(has(message_of([&] { copy_library(from.get(), from.get()); }), "cannot copy an entry"));
}

TEST_CASE("libraries with either kind of hash table are read") {
    for (const char* name : {"library.so", "sysv.so"}) {
        CAPTURE(name);
        OneEntry one(name);
        CHECK(one.look().state == EntryState::ready);
        CHECK(one.look().entry.header_state == HeaderState::none);
        CHECK(has(message_of([&] { one.look({"hidden"}); }), "does not define"));
    }
    for (const char* name : {"state.so", "state-sysv.so"}) {
        CAPTURE(name);
        OneEntry one(name);
        CHECK(one.look({"_Z4keepv"}).entry.header_state == HeaderState::unique);
    }
}

TEST_CASE("a note of an entry found whole spares reading it again, until the file is touched") {
    OneEntry one("state.so");
    const Strings symbols = {"_Z4keepv"};
    one.look(symbols);
    CHECK(!is_file(one.note));  // the change is so new that a later one could go unseen
    one.settle();
    const EntryLookup first = one.look(symbols);
    REQUIRE(is_file(one.note));
    CHECK(unit::read_file_of(one.note).size() == 16 + 3 * 8);
    const EntryLookup second = one.look(symbols);
    REQUIRE(second.state == EntryState::ready);
    CHECK(second.entry.functions[0].value == first.entry.functions[0].value);
    CHECK(second.entry.functions[0].is_ifunc == first.entry.functions[0].is_ifunc);
    CHECK(second.entry.header_state == HeaderState::unique);
    // What the note says is taken: this one has other rows, under the right digest.
    struct stat st = {};
    REQUIRE(stat(one.path.c_str(), &st) == 0);
    const auto note_of = [&](std::uint64_t value, std::uint64_t is_ifunc, std::uint64_t has_state) {
        std::string rows;
        for (const std::uint64_t each : {value, is_ifunc, has_state}) append(rows, each);
        unit::write_file(one.note, seen_text(st, one.key.id(), symbols, rows));
    };
    note_of(7, 1, 0);
    EntryLookup told = one.look(symbols);
    CHECK(told.entry.functions[0].value == 7);
    CHECK(told.entry.functions[0].is_ifunc);
    CHECK(told.entry.header_state == HeaderState::none);
    note_of(8, 0, 1);
    told = one.look(symbols);
    CHECK(!told.entry.functions[0].is_ifunc);
    CHECK(told.entry.header_state == HeaderState::shared);
    // A note with a changed byte, for other symbols, of another length or that others can write is
    // not.
    const std::string note = unit::read_file_of(one.note);
    for (std::size_t i = 0; i < note.size(); ++i) {
        std::string changed = note;
        changed[i] = static_cast<char>(changed[i] ^ 1);
        unit::write_file(one.note, changed);
        CHECK(one.look(symbols).entry.functions[0].value == first.entry.functions[0].value);
    }
    unit::write_file(one.note, note + "x");
    CHECK(one.look(symbols).entry.functions[0].value == first.entry.functions[0].value);
    unit::write_file(one.note, note);
    CHECK(one.look({"_Z4keepv", "_Z4keepv"}).entry.functions[1].value == first.entry.functions[0].value);
    unit::write_file(one.note, note);
    REQUIRE(chmod(one.note.c_str(), 0666) == 0);
    CHECK(one.look(symbols).entry.functions[0].value == first.entry.functions[0].value);
    REQUIRE(unlink(one.note.c_str()) == 0);
    unit::write_file(one.note, note);
    CHECK(one.look(symbols).entry.functions[0].value == 8);
    // The file is touched, and so read.
    std::string changed = one.text();
    changed[0] = 'x';
    one.replace(changed);
    CHECK(one.look(symbols).state == EntryState::damaged);
}

TEST_CASE("the identity of a file in a note is its device, inode, size and change time") {
    struct stat st = {};
    const Digest id = {1, 2};
    const std::string plain = seen_text(st, id, {"a"}, "rows");
    CHECK(plain.substr(16) == "rows");
    CHECK(seen_text(st, id, {"a"}, "rowt") != plain);
    CHECK(seen_text(st, id, {"b"}, "rows") != plain);
    CHECK(seen_text(st, {1, 3}, {"a"}, "rows") != plain);
    CHECK(seen_text(st, {0, 2}, {"a"}, "rows") != plain);
    struct stat other = st;
    other.st_dev = 1;
    CHECK(seen_text(other, id, {"a"}, "rows") != plain);
    other = st;
    other.st_ino = 1;
    CHECK(seen_text(other, id, {"a"}, "rows") != plain);
    other = st;
    other.st_size = 1;
    CHECK(seen_text(other, id, {"a"}, "rows") != plain);
    other = st;
    other.st_ctim.tv_sec = 1;
    CHECK(seen_text(other, id, {"a"}, "rows") != plain);
    other = st;
    other.st_ctim.tv_nsec = 1;
    CHECK(seen_text(other, id, {"a"}, "rows") != plain);
}

TEST_CASE("the time of a note tells the last use, to six hours") {
    OneEntry one;
    one.settle();
    one.look();
    const auto age_after_use = [&](long age) {
        const std::time_t now = std::time(nullptr);
        const timeval times[2] = {{now - age, 0}, {now - age, 0}};
        REQUIRE(utimes(one.note.c_str(), times) == 0);
        one.look();
        struct stat st = {};
        REQUIRE(stat(one.note.c_str(), &st) == 0);
        return now - st.st_mtime;
    };
    CHECK(age_after_use(7 * 3600) <= 0);
    CHECK(age_after_use(5 * 3600) == 5 * 3600);
}

TEST_CASE("an entry of a tier is noted in the user's own cache, whose directory is made for it") {
    OneEntry one;
    one.settle();
    Cache tier(one.cache.root(), one.scratch.path());
    CHECK(look_up_entry(tier, one.key, k_both).state == EntryState::ready);
    CHECK(is_file(tier.note_path(one.key)));
    struct stat st = {};
    REQUIRE(stat((one.scratch / ".seen").c_str(), &st) == 0);
    CHECK((st.st_mode & 0777) == 0700);
    CHECK(!is_file(one.note));
    UniqueFd fd = open_file(one.path, O_RDONLY);
    const EntryLookup found = read_entry(std::move(fd), one.cache, one.key, k_both);
    CHECK(found.state == EntryState::ready);
    CHECK(found.entry.path == one.path);
    CHECK(is_file(one.note));
    Cache without(one.cache.root(), "");
    CHECK(look_up_entry(without, one.key, k_both).state == EntryState::ready);
}

}  // namespace lazyck::rt
