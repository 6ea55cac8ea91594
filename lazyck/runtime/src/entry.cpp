// trailer (64 bytes, little endian, behind the ELF image, where the loader never looks):
//     "LAZYCKEN" version:u32 reserved:u32 image_size:u64 digest:u64[2] key:u64[2] reserved:u64
// `digest` covers the image, `key` is EntryKey::id(). History: version 1, the first.
#include "entry.h"

#include <fcntl.h>

#include <cerrno>
#include <cstring>

#include "failure.h"
#include "files.h"
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

// What is wrong with the file, or "".
std::string check(const MappedFile& file, const Digest& key) {
    if (file.size() < sizeof(Trailer)) return "cut short";
    Trailer trailer;
    const std::size_t image_size = file.size() - sizeof trailer;
    std::memcpy(&trailer, file.data() + image_size, sizeof trailer);
    if (std::memcmp(trailer.magic, k_magic, sizeof trailer.magic) != 0) return "cut short, or not written by lazyck";
    if (trailer.version != k_version) return "written by another version of lazyck";
    if (trailer.image_size != image_size) return "cut short";
    if (Digest{trailer.key_low, trailer.key_high} != key) return "an entry for something else";
    if (hash(file.data(), image_size) != Digest{trailer.digest_low, trailer.digest_high}) return "its contents changed";
    return ElfView(file.data(), image_size).problem();
}

}  // namespace

EntryLookup look_up_entry(const std::string& path, const Digest& key, const std::vector<std::string>& symbols) {
    EntryLookup result;
    MappedFile file;
    const int error = file.map(path);
    if (error == ENOENT || error == ENOTDIR || error == ESTALE) return result;
    result.state = EntryState::damaged;
    result.problem = error != 0 ? system_text(error) : check(file, key);
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
    return result;
}

const std::string* find_missing_symbol(const std::string& path, const std::vector<std::string>& symbols) {
    MappedFile file;
    if (const int error = file.map(path)) fail_system("cannot read '" + path + "'", error);
    const ElfView elf(file.data(), file.size());
    for (const std::string& name : symbols) {
        if (!elf.find_function(name)) return &name;
    }
    return nullptr;
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
    if (!fd || !write_all(fd.get(), {reinterpret_cast<const char*>(&trailer), sizeof trailer})) {
        fail_system("cannot write '" + path + "'", errno);
    }
}

}  // namespace lazyck::rt
