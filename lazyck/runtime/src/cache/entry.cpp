// trailer (64 bytes, little endian, behind the ELF image, where the loader never looks):
//     "LAZYCKEN" version:u32 reserved:u32 image_size:u64 digest:u64[2] key:u64[2] text:u64
// `digest` covers the image; `key` is EntryKey::id(). `text` is the lower half of the id of the key
// of the text that the entry was made of, or 0. History: version 1 is the first; `text` was
// reserved.
//
// Reading a megabyte costs several times as much as loading it, so an entry that was found whole is
// not read again until it is touched. A note beside it keeps what was read from it: "<entry>.seen",
// or for an entry of another cache "<own root>/.seen/<hash of its path>":
//     digest:u64[2] (value:u64 is_ifunc:u64)[symbols] header_state:u64
// The digest also covers the file's identity: device, inode, size and change time. The kernel sets
// the change time on every write, and no program can set it. If anything in the note is unexpected,
// the entry is read.
#include "cache/entry.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <utility>

#include "base/failure.h"
#include "cache/cache.h"
#include "lazyck_abi.h"
#include "platform/elf_view.h"
#include "platform/files.h"

namespace lazyck::rt {

namespace {

constexpr char k_seen[] = ".seen";

struct Trailer {
    char magic[8];
    std::uint32_t version, reserved;
#define LAZYCK_COLUMN(name) std::uint64_t name;
    LAZYCK_ENTRY_TRAILER(LAZYCK_COLUMN)
#undef LAZYCK_COLUMN
};
static_assert(sizeof(Trailer) == 64, "the trailer is a file format");

constexpr std::time_t k_settled = 2;  // seconds; the clock of change times is coarse
// How exactly the time of the last use is kept, in seconds: most hits should not write.
constexpr std::time_t k_use_interval = 6 * 3600;

template <typename T>
void append(std::string& out, const T& value) {
    out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// Returns the contents of the note for this very file.
std::string seen_text(const struct stat& st, const Digest& key, const Strings& symbols, const std::string& rows) {
    std::string all;
    append(all, std::uint64_t{st.st_dev});
    append(all, std::uint64_t{st.st_ino});
    append(all, key);
    append(all, st.st_size);
    append(all, st.st_ctim.tv_sec);
    append(all, st.st_ctim.tv_nsec);
    for (const std::string& name : symbols) all += name + "\n";
    std::string text;
    append(text, hash(all + rows));
    return text + rows;
}

// Where a note is: a name in an open directory, or AT_FDCWD and a path. An empty name means that
// there is none.
struct Note {
    int directory;
    std::string name;
};

// Returns the contents of a note if they are `size` bytes, else an empty string.
std::string read_seen(const Note& note, std::size_t size) {
    const UniqueFd fd = note.name.empty() ? UniqueFd() : open_at(note.directory, note.name, O_RDONLY | O_NONBLOCK);
    struct stat st;
    if (!fd || fstat(fd.get(), &st) != 0 || !S_ISREG(st.st_mode) || !stranger_of(st).empty()) return "";
    if (static_cast<std::uint64_t>(st.st_size) != size) return "";
    std::string text = read_text(fd.get(), 0, size);
    if (text.size() != size) return "";
    if (std::time(nullptr) - st.st_mtime > k_use_interval) futimens(fd.get(), nullptr);
    return text;
}

// Fills `entry` with what an earlier check found in the file of status `st`. Returns false if there
// was none.
bool recall(const Note& note, const struct stat& st, const Digest& key, const Strings& symbols, Entry& entry) {
    const std::string text = read_seen(note, sizeof(Digest) + (symbols.size() * 2 + 1) * sizeof(std::uint64_t));
    if (text.empty()) return false;
    const std::string rows = text.substr(sizeof(Digest));
    if (text != seen_text(st, key, symbols, rows)) return false;
    for (std::size_t i = 0; i < symbols.size(); ++i) {
        std::uint64_t row[2];
        std::memcpy(row, rows.data() + i * sizeof row, sizeof row);
        entry.functions.push_back({row[0], row[1] != 0});
    }
    std::memcpy(&entry.header_state, rows.data() + rows.size() - sizeof entry.header_state, sizeof entry.header_state);
    return true;
}

void remember(const Note& note, const Entry& entry, const MappedFile& file, const Digest& key, const Strings& symbols) {
    if (note.name.empty()) return;
    // A write in the same tick of the clock would go unseen.
    if (std::time(nullptr) - file.status().st_ctim.tv_sec < k_settled) return;
    std::string rows;
    for (const DynamicSymbol& symbol : entry.functions) {
        append(rows, symbol.value);
        append(rows, std::uint64_t{symbol.is_ifunc});
    }
    append(rows, entry.header_state);
    const int flags = O_WRONLY | O_CREAT | O_TRUNC;
    UniqueFd fd = open_at(note.directory, note.name, flags);
    if (!fd && errno == ENOENT && mkdirat(note.directory, directory_of(note.name).c_str(), 0700) == 0)
        fd = open_at(note.directory, note.name, flags);
    // In a read-only cache, every process reads all of the entry.
    if (fd) write_all(fd.get(), seen_text(file.status(), key, symbols, rows));
}

std::string problem_of(const ElfView& elf, std::uint16_t machine) {
    if (!elf.problem().empty() || elf.machine() == machine) return elf.problem();
    return "it is for " + machine_name(elf.machine()) + ", but the library is for " + machine_name(machine);
}

// Returns what is wrong with the file itself, or an empty string. Then `trailer` is the file's
// trailer.
std::string check_whole(const MappedFile& file, Trailer& trailer) {
    if (file.size() < sizeof(Trailer)) return "cut short";
    const std::size_t image_size = file.size() - sizeof trailer;
    std::memcpy(&trailer, file.data() + image_size, sizeof trailer);
    if (std::memcmp(trailer.magic, LAZYCK_ENTRY_MAGIC, sizeof trailer.magic) != 0)
        return "cut short, or not written by lazyck";
    if (trailer.version != LAZYCK_ENTRY_VERSION) return "written by another version of lazyck";
    if (trailer.image_size != image_size) return "cut short";
    if (hash(file.data(), image_size) != Digest{trailer.digest_low, trailer.digest_high}) return "its contents changed";
    return "";
}

// Returns what is wrong with the file as an entry for `key`, or an empty string.
std::string check(const MappedFile& file, const EntryKey& key) {
    Trailer trailer;
    const std::string problem = check_whole(file, trailer);
    if (!problem.empty()) return problem;
    const Digest id = key.id();
    const bool is_for_key = key.is_text ? trailer.text == id.low : Digest{trailer.key_low, trailer.key_high} == id;
    if (!is_for_key) return "an entry for another key";
    return problem_of(ElfView(file.data(), trailer.image_size), key.machine);
}

// Appends the functions, in the order of `symbols`, to `functions`. Returns what is wrong with the
// library if it lacks one, or an empty string.
std::string find_functions(const ElfView& elf, const Strings& symbols, std::vector<DynamicSymbol>& functions) {
    for (const std::string& name : symbols) {
        const auto found = elf.find_function(name);
        if (!found) return "does not define '" + name + "', which the library expects of it";
        functions.push_back(*found);
    }
    return "";
}

std::string find_missing(const ElfView& elf, const Strings& symbols) {
    std::vector<DynamicSymbol> functions;
    const std::string lack = find_functions(elf, symbols, functions);
    return lack.empty() ? "" : "it " + lack;
}

EntryLookup read_file(UniqueFd fd, const std::string& path, const Note& note, const EntryKey& key,
                      const Strings& symbols) {
    EntryLookup result;
    result.state = EntryState::damaged;
    struct stat st = {};
    result.problem = fstat(fd.get(), &st) != 0 ? system_text(errno) : stranger_of(st);
    if (!result.problem.empty()) return result;
    const Digest id = key.id();
    if (!recall(note, st, id, symbols, result.entry)) {
        MappedFile file;
        const int map_error = file.map(fd.get());
        result.problem = map_error != 0 ? system_text(map_error) : check(file, key);
        if (!result.problem.empty()) return result;
        const ElfView elf(file.data(), file.size());
        const std::string lack = find_functions(elf, symbols, result.entry.functions);
        if (!lack.empty())
            fail("lazyck: the cache entry '" + path + "' " + lack + "; delete the file to have it compiled again");
        result.entry.header_state = elf.header_state();
        st = file.status();
        remember(note, result.entry, file, id, symbols);
    }
    result.entry.path = path;
    result.entry.file = std::make_shared<CheckedFile>(std::move(fd), path, st);
    result.state = EntryState::ready;
    return result;
}

}  // namespace

EntryLookup look_up_entry(Cache& cache, const EntryKey& key, const Strings& symbols) {
    const std::string path = cache.entry_path(key), name = Cache::file_name(key);
    const UniqueFd directory = cache.open_directory(key);
    UniqueFd fd;
    if (directory) fd = open_at(directory.get(), name, O_RDONLY | O_NONBLOCK);
    if (fd) {
        const Note note = cache.is_tier() ? Note{AT_FDCWD, cache.note_path(key)} : Note{directory.get(), name + k_seen};
        return read_file(std::move(fd), path, note, key, symbols);
    }
    const int error = errno;
    // A lack of descriptors or memory in this process says nothing about the entry.
    if (error == EMFILE || error == ENFILE || error == ENOMEM) fail_system("cannot open '" + path + "'", error);
    if (!directory || error == ENOENT || error == ENOTDIR || error == ESTALE) return {};
    return {EntryState::damaged, system_text(error), {}};
}

EntryLookup read_entry(UniqueFd fd, Cache& cache, const EntryKey& key, const Strings& symbols) {
    return read_file(std::move(fd), cache.entry_path(key), {AT_FDCWD, cache.note_path(key)}, key, symbols);
}

std::string find_damage(const Directory& directory, const std::string& name) {
    const UniqueFd fd = open_at(directory.fd(), name, O_RDONLY | O_NONBLOCK);
    MappedFile file;
    const int error = fd ? file.map(fd.get()) : errno;
    if (error != 0) return system_text(error);
    const std::string stranger = stranger_of(file.status());
    Trailer trailer;
    const std::string problem = stranger.empty() ? check_whole(file, trailer) : stranger;
    return problem.empty() ? ElfView(file.data(), trailer.image_size).problem() : problem;
}

std::string find_entry_fault(int fd, const EntryKey& key, const Strings& symbols) {
    MappedFile file;
    if (const int error = file.map(fd)) return system_text(error);
    const std::string problem = check(file, key);
    return problem.empty() ? find_missing(ElfView(file.data(), file.size()), symbols) : problem;
}

std::string find_fault(int fd, std::uint16_t machine, const Strings& symbols) {
    MappedFile file;
    if (const int error = file.map(fd)) fail_system("cannot read what was compiled", error);
    const ElfView elf(file.data(), file.size());
    const std::string problem = problem_of(elf, machine);
    return problem.empty() ? find_missing(elf, symbols) : problem;
}

void seal_entry(int fd, const Digest& key, const Digest& text) {
    Trailer trailer = {};
    {
        MappedFile file;
        if (const int error = file.map(fd)) fail_system("cannot read what was compiled", error);
        const Digest digest = hash(file.data(), file.size());
        std::memcpy(trailer.magic, LAZYCK_ENTRY_MAGIC, sizeof trailer.magic);
        trailer.version = LAZYCK_ENTRY_VERSION;
        trailer.image_size = file.size();
        trailer.digest_low = digest.low;
        trailer.digest_high = digest.high;
        trailer.key_low = key.low;
        trailer.key_high = key.high;
        trailer.text = text.low;
    }
    // A linker makes what the umask allows, but an entry that others can write is not loaded.
    struct stat st;
    const bool is_ours = fstat(fd, &st) == 0 && fchmod(fd, st.st_mode & 0755) == 0;
    const bool is_written = is_ours && write_all(fd, {reinterpret_cast<const char*>(&trailer), sizeof trailer});
    // The file must be on disk before it has a name. Else a power cut could leave an entry with a
    // name and no contents.
    if (!is_written || fsync(fd) != 0) fail_system("cannot write what was compiled", errno);
}

void copy_library(int entry, int to) {
    MappedFile file;
    if (const int error = file.map(entry)) fail_system("cannot read an entry", error);
    const std::size_t size = file.size() - std::min(file.size(), sizeof(Trailer));
    if (!write_all(to, {reinterpret_cast<const char*>(file.data()), size})) fail_system("cannot copy an entry", errno);
}

}  // namespace lazyck::rt
