// Writes the deferred object, and files in general.
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "shim.h"

// Writes a file whole or not at all: a killed build must not leave half an object that looks newer
// than its source.
bool write_whole(const char* path, const Buffer* content) {
    char name[64];
    snprintf(name, sizeof name, "/.lazyck-%ld.tmp", (long)getpid());
    const char* slash = strrchr(path, '/');
    char* dir = copy_text(path, slash ? (size_t)(slash - path) : 0);
    char* temp = slash ? join_text(dir, name, "") : copy_text(name + 1, strlen(name) - 1);
    int fd = open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0) return false;
    bool good = true;
    for (size_t at = 0; good && at < content->n;) {
        ssize_t n = write(fd, content->data + at, content->n - at);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0)
            good = false;
        else
            at += (size_t)n;
    }
    int why = errno;
    if (close(fd) && good) {
        good = false;
        why = errno;
    }
    // Renaming over an older file would make ext4 write the new one to the disk at once, which
    // takes milliseconds. If a build is killed here, there is no object, which is as good as the
    // old one.
    if (good) unlink(path);
    if (good && rename(temp, path)) {
        good = false;
        why = errno;
    }
    if (!good) unlink(temp);
    errno = why;
    return good;
}

static const char k_names[] = "\0.note.GNU-stack\0" LAZYCK_RECORD_SECTION "\0" LAZYCK_DEFERRED_SECTION
                              "\0.rela" LAZYCK_DEFERRED_SECTION "\0.symtab\0.strtab\0.shstrtab";
static const char k_strings[] = "\0" LAZYCK_DEFERRED_SYMBOL;

#ifndef SHF_GNU_RETAIN  // missing in glibc before 2.33
#define SHF_GNU_RETAIN (1 << 21)
#endif

static Elf64_Word name_at(const char* name) {
    const char* p = k_names + 1;
    while (strcmp(p, name)) p += strlen(p) + 1;
    return (Elf64_Word)(p - k_names);
}

static Elf64_Shdr section(const char* name, Elf64_Word type, size_t offset, size_t size, size_t align) {
    return (Elf64_Shdr){
        .sh_name = name_at(name), .sh_type = type, .sh_offset = offset, .sh_size = size, .sh_addralign = align};
}

// Returns the ELF number of the machine that a target triple (`aarch64-linux-gnu`) begins with, or
// 0 if there are no stubs for it. A compiler's whole name (`aarch64-linux-gnu-g++`) may be given
// instead of its triple.
uint16_t machine_of(const char* triple) {
#define LAZYCK_ROW(number, name, other) {number, {name, other}},
    static const struct {
        uint16_t machine;
        const char* names[2];
    } k_machines[] = {LAZYCK_MACHINES(LAZYCK_ROW)};
    size_t n = strcspn(triple, "-");
    if (triple[n] && !strstr(triple, "linux")) return 0;
    if (strstr(triple, "x32") || strstr(triple, "ilp32")) return 0;  // 64-bit machines with 32-bit pointers
    for (size_t i = 0; i < sizeof k_machines / sizeof *k_machines; i++)
        for (size_t j = 0; j < 2; j++) {
            const char* name = k_machines[i].names[j];
            if (strlen(name) == n && !strncmp(triple, name, n)) return k_machines[i].machine;
        }
    return 0;
}

// Appends zeros up to a multiple of 8. Returns the new size.
static size_t align(Buffer* b) {
    static const char k_zeros[8];
    append(b, k_zeros, -b->n & 7);
    return b->n;
}

// Writes an object without code. It contains the record, which is never loaded. It also contains a
// distance to a hidden symbol that nothing defines: this makes any link without lazyck fail, with a
// name that points to the remedy. An empty object would silently give a broken library. The symbol
// is hidden because shared libraries may leave other symbols undefined. It is a distance because
// mold leaves even hidden symbols undefined if the loader could fill them in. Its section must not
// be left out as unused.
bool write_object(const char* path, const Buffer* record, uint16_t machine) {
    enum { k_note = 1, k_record, k_deferred, k_relocations, k_symbols, k_symbol_names, k_section_names, k_sections };
    Elf64_Ehdr eh = {
        .e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT, ELFOSABI_GNU},
        .e_type = ET_REL,
        .e_machine = machine,
        .e_version = EV_CURRENT,
        .e_ehsize = sizeof(Elf64_Ehdr),
        .e_shentsize = sizeof(Elf64_Shdr),
        .e_shnum = k_sections,
        .e_shstrndx = k_section_names,
    };
    memcpy(eh.e_ident + 9, LAZYCK_OBJECT_MARK, sizeof LAZYCK_OBJECT_MARK - 1);
    const Elf64_Sym symbols[2] = {
        {0}, {.st_name = 1, .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_NOTYPE), .st_other = STV_HIDDEN}};
    const Elf64_Rela relocation = {
        .r_info = ELF64_R_INFO(1, machine == EM_AARCH64 ? R_AARCH64_PREL32 : R_X86_64_PC32),
    };
    Elf64_Shdr sections[k_sections] = {{0}};
    Buffer b = {0};
    append(&b, &eh, sizeof eh);
    sections[k_note] = section(".note.GNU-stack", SHT_PROGBITS, b.n, 0, 1);
    sections[k_record] = section(LAZYCK_RECORD_SECTION, SHT_PROGBITS, b.n, record->n, 1);
    append(&b, record->data, record->n);
    sections[k_deferred] = section(LAZYCK_DEFERRED_SECTION, SHT_PROGBITS, align(&b), 8, 8);
    sections[k_deferred].sh_flags = SHF_ALLOC | SHF_WRITE | SHF_GNU_RETAIN;
    append(&b, &(uint64_t){0}, 8);
    sections[k_relocations] = section(".rela" LAZYCK_DEFERRED_SECTION, SHT_RELA, b.n, sizeof relocation, 8);
    sections[k_relocations].sh_flags = SHF_INFO_LINK;
    sections[k_relocations].sh_entsize = sizeof relocation;
    sections[k_relocations].sh_link = k_symbols;
    sections[k_relocations].sh_info = k_deferred;
    append(&b, &relocation, sizeof relocation);
    sections[k_symbols] = section(".symtab", SHT_SYMTAB, b.n, sizeof symbols, 8);
    sections[k_symbols].sh_entsize = sizeof *symbols;
    sections[k_symbols].sh_link = k_symbol_names;
    sections[k_symbols].sh_info = 1;  // the first symbol that is not local
    append(&b, symbols, sizeof symbols);
    sections[k_symbol_names] = section(".strtab", SHT_STRTAB, b.n, sizeof k_strings, 1);
    append(&b, k_strings, sizeof k_strings);
    sections[k_section_names] = section(".shstrtab", SHT_STRTAB, b.n, sizeof k_names, 1);
    append(&b, k_names, sizeof k_names);
    eh.e_shoff = align(&b);
    append(&b, sections, sizeof sections);
    memcpy(b.data, &eh, sizeof eh);
    return write_whole(path, &b);
}
