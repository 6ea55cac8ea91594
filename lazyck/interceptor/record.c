// What the shim writes: the record (grammar: lazyck/manifest.py), the object that carries it, depfile and log.
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lazyck_abi.h"
#include "shim.h"

static void append_number(Buffer* b, size_t value) {
    uint32_t n = (uint32_t)value;
    unsigned char bytes[4] = {(unsigned char)n, (unsigned char)(n >> 8), (unsigned char)(n >> 16),
                              (unsigned char)(n >> 24)};
    append(b, bytes, 4);
}

static void append_string(Buffer* b, const char* text) {
    append_number(b, strlen(text));
    append_text(b, text);
}

// Every shim path in `text` replaced by what it stands for; a path ends where a path separator or a list's does.
char* map_text(const List* pairs, const char* text) {
    Buffer b = {0};
    append(&b, "", 0);
    while (*text) {
        size_t taken = 0;
        for (size_t i = 0; i + 1 < pairs->n && !taken; i += 2) {
            size_t n = strlen(pairs->v[i]);
            if (strncmp(text, pairs->v[i], n) || !strchr("/:;,= \t\n'\"", text[n])) continue;  // also at the end
            append_text(&b, pairs->v[i + 1]);
            taken = n;
        }
        if (!taken) append(&b, text, taken = 1);
        text += taken;
    }
    return b.data;
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
    append_string(&b, verdict->output);
    // A record's prefix is the compiler alone; further words of CXX are options like any others.
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
    Buffer number = {0};
    append_number(&number, count);
    memcpy(b.data + count_at, number.data, 4);
    number.n = 0;
    append_number(&number, b.n);
    memcpy(b.data + 8, number.data, 4);
    return b;
}

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

// An object without code whose one section of content, not loaded by anything, is the record.
bool write_object(const char* path, const Buffer* record) {
    Elf64_Ehdr eh = {
        .e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
        .e_type = ET_REL,
#if defined(__x86_64__)
        .e_machine = EM_X86_64,
#elif defined(__aarch64__)
        .e_machine = EM_AARCH64,
#else
#error "lazyck supports x86-64 and aarch64"
#endif
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

// As gcc's -MQ does: blanks, the backslashes before them, `#` and `$`.
char* quote_for_make(const char* text) {
    Buffer b = {0};
    append(&b, "", 0);
    for (const char* p = text; *p; p++) {
        if (*p == ' ' || *p == '\t') {
            for (const char* q = p; q > text && q[-1] == '\\'; q--) append_text(&b, "\\");
            append_text(&b, "\\");
        } else if (*p == '#') {
            append_text(&b, "\\");
        } else if (*p == '$') {
            append_text(&b, "$");
        }
        append(&b, p, 1);
    }
    return b.data;
}

// A rule that names the source only: the headers that a blob reads are learnt when its library is linked.
bool write_depfile(const Command* cmd, const char* source) {
    Buffer b = {0};
    for (size_t i = 0; i < cmd->targets.n; i++) {
        if (i) append_text(&b, " ");
        append_text(&b, cmd->targets.v[i]);
    }
    if (!cmd->targets.n) append_text(&b, quote_for_make(cmd->output));
    append_text(&b, ":");
    if (!strchr(source, '\n')) {  // no rule can name such a file
        append_text(&b, " ");
        append_text(&b, quote_for_make(source));
    }
    append_text(&b, "\n");
    const char* path = cmd->depfile;
    if (!path) {
        const char *slash = strrchr(cmd->output, '/'), *dot = strrchr(cmd->output, '.');
        bool has_suffix = dot && (!slash || dot > slash + 1);
        path =
            join_text(copy_text(cmd->output, has_suffix ? (size_t)(dot - cmd->output) : strlen(cmd->output)), ".d", "");
    }
    struct stat st;
    if (!stat(path, &st) && !S_ISREG(st.st_mode)) {  // -MF /dev/null, /dev/stdout
        int fd = open(path, O_WRONLY | O_CLOEXEC);
        bool good = fd >= 0 && write(fd, b.data, b.n) == (ssize_t)b.n;
        if (fd >= 0) close(fd);
        return good;
    }
    return write_whole(path, &b);
}

static void append_field(Buffer* b, const char* text) {
    for (const char* p = text && *text ? text : "-"; *p; p++) {
        if (*p == '\t')
            append_text(b, "\\t");
        else if (*p == '\n')
            append_text(b, "\\n");
        else if (*p == '\\')
            append_text(b, "\\\\");
        else
            append(b, p, 1);
    }
}

// One write per line: lines of parallel jobs do not mix. A log that cannot be written never stops a build.
void write_log(const Conf* conf, const char* action, const char* reason, const char* output, const char* source,
               long microseconds) {
    Buffer b = {0};
    const char* fields[] = {action, reason, conf->tool, output, source};
    for (size_t i = 0; i < 5; i++) {
        append_field(&b, fields[i]);
        append_text(&b, "\t");
    }
    char number[32];
    snprintf(number, sizeof number, "%ld\n", microseconds);
    append_text(&b, number);
    int fd = open(conf->log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) return;
    ssize_t done = write(fd, b.data, b.n);
    (void)done;
    close(fd);
}
