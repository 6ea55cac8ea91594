// Writes what a call leaves: its record (lazyck/formats/record.py has the grammar), the deferred
// object with the record, the list of compiles, and the log.
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shim.h"

static void put_number(char* at, size_t value) {
    for (size_t i = 0; i < 4; i++) at[i] = (char)(value >> 8 * i);
}

static void append_number(Buffer* b, size_t value) {
    char bytes[4];
    put_number(bytes, value);
    append(b, bytes, 4);
}

static void append_string(Buffer* b, const char* text) {
    append_number(b, strlen(text));
    append_text(b, text);
}

// Returns the size of `path` if `text` begins with it and the path ends there, which means at a
// separator of paths or lists; else 0.
static size_t path_size(const char* text, const char* path) {
    size_t n = 0;
    while (path[n] && path[n] == text[n]) n++;
    return !path[n] && strchr("/:;,= \t\n'\"", text[n]) ? n : 0;  // also at the end of the text
}

// Replaces every shim path in `text`, which all begin with a slash, by the path that it stands for.
char* map_text(const List* pairs, const char* text) {
    Buffer b = {0};
    while (*text) {
        size_t taken = strcspn(text, "/");
        if (taken) {
            append(&b, text, taken);
        } else {
            for (size_t i = 0; i + 1 < pairs->n && !taken; i += 2)
                if ((taken = path_size(text, pairs->v[i]))) append_text(&b, pairs->v[i + 1]);
            if (!taken) append(&b, text, taken = 1);
        }
        text += taken;
    }
    return text_of(&b);
}

// Returns the CRC-32 of zlib, which Python has, too.
static unsigned crc32_of(const char* data, size_t size) {
    unsigned table[256], crc = ~0u;
    for (unsigned i = 0; i < 256; i++) {
        table[i] = i;
        for (int bit = 0; bit < 8; bit++) table[i] = table[i] >> 1 ^ (table[i] & 1 ? 0xedb88320u : 0);
    }
    for (size_t i = 0; i < size; i++) crc = crc >> 8 ^ table[(crc ^ (unsigned char)data[i]) & 255];
    return ~crc;
}

// Appends what tells whether the file at `path` is the same later: its size and CRC. The text is
// empty for what can be read once only.
static void append_content(Buffer* b, const char* path) {
    char text[40] = "", *data;
    struct stat st;
    size_t size;
    if (!stat(path, &st) && S_ISREG(st.st_mode) && read_file(path, &data, &size))
        snprintf(text, sizeof text, "%zu:%08x", size, crc32_of(data, size));
    append_string(b, text);
}

Buffer make_record(const Conf* conf, const Command* cmd, const Verdict* verdict, const char* cwd) {
    bool is_link = verdict->action == k_link;
    const List* prefix = is_link ? &conf->real : &conf->compiler;
    Buffer b = {0};
    append_text(&b, LAZYCK_RECORD_MAGIC);
    append_number(&b, LAZYCK_RECORD_VERSION);
    append_number(&b, 0);
    append_text(&b, is_link ? "LINK" : "COMP");
    append_string(&b, conf->tool);
    append_string(&b, verdict->toolchain);
    append_string(&b, cwd);
    append_string(&b, is_link ? "" : verdict->source);
    append_string(&b, verdict->output ? verdict->output : "");
    append_content(&b, is_link ? "" : verdict->source);
    // The prefix of a record is the compiler alone. Further words of CXX are options like any
    // others.
    size_t words = is_link ? prefix->n : 1;
    append_number(&b, words);
    append_number(&b, prefix->n + cmd->args.n);
    for (size_t i = 0; i < prefix->n; i++) append_string(&b, prefix->v[i]);
    for (size_t i = 0; i < cmd->args.n; i++) append_string(&b, map_text(&conf->path_map, cmd->args.v[i]));
    size_t count_at = b.n, count = 0;
    append_number(&b, 0);
    for (size_t i = 0; i < conf->flag_env.n; i++) {
        const char* value = getenv(conf->flag_env.v[i]);
        if (!value) continue;
        append_string(&b, conf->flag_env.v[i]);
        append_string(&b, map_text(&conf->path_map, value));
        count++;
    }
    // Compilers look up some programs there: assemblers, nvcc its host compiler.
    if (getenv("PATH")) {
        append_string(&b, "PATH");
        append_string(&b, clean_path(conf));
        count++;
    }
    put_number(b.data + count_at, count);
    put_number(b.data + 8, b.n);
    return b;
}

static void append_field(Buffer* b, const char* text) {
    static const char k_special[] = "\t\n\\", k_letters[] = "tn\\";
    for (const char* p = text && *text ? text : "-"; *p; p++) {
        const char* special = strchr(k_special, *p);
        if (special) append_text(b, "\\");
        append(b, special ? &k_letters[special - k_special] : p, 1);
    }
}

// Appends in one write, so that parallel jobs do not mix their lines. A failure to write never
// stops a build.
static void add_to_file(const char* path, const Buffer* b) {
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) return;
    ssize_t done = write(fd, b->data, b->n);
    (void)done;
    close(fd);
}

void list_compiles(const Conf* conf, const Command* cmd, const Verdict* verdict, const char* cwd) {
    Buffer all = {0};
    for (size_t i = 0; i < cmd->sources.n; i++) {
        Verdict one = *verdict;
        one.source = cmd->sources.v[i];
        one.output = cmd->compiles && cmd->output && cmd->sources.n == 1 ? absolute_path(cwd, cmd->output) : NULL;
        Buffer record = make_record(conf, cmd, &one, cwd);
        append(&all, record.data, record.n);
    }
    if (all.n) add_to_file(conf->compiles, &all);
}

void write_log(const Conf* conf, const char* action, const Verdict* verdict, long microseconds) {
    Buffer b = {0};
    const char* fields[] = {action, verdict->reason, conf->tool, verdict->output, verdict->source};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        append_field(&b, fields[i]);
        append_text(&b, "\t");
    }
    char numbers[64];
    snprintf(numbers, sizeof numbers, "%zu\t%ld\n", verdict->blobs, microseconds);
    append_text(&b, numbers);
    add_to_file(conf->log, &b);
}

// Writes a file whole or not at all: a killed build must not leave half an object that looks newer
// than its source.
bool write_whole(const char* path, const Buffer* content) {
    char name[64];
    snprintf(name, sizeof name, "/.lazyck-%ld.tmp", (long)getpid());
    char* temp = join_text(directory_of(path), name + !strchr(path, '/'), "");
    int fd = open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666), why = 0;
    if (fd < 0) return false;
    for (size_t at = 0; !why && at < content->n;) {
        ssize_t n = write(fd, content->data + at, content->n - at);
        if (n >= 0)
            at += (size_t)n;
        else if (errno != EINTR)
            why = errno;
    }
    if (close(fd) && !why) why = errno;
    // Renaming over an older file would make ext4 write the new one to the disk at once, which
    // takes milliseconds. If a build is killed here, there is no object, and the next build makes
    // it.
    if (!why) unlink(path);
    if (!why && rename(temp, path)) why = errno;
    if (why) unlink(temp);
    errno = why;
    return !why;
}

#ifndef SHF_GNU_RETAIN  // missing in glibc before 2.33
#define SHF_GNU_RETAIN (1 << 21)
#endif

// Returns the machine that a target triple (`aarch64-linux-gnu`) begins with, or NULL if it has no
// stubs. A compiler's whole name (`aarch64-linux-gnu-g++`) may be given
// instead of its triple.
const Machine* machine_of(const char* triple) {
#define LAZYCK_ROW(number, name, elf_flags, other, distance) {number, {name, other}, elf_flags, distance},
    static const Machine k_machines[] = {LAZYCK_MACHINES(LAZYCK_ROW)};
    size_t n = strcspn(triple, "-");
    if (triple[n] && !strstr(triple, "linux")) return NULL;
    if (strstr(triple, "x32") || strstr(triple, "ilp32")) return NULL;  // 64-bit machines with 32-bit pointers
    for (size_t i = 0; i < sizeof k_machines / sizeof *k_machines; i++)
        for (size_t j = 0; j < 2; j++) {
            const char* name = k_machines[i].names[j];
            if (strlen(name) == n && !strncmp(triple, name, n)) return &k_machines[i];
        }
    return NULL;
}

typedef struct {
    Buffer file, names;  // `names` has those of the sections
    Elf64_Shdr headers[8];
    Elf64_Ehdr header;
} Object;

// Appends zeros up to a multiple of 8. Returns the new size.
static size_t align_file(Object* o) {
    static const char k_zeros[8];
    append(&o->file, k_zeros, -o->file.n & 7);
    return o->file.n;
}

// Appends a section to the file. Without `data`, its contents are the names of all sections.
static Elf64_Shdr* add_section(Object* o, const char* name, Elf64_Word type, const void* data, size_t size, int align) {
    Elf64_Shdr* added = &o->headers[o->header.e_shnum++];
    *added =
        (Elf64_Shdr){(Elf64_Word)o->names.n, type, .sh_offset = align_file(o), .sh_size = size, .sh_addralign = align};
    append(&o->names, name, strlen(name) + 1);
    append(&o->file, data ? data : o->names.data, size);
    return added;
}

// Writes an object without code. It contains the record, which is never loaded. It also contains a
// distance to a hidden symbol that nothing defines: this makes any link without lazyck fail, with a
// name that points to the remedy. An empty object would silently give a broken library. The symbol
// is hidden because shared libraries may leave other symbols undefined. It is a distance because
// mold leaves even hidden symbols undefined if the loader could fill them in. Its section must not
// be left out as unused.
bool write_object(const char* path, const Buffer* record, const Machine* machine) {
    enum { k_deferred = 3, k_symbols = 5, k_symbol_names, k_section_names };
    static const char k_strings[] = "\0" LAZYCK_DEFERRED_SYMBOL, k_names_name[] = ".shstrtab";
    Object o = {.header = {
                    .e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT, ELFOSABI_GNU},
                    .e_type = ET_REL,
                    .e_machine = machine->number,
                    .e_version = EV_CURRENT,
                    .e_flags = machine->elf_flags,
                    .e_ehsize = sizeof(Elf64_Ehdr),
                    .e_shentsize = sizeof(Elf64_Shdr),
                    .e_shnum = 1,  // sections begin with an empty one
                    .e_shstrndx = k_section_names,
                }};
    memcpy(o.header.e_ident + 9, LAZYCK_OBJECT_MARK, sizeof LAZYCK_OBJECT_MARK - 1);
    append(&o.file, &o.header, sizeof o.header);
    append(&o.names, "", 1);
    const Elf64_Sym symbols[2] = {
        {0}, {.st_name = 1, .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_NOTYPE), .st_other = STV_HIDDEN}};
    const Elf64_Rela relocation = {.r_info = ELF64_R_INFO(1, machine->distance)};
    add_section(&o, ".note.GNU-stack", SHT_PROGBITS, "", 0, 1);
    add_section(&o, LAZYCK_RECORD_SECTION, SHT_PROGBITS, record->data, record->n, 1);
    Elf64_Shdr* added = add_section(&o, LAZYCK_DEFERRED_SECTION, SHT_PROGBITS, &(uint64_t){0}, 8, 8);
    added->sh_flags = SHF_ALLOC | SHF_WRITE | SHF_GNU_RETAIN;
    added = add_section(&o, ".rela" LAZYCK_DEFERRED_SECTION, SHT_RELA, &relocation, sizeof relocation, 8);
    added->sh_flags = SHF_INFO_LINK;
    added->sh_entsize = sizeof relocation;
    added->sh_link = k_symbols;
    added->sh_info = k_deferred;
    added = add_section(&o, ".symtab", SHT_SYMTAB, symbols, sizeof symbols, 8);
    added->sh_entsize = sizeof *symbols;
    added->sh_link = k_symbol_names;
    added->sh_info = 1;  // the first symbol that is not local
    add_section(&o, ".strtab", SHT_STRTAB, k_strings, sizeof k_strings, 1);
    add_section(&o, k_names_name, SHT_STRTAB, NULL, o.names.n + sizeof k_names_name, 1);
    o.header.e_shoff = align_file(&o);
    append(&o.file, o.headers, o.header.e_shnum * sizeof *o.headers);
    memcpy(o.file.data, &o.header, sizeof o.header);
    return write_whole(path, &o.file);
}
