// trailer (64 bytes, little endian, behind the ELF image, where the loader never looks):
//     "LAZYCKEN" version:u32 reserved:u32 image_size:u64 digest:u64[2] key:u64[2] reserved:u64
// `digest` covers the image, `key` is EntryKey::id(). History: version 1, the first.
//
// Reading a megabyte costs several times what loading it does, so an entry that was found whole is not read again until
// it is touched. Beside it lies "<entry>.seen":
//     digest:u64[2] (value:u64 is_ifunc:u64)[symbols]
// with what was read from it, under a digest that also covers the file's identity: device, inode, size and change time,
// which the kernel sets on every write and no program can set. Anything unexpected there means: read the entry.
#include "entry.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <optional>
#include <utility>

#include "failure.h"
#include "files.h"
#include "machine.h"
#include "text.h"

namespace lazyck::rt {

namespace {

constexpr char k_magic[9] = "LAZYCKEN";
constexpr std::uint32_t k_version = 1;

struct Trailer {
    char magic[8];
    std::uint32_t version, reserved;
    std::uint64_t image_size, digest_low, digest_high, key_low, key_high, reserved_too;
};
static_assert(sizeof(Trailer) == 64, "the trailer is a file format");

constexpr std::time_t k_settled = 2;  // seconds; a change time has a coarse clock

std::string seen_path(const std::string& path) { return path + ".seen"; }

template <typename T>
void append(std::string& out, const T& value) {
    out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// The contents of "<entry>.seen" for this very file.
std::string seen_text(const struct stat& st, const Digest& key, const Strings& symbols, const std::string& rows) {
    std::string all;
    for (const std::uint64_t part : {std::uint64_t{st.st_dev}, std::uint64_t{st.st_ino}, key.low, key.high}) {
        append(all, part);
    }
    append(all, st.st_size);
    append(all, st.st_ctim.tv_sec);
    append(all, st.st_ctim.tv_nsec);
    for (const std::string& name : symbols) all += name + "\n";
    const Digest digest = hash(all + rows);
    std::string text;
    append(text, digest.low);
    append(text, digest.high);
    return text + rows;
}

// What an earlier look found in the file that is now at `path`.
std::optional<Entry> recall(const std::string& path, const Digest& key, const Strings& symbols) {
    struct stat st;
    if (lstat(path.c_str(), &st) != 0) return std::nullopt;
    const std::string text = read_text(seen_path(path));
    if (text.size() != sizeof(Digest) + symbols.size() * 2 * sizeof(std::uint64_t)) return std::nullopt;
    const std::string rows = text.substr(sizeof(Digest));
    if (text != seen_text(st, key, symbols, rows)) return std::nullopt;
    Entry entry{path, {}};
    for (std::size_t i = 0; i < symbols.size(); ++i) {
        std::uint64_t row[2];
        std::memcpy(row, rows.data() + i * sizeof row, sizeof row);
        entry.functions.push_back({row[0], row[1] != 0});
    }
    return entry;
}

void remember(const Entry& entry, const MappedFile& file, const Digest& key, const Strings& symbols) {
    // A write in the same tick of the clock would go unseen.
    if (std::time(nullptr) - file.status().st_ctim.tv_sec < k_settled) return;
    std::string rows;
    for (const DynamicSymbol& symbol : entry.functions) {
        append(rows, symbol.value);
        append(rows, std::uint64_t{symbol.is_ifunc});
    }
    const UniqueFd fd = open_file(seen_path(entry.path), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW);
    // In a read-only cache every process reads all.
    if (fd) write_all(fd.get(), seen_text(file.status(), key, symbols, rows));
}

std::string problem_of(const ElfView& elf, std::uint16_t machine) {
    if (!elf.problem().empty() || elf.machine() == machine) return elf.problem();
    return "it is for " + machine_name(elf.machine()) + ", the library for " + machine_name(machine);
}

// What is wrong with the file, or "".
std::string check(const MappedFile& file, const Digest& key, std::uint16_t machine) {
    if (file.size() < sizeof(Trailer)) return "cut short";
    Trailer trailer;
    const std::size_t image_size = file.size() - sizeof trailer;
    std::memcpy(&trailer, file.data() + image_size, sizeof trailer);
    if (std::memcmp(trailer.magic, k_magic, sizeof trailer.magic) != 0) return "cut short, or not written by lazyck";
    if (trailer.version != k_version) return "written by another version of lazyck";
    if (trailer.image_size != image_size) return "cut short";
    if (Digest{trailer.key_low, trailer.key_high} != key) return "an entry for something else";
    if (hash(file.data(), image_size) != Digest{trailer.digest_low, trailer.digest_high}) return "its contents changed";
    return problem_of(ElfView(file.data(), image_size), machine);
}

}  // namespace

EntryLookup look_up_entry(const std::string& path, const Digest& key, std::uint16_t machine, const Strings& symbols) {
    EntryLookup result;
    if (auto known = recall(path, key, symbols)) {
        result.state = EntryState::ready;
        result.entry = std::move(*known);
        return result;
    }
    MappedFile file;
    const int error = file.map(path);
    if (error == ENOENT || error == ENOTDIR || error == ESTALE) return result;
    result.state = EntryState::damaged;
    result.problem = error != 0 ? system_text(error) : check(file, key, machine);
    if (!result.problem.empty()) return result;
    const ElfView elf(file.data(), file.size());
    for (const std::string& name : symbols) {
        const auto found = elf.find_function(name);
        if (!found) {
            fail("lazyck: the cache entry '" + path + "' does not define '" + name +
                 "', which the library expects of it; delete the file to have it compiled again");
        }
        result.entry.functions.push_back(*found);
    }
    result.entry.path = path;
    result.state = EntryState::ready;
    remember(result.entry, file, key, symbols);
    return result;
}

std::string find_fault(const std::string& path, std::uint16_t machine, const Strings& symbols) {
    MappedFile file;
    if (const int error = file.map(path)) fail_system("cannot read '" + path + "'", error);
    const ElfView elf(file.data(), file.size());
    const std::string problem = problem_of(elf, machine);
    if (!problem.empty()) return problem;
    for (const std::string& name : symbols) {
        if (!elf.find_function(name)) return "it does not define '" + name + "', which the library expects of it";
    }
    return "";
}

void seal_entry(const std::string& path, const Digest& key) {
    Trailer trailer = {};
    {
        MappedFile file;
        if (const int error = file.map(path)) fail_system("cannot read '" + path + "'", error);
        const Digest digest = hash(file.data(), file.size());
        std::memcpy(trailer.magic, k_magic, sizeof trailer.magic);
        trailer.version = k_version;
        trailer.image_size = file.size();
        trailer.digest_low = digest.low;
        trailer.digest_high = digest.high;
        trailer.key_low = key.low;
        trailer.key_high = key.high;
    }
    const UniqueFd fd = open_file(path, O_WRONLY | O_APPEND | O_NOFOLLOW);
    const bool is_written = fd && write_all(fd.get(), {reinterpret_cast<const char*>(&trailer), sizeof trailer});
    // On disk before it has a name: else a power cut could leave an entry with a name and without contents.
    if (!is_written || fsync(fd.get()) != 0) {
        fail_system("cannot write '" + path + "'", errno);
    }
}

}  // namespace lazyck::rt
