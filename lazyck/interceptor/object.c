// The deferred object, and how the shim writes files.
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lazyck_abi.h"
#include "shim.h"

// Whole or not at all: a killed build must not leave half an object that looks newer than its source.
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
    // Renaming over an older file makes ext4 write the new one out at once: milliseconds. A build that is killed here
    // has no object, which is as good as the old one.
    if (good) unlink(path);
    if (good && rename(temp, path)) {
        good = false;
        why = errno;
    }
    if (!good) unlink(temp);
    errno = why;
    return good;
}

static const char k_names[] = "\0.note.GNU-stack\0" LAZYCK_RECORD_SECTION "\0.symtab\0.strtab\0.shstrtab";

static Elf64_Word name_at(const char* name) {
    const char* p = k_names + 1;
    while (strcmp(p, name)) p += strlen(p) + 1;
    return (Elf64_Word)(p - k_names);
}

static Elf64_Shdr section(const char* name, Elf64_Word type, size_t offset, size_t size, size_t align) {
    return (Elf64_Shdr){
        .sh_name = name_at(name), .sh_type = type, .sh_offset = offset, .sh_size = size, .sh_addralign = align};
}

// The ELF number of the machine that a target triple (`aarch64-linux-gnu`) names first, or 0 for one without stubs. A
// compiler's whole name (`aarch64-linux-gnu-g++`) may stand for its triple.
uint16_t machine_of(const char* triple) {
    static const struct {
        const char* name;
        uint16_t machine;
    } k_machines[] = {{"x86_64", EM_X86_64}, {"amd64", EM_X86_64}, {"aarch64", EM_AARCH64}, {"arm64", EM_AARCH64}};
    size_t n = strcspn(triple, "-");
    if (triple[n] && !strstr(triple, "linux")) return 0;
    if (strstr(triple, "x32") || strstr(triple, "ilp32")) return 0;  // 64-bit machines with 32-bit pointers
    for (size_t i = 0; i < sizeof k_machines / sizeof *k_machines; i++)
        if (strlen(k_machines[i].name) == n && !strncmp(triple, k_machines[i].name, n)) return k_machines[i].machine;
    return 0;
}

// An object without code whose one section of content, not loaded by anything, is the record.
bool write_object(const char* path, const Buffer* record, uint16_t machine) {
    Elf64_Ehdr eh = {
        .e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
        .e_type = ET_REL,
        .e_machine = machine,
        .e_version = EV_CURRENT,
        .e_ehsize = sizeof(Elf64_Ehdr),
        .e_shentsize = sizeof(Elf64_Shdr),
        .e_shnum = 6,
        .e_shstrndx = 5,
    };
    memcpy(eh.e_ident + 9, LAZYCK_OBJECT_MARK, sizeof LAZYCK_OBJECT_MARK - 1);
    static const Elf64_Sym k_null_symbol;
    size_t record_at = sizeof eh, symbols_at = (record_at + record->n + 7) & ~(size_t)7;
    size_t strings_at = symbols_at + sizeof k_null_symbol, names_at = strings_at + 1;
    size_t sections_at = (names_at + sizeof k_names + 7) & ~(size_t)7;
    eh.e_shoff = sections_at;
    Elf64_Shdr sections[6] = {
        {0},
        section(".note.GNU-stack", SHT_PROGBITS, record_at, 0, 1),
        section(LAZYCK_RECORD_SECTION, SHT_PROGBITS, record_at, record->n, 1),
        section(".symtab", SHT_SYMTAB, symbols_at, sizeof k_null_symbol, 8),
        section(".strtab", SHT_STRTAB, strings_at, 1, 1),
        section(".shstrtab", SHT_STRTAB, names_at, sizeof k_names, 1),
    };
    sections[3].sh_link = 4;
    sections[3].sh_info = 1;
    sections[3].sh_entsize = sizeof k_null_symbol;
    static const char k_zeros[8];
    Buffer b = {0};
    append(&b, &eh, sizeof eh);
    append(&b, record->data, record->n);
    append(&b, k_zeros, symbols_at - b.n);
    append(&b, &k_null_symbol, sizeof k_null_symbol);
    append(&b, k_zeros, 1);
    append(&b, k_names, sizeof k_names);
    append(&b, k_zeros, sections_at - b.n);
    append(&b, sections, sizeof sections);
    return write_whole(path, &b);
}
