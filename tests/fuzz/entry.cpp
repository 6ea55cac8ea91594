// Reads a cache entry, or the note beside it. The first byte says what the rest is: an entry as it
// is; an entry that gets a trailer for its key or its text, so that the ELF file inside is read; or
// a note, as it is or with a digest that fits it.
#include "cache/entry.cpp"

#include <sys/mman.h>
#include <sys/stat.h>

namespace {

using namespace lazyck::rt;

const Digest k_key{1, 2};
const Strings k_symbols = {"_Z3addii", "value"};

EntryKey key_of(bool is_text) {
    EntryKey key;
    key.machine = 62;  // x86-64
    key.is_text = is_text;
    return key;
}

int fill(const std::string& content) {
    static const int s_fd = memfd_create("entry", MFD_CLOEXEC);
    if (ftruncate(s_fd, 0) != 0 || pwrite(s_fd, content.data(), content.size(), 0) < 0) std::abort();
    return s_fd;
}

void check_entry(const std::string& content, bool is_text) {
    MappedFile file;
    if (file.map(fill(content)) != 0) std::abort();
    if (!check(file, key_of(is_text)).empty()) return;
    try {
        const ElfView elf(file.data(), file.size());
        elf.header_state();
        std::vector<DynamicSymbol> functions;
        find_functions(elf, k_symbols, functions);
    } catch (const lazyck::CompileError&) {
    }
}

std::string with_trailer(std::string image, bool is_text) {
    Trailer trailer = {};
    const Digest digest = hash(image);
    std::memcpy(trailer.magic, LAZYCK_ENTRY_MAGIC, sizeof trailer.magic);
    trailer.version = LAZYCK_ENTRY_VERSION;
    trailer.image_size = image.size();
    trailer.digest_low = digest.low;
    trailer.digest_high = digest.high;
    const Digest id = key_of(is_text).id();
    trailer.key_low = is_text ? 0 : id.low;
    trailer.key_high = is_text ? 0 : id.high;
    trailer.text = is_text ? id.low : 0;
    append(image, trailer);
    return image;
}

// Makes a directory for this process, and removes it at the end.
class NoteDirectory {
 public:
    NoteDirectory() {
        char directory[] = "/dev/shm/lazyck-fuzz-XXXXXX";
        if (mkdtemp(directory) == nullptr) std::abort();
        m_path = directory;
    }
    NoteDirectory(const NoteDirectory&) = delete;
    NoteDirectory& operator=(const NoteDirectory&) = delete;
    ~NoteDirectory() { rmdir(m_path.c_str()); }

    std::string note() const { return m_path + "/note"; }

 private:
    std::string m_path;
};

void check_note(const std::string& rows, bool is_fitting) {
    static const NoteDirectory s_directory;
    const std::string note = s_directory.note();
    struct stat st = {};
    {
        const UniqueFd fd = open_file(note, O_WRONLY | O_CREAT | O_TRUNC);
        if (!fd || !write_all(fd.get(), is_fitting ? seen_text(st, k_key, k_symbols, rows) : rows)) std::abort();
    }
    lazyck::rt::Entry found;
    if (recall({AT_FDCWD, note}, st, k_key, k_symbols, found) && found.functions.size() != k_symbols.size())
        std::abort();
    unlink(note.c_str());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) return 0;
    const std::string rest(reinterpret_cast<const char*>(data) + 1, size - 1);
    if (data[0] == 'n' || data[0] == 'N') {
        check_note(rest, data[0] == 'N');
    } else {
        const bool is_text = data[0] == 't';
        check_entry(data[0] == 'T' || is_text ? with_trailer(rest, is_text) : rest, is_text);
    }
    return 0;
}
