// Recognizes deferred objects, also in archives: by the mark in their ELF identification or, if
// `ld -r`, `objcopy` or `strip` wrote a new header, by the name of the record's section.
#define _GNU_SOURCE  // memmem
#include <ar.h>
#include <elf.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shim.h"

typedef struct {
    const unsigned char* data;
    size_t size;
} View;

static bool open_view(const char* path, View* view) {
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return false;
    bool good = !fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_size >= 16;
    if (good) {
        void* p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        good = p != MAP_FAILED;
        *view = (View){p, (size_t)st.st_size};
    }
    close(fd);
    return good;
}

static bool section_at(View v, const Elf64_Ehdr* eh, uint64_t index, Elf64_Shdr* out) {
    if (eh->e_shoff > v.size || index > (v.size - eh->e_shoff) / sizeof *out) return false;
    uint64_t at = eh->e_shoff + index * sizeof *out;
    if (v.size - at < sizeof *out) return false;
    memcpy(out, v.data + at, sizeof *out);
    return true;
}

static bool is_deferred_object(View v) {
    Elf64_Ehdr eh;
    Elf64_Shdr names;
    static const char k_mark[] = LAZYCK_OBJECT_MARK, k_section[] = LAZYCK_RECORD_SECTION;
    if (v.size < EI_NIDENT || memcmp(v.data, ELFMAG, SELFMAG)) return false;
    if (!memcmp(v.data + 9, k_mark, sizeof k_mark - 1)) return true;
    if (v.size < sizeof eh || v.data[EI_CLASS] != ELFCLASS64) return false;
    memcpy(&eh, v.data, sizeof eh);
    if (eh.e_type != ET_REL || !eh.e_shoff || eh.e_shentsize != sizeof names) return false;
    uint64_t index = eh.e_shstrndx;
    if (index == SHN_XINDEX) {
        if (!section_at(v, &eh, 0, &names)) return false;
        index = names.sh_link;
    }
    if (!section_at(v, &eh, index, &names)) return false;
    if (names.sh_offset > v.size || names.sh_size > v.size - names.sh_offset) return false;
    return names.sh_size && memmem(v.data + names.sh_offset, names.sh_size, k_section, sizeof k_section);
}

static bool is_deferred_file(const char* path, bool is_member);

static size_t number_in(const char* field, size_t size) { return strtoul(copy_text(field, size), NULL, 10); }

// Checks a member of a thin archive. Its name is in the table of long names at `offset`, and is
// relative to the archive.
static bool is_deferred_member(const char* archive, View names, size_t offset) {
    if (offset >= names.size) return false;
    const char* name = (const char*)names.data + offset;
    const char* end = memchr(name, '\n', names.size - offset);
    if (!end || end == name) return false;
    char* text = copy_text(name, (size_t)(end - name) - (end[-1] == '/'));
    if (*text != '/' && strchr(archive, '/')) text = join_text(directory_of(archive), "/", text);
    return is_deferred_file(text, true);
}

static bool is_deferred_archive(const char* path, View v, bool thin) {
    View names = {NULL, 0};
    for (size_t at = SARMAG; at + sizeof(struct ar_hdr) <= v.size;) {
        struct ar_hdr header;
        memcpy(&header, v.data + at, sizeof header);
        if (memcmp(header.ar_fmag, ARFMAG, 2)) return false;
        size_t size = number_in(header.ar_size, sizeof header.ar_size);
        at += sizeof header;
        bool is_index = header.ar_name[0] == '/' && (header.ar_name[1] < '0' || header.ar_name[1] > '9');
        if (thin && !is_index) {
            size_t offset = number_in(header.ar_name + 1, sizeof header.ar_name - 1);
            if (header.ar_name[0] == '/' && is_deferred_member(path, names, offset)) return true;
            continue;  // no data follows
        }
        if (size > v.size - at) return false;
        if (header.ar_name[0] == '/' && header.ar_name[1] == '/') names = (View){v.data + at, size};
        // Members are at even offsets only, so the view may be unaligned: all reads are copies.
        if (!is_index && is_deferred_object((View){v.data + at, size})) return true;
        at += size + (size & 1);
    }
    return false;
}

static bool is_deferred_file(const char* path, bool is_member) {
    View v;
    if (!open_view(path, &v)) return false;
    bool is_thin = !memcmp(v.data, "!<thin>\n", SARMAG), is_archive = is_thin || !memcmp(v.data, ARMAG, SARMAG);
    bool found = is_archive && !is_member ? is_deferred_archive(path, v, is_thin) : is_deferred_object(v);
    munmap((void*)v.data, v.size);
    return found;
}

// Looks up `-lname`. The linker takes the first directory that has either file, and prefers the
// shared library there.
static bool is_deferred_library(const Command* cmd, const char* name) {
    for (size_t i = 0; i < cmd->library_dirs.n; i++) {
        const char* dir = cmd->library_dirs.v[i];
        if (name[0] == ':') {
            if (is_deferred_file(join_text(dir, "/", name + 1), false)) return true;
            continue;
        }
        char* stem = join_text(dir, "/lib", name);
        if (!cmd->links_statically && !access(join_text(stem, ".so", ""), F_OK)) return false;
        char* archive = join_text(stem, ".a", "");
        if (!access(archive, F_OK)) return is_deferred_file(archive, false);
    }
    return false;
}

bool has_deferred_input(Command* cmd) {
    for (size_t i = 0; i < cmd->inputs.n; i++)
        if (is_deferred_file(cmd->inputs.v[i], false)) return true;
    for (size_t i = 0; i < cmd->linker_words.n; i++)
        if (cmd->linker_words.v[i][0] != '-' && is_deferred_file(cmd->linker_words.v[i], false)) return true;
    for (char** dir = split(getenv("LIBRARY_PATH"), ":"); *dir; dir++)
        if (**dir) push(&cmd->library_dirs, *dir);
    for (size_t i = 0; i < cmd->libraries.n; i++)
        if (is_deferred_library(cmd, cmd->libraries.v[i])) return true;
    return false;
}

// Returns how many inputs are objects of blobs that the real compiler compiled in this build: the
// log has a line for each, which ends in numbers of blobs and microseconds.
size_t count_passed_inputs(const Conf* conf, const Command* cmd, const char* cwd) {
    char* data;
    size_t size, found = 0;
    if (!read_file(conf->log, &data, &size)) return 0;
    List objects = {0};
    for (const char *line = data, *end; (end = memchr(line, '\n', (size_t)(data + size - line))); line = end + 1) {
        // Most lines are of other calls: only those of blobs are taken apart.
        const char* numbers = end;
        for (int tabs = 0; numbers > line && tabs < 2;) tabs += *--numbers == '\t';
        if (strncmp(line, LAZYCK_DID_PASS "\t", sizeof LAZYCK_DID_PASS) || !strncmp(numbers, "\t0\t", 3)) continue;
        char** field = split(copy_text(line, (size_t)(numbers - line)), "\t");
        if (field[0] && field[1] && field[2] && field[3]) push(&objects, field[3]);
    }
    for (size_t i = 0; i < cmd->inputs.n; i++) found += holds(&objects, absolute_path(cwd, cmd->inputs.v[i]));
    return found;
}
