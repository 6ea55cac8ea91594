// Finds the headers that a blob reads, for its depfile. It looks them up as the compiler would, in
// the command's own directories but not in those that are built into the compiler. The result for a
// list of first headers is kept in the tmp dir, because hundreds of blobs begin with the same
// headers.
//
//   kept   := magic key_size:u64 key rows_size:u64 row*        row := stamp path NUL
//   key    := working directory, directories, first headers, each with its kind
//           | working directory, the question to the compiler, its variables, the source's
//             directory and directives
#define _GNU_SOURCE  // memmem
#include <errno.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "shim.h"

static const char k_magic[8] = "LZHDRS2";

// Identifies the version of a header that was read.
typedef struct {
    uint64_t device, inode, size, seconds, nanoseconds, is_system;
} Stamp;

typedef struct {
    char* path;
    Stamp stamp;
    size_t from;  // index after the directory it was found in: where #include_next continues
} Header;

typedef struct {
    const char* key;
    size_t value;
} Slot;

typedef struct {
    List dirs;           // each after a letter: q(uoted only), u(ser) or s(ystem)
    size_t quoted_only;  // the first `quoted_only` directories are searched for "x" only
    Buffer found;        // the headers
    void* slots;         // a tree of `Slot`, see tsearch(3)
    bool lacks_names;    // a file has an include whose name is a macro
} Search;

static size_t count(const Search* s) { return s->found.n / sizeof(Header); }

static Header* header_at(const Search* s, size_t i) { return (Header*)(void*)s->found.data + i; }

static int compare_slots(const void* a, const void* b) { return strcmp(((const Slot*)a)->key, ((const Slot*)b)->key); }

static size_t* slot_of(Search* s, const char* key, bool* is_new) {
    Slot* fresh = allocate(sizeof *fresh);
    *fresh = (Slot){key, 0};
    Slot** found = tsearch(fresh, &s->slots, compare_slots);
    if (!found) out_of_memory();
    *is_new = *found == fresh;
    return &(*found)->value;
}

static bool stamp_of(const char* path, Stamp* out) {
    struct stat st;
    if (stat(path, &st) || !S_ISREG(st.st_mode)) return false;
    *out = (Stamp){
        st.st_dev, st.st_ino, (uint64_t)st.st_size, (uint64_t)st.st_mtim.tv_sec, (uint64_t)st.st_mtim.tv_nsec, 0};
    return true;
}

static const char* without_dots(const char* path) {
    while (path[0] == '.' && path[1] == '/')
        for (path++; *path == '/'; path++) {
        }
    return path;
}

// Joins a path as compilers write it in a depfile: without a leading `./`.
static char* join_path(const char* dir, const char* name) {
    dir = without_dots(dir);
    name = without_dots(name);
    if (!*dir || !strcmp(dir, ".")) return copy_text(name, strlen(name));
    return join_text(dir, dir[strlen(dir) - 1] == '/' ? "" : "/", name);
}

static void add_directories(Search* s, const Command* cmd, char role, const char* kind) {
    for (size_t i = 0; i < cmd->includes.n; i++)
        if (cmd->includes.v[i][0] == role) push(&s->dirs, join_text(kind, cmd->includes.v[i] + 1, ""));
}

// Adds the directories in a variable. An empty item is the working directory.
static void add_variable(Search* s, const char* name, const char* kind) {
    for (char** dir = split(getenv(name), ":"); *dir; dir++) push(&s->dirs, join_text(kind, *dir, ""));
}

static Search begin_search(const Command* cmd, bool is_c) {
    Search s = {0};
    add_directories(&s, cmd, LAZYCK_ROLE_INCLUDE_QUOTED, "q");
    s.quoted_only = s.dirs.n;
    add_directories(&s, cmd, LAZYCK_ROLE_INCLUDE, "u");
    add_variable(&s, "CPATH", "u");
    add_directories(&s, cmd, LAZYCK_ROLE_INCLUDE_SYSTEM, "s");
    add_variable(&s, is_c ? "C_INCLUDE_PATH" : "CPLUS_INCLUDE_PATH", "s");
    add_directories(&s, cmd, LAZYCK_ROLE_INCLUDE_AFTER, "s");
    return s;
}

// Adds the file if it is new. A file that was known as a system header is added again as a user
// header, and is scanned again as such. The same file below another directory counts as another
// file, because its quoted includes may lead elsewhere.
static bool add_header(Search* s, char* path, bool is_system, size_t from) {
    Stamp stamp, directory = {0};
    char key[2 * 20 * 2 + 8];
    if (!stamp_of(path, &stamp)) return false;
    struct stat st;
    const char* dir = directory_of(path);
    if (!stat(*dir ? dir : ".", &st)) directory = (Stamp){.device = st.st_dev, .inode = st.st_ino};
    snprintf(key, sizeof key, "%llx:%llx:%llx:%llx", (unsigned long long)stamp.device, (unsigned long long)stamp.inode,
             (unsigned long long)directory.device, (unsigned long long)directory.inode);
    bool is_new;
    size_t* slot = slot_of(s, copy_text(key, strlen(key)), &is_new);
    if (!is_new && (is_system || !header_at(s, *slot)->stamp.is_system)) return true;
    if (!is_new) header_at(s, *slot)->path = NULL;  // added again at the end, as a user header
    stamp.is_system = is_system;
    *slot = count(s);
    append(&s->found, &(Header){path, stamp, from}, sizeof(Header));
    return true;
}

static void search_directories(Search* s, const char* name, size_t from) {
    for (size_t i = from; i < s->dirs.n; i++)
        if (add_header(s, join_path(s->dirs.v[i] + 1, name), s->dirs.v[i][0] == 's', i + 1)) return;
}

// Looks up an include. `here` is the directory of the file that has the line, and `next` is the
// index at which its #include_next continues.
static void resolve(Search* s, const Include* inc, const char* here, bool is_system, size_t next) {
    if (inc->name[0] == '/') {
        add_header(s, copy_text(inc->name, strlen(inc->name)), is_system, 0);
        return;
    }
    if (inc->next) {
        if (!next && inc->quoted) add_header(s, join_path(here, inc->name), is_system, 0);
        search_directories(s, inc->name, next);
        return;
    }
    if (inc->quoted && add_header(s, join_path(here, inc->name), is_system, 0)) return;
    bool is_new;
    slot_of(s, join_text(inc->quoted ? "\"" : "<", inc->name, ""), &is_new);
    if (is_new) search_directories(s, inc->name, inc->quoted ? 0 : s->quoted_only);
}

static void scan_file(Search* s, const char* path, bool is_system, size_t next) {
    char* data;
    size_t size;
    Scanner scanner;
    Include include;
    if (!read_file(path, &data, &size)) return;
    const char* here = directory_of(path);
    scan_text(&scanner, data, size);
    while (next_include(&scanner, &include)) {
        if (include.name)
            resolve(s, &include, here, is_system, next);
        else
            s->lacks_names = true;
    }
    free(data);  // freed here because a blob may have hundreds of headers
}

static void append_whole(Buffer* b, const char* text) { append(b, text, strlen(text) + 1); }

static Buffer key_of(const Search* s, const char* cwd) {
    Buffer key = {0};
    append_whole(&key, cwd);
    for (size_t i = 0; i < s->dirs.n; i++) append_whole(&key, s->dirs.v[i]);
    for (size_t i = 0; i < count(s); i++) {
        const Header* h = header_at(s, i);
        if (!h->path) continue;
        append_text(&key, h->stamp.is_system ? "S" : "U");
        append(&key, &h->from, sizeof h->from);
        append_whole(&key, h->path);
    }
    return key;
}

// Returns what the kept file of a search contains.
static Buffer render(const Search* s, const Buffer* key) {
    Buffer b = {0}, rows = {0};
    for (size_t i = 0; i < count(s); i++) {
        const Header* h = header_at(s, i);
        if (!h->path) continue;
        append(&rows, &h->stamp, sizeof h->stamp);
        append_whole(&rows, h->path);
    }
    append(&b, k_magic, sizeof k_magic);
    append(&b, &key->n, sizeof key->n);
    append(&b, key->data, key->n);
    append(&b, &rows.n, sizeof rows.n);
    append(&b, rows.data, rows.n);
    return b;
}

// Gives `s` the headers that are kept for `key`. Returns false if none are, or if one has changed
// since.
static bool recall(Search* s, const char* file, const Buffer* key) {
    char* data;
    size_t size, rows;
    Search kept = {0};
    Buffer begin = render(&kept, key);  // it ends with a rows size of 0
    if (!read_file(file, &data, &size) || size < begin.n) return false;
    memcpy(&rows, data + begin.n - sizeof rows, sizeof rows);
    if (memcmp(data, begin.data, begin.n - sizeof rows) || rows != size - begin.n) return false;
    for (const char *at = data + begin.n, *end = data + size; at < end; at += strlen(at) + 1) {
        Header header = {0};
        Stamp now;
        if ((size_t)(end - at) < sizeof now) return false;
        memcpy(&header.stamp, at, sizeof now);
        at += sizeof now;
        header.path = (char*)at;
        if (!stamp_of(at, &now)) return false;
        now.is_system = header.stamp.is_system;
        if (memcmp(&now, &header.stamp, sizeof now)) return false;
        append(&kept.found, &header, sizeof header);
    }
    s->found = kept.found;
    return true;
}

static char* file_of(const Conf* conf, const Buffer* key) {
    char name[32];
    uint64_t h = 14695981039346656037u;  // FNV-1a
    for (size_t i = 0; i < key->n; i++) h = (h ^ (unsigned char)key->data[i]) * 1099511628211u;
    snprintf(name, sizeof name, "/%016llx", (unsigned long long)h);
    return join_text(conf->headers, name, "");
}

static void keep(const Conf* conf, const Search* s, const Buffer* key) {
    Buffer content = render(s, key);
    // If this fails, the next blob looks again.
    if (mkdir(conf->headers, 0777) == 0 || errno == EEXIST) write_whole(file_of(conf, key), &content);
}

// Appends the lines of a text that could be directives, or continue one.
static void append_directives(Buffer* key, const char* data, size_t size) {
    const char* end = data + size;
    bool goes_on = false;
    while (data < end) {
        const char* line_end = memchr(data, '\n', (size_t)(end - data));
        size_t n = (size_t)((line_end ? line_end + 1 : end) - data);
        size_t shown = n;
        while (shown && strchr(" \t\r\n", data[shown - 1])) shown--;
        if (goes_on || memchr(data, '#', n)) append(key, data, n);
        goes_on = shown && data[shown - 1] == '\\' && (goes_on || memchr(data, '#', n));
        data += n;
    }
}

// Returns the key of a question to the compiler: all that the answer depends on, since hundreds of
// blobs have equal options and directives. The key is empty for a source whose other text may
// influence what it includes.
static Buffer key_of_question(const Conf* conf, const Command* cmd, const char* source, const char* cwd) {
    static const char* const k_telling[] = {"__COUNTER__", "_Pragma", "%:",
                                            "?"
                                            "?="};
    Buffer key = {0};
    char* data;
    size_t size;
    if (!read_file(source, &data, &size)) return key;
    for (size_t i = 0; i < sizeof k_telling / sizeof *k_telling; i++)
        if (memmem(data, size, k_telling[i], strlen(k_telling[i]))) return key;
    append_whole(&key, cwd);
    List question = header_question(conf, cmd);
    for (size_t i = 0; i < question.n; i++) append_whole(&key, strcmp(question.v[i], source) ? question.v[i] : "");
    for (size_t i = 0; i < conf->flag_env.n; i++) {
        const char* value = getenv(conf->flag_env.v[i]);
        append_whole(&key, value ? value : "");
    }
    append_whole(&key, directory_of(source));
    append_directives(&key, data, size);
    free(data);
    return key;
}

// Asks the compiler, and keeps its answer for blobs with this key.
static bool ask_and_keep(const Conf* conf, const Command* cmd, const char* source, const Buffer* key, List* headers) {
    if (!ask_headers(conf, cmd, source, headers)) return false;
    Search found = {0};
    bool are_there = true;
    for (size_t i = 0; i < headers->n && are_there; i++) {
        Header header = {.path = headers->v[i]};
        are_there = stamp_of(header.path, &header.stamp);
        append(&found.found, &header, sizeof header);
    }
    if (key->n && are_there) keep(conf, &found, key);
    return true;
}

static List paths_of(const Search* s, bool omits_system_headers) {
    List paths = {0};
    for (size_t i = 0; i < count(s); i++) {
        const Header* h = header_at(s, i);
        if (h->path && !(omits_system_headers && h->stamp.is_system)) push(&paths, h->path);
    }
    return paths;
}

List find_headers(const Conf* conf, const Command* cmd, const char* source, const char* cwd) {
    const char* dot = strrchr(source, '.');
    bool is_c = cmd->language ? !strcmp(cmd->language, "c") : dot && !strcmp(dot, ".c");
    Search search = begin_search(cmd, is_c), answered = {0};
    for (size_t i = 0; i < cmd->includes.n; i++) {
        Include forced = {cmd->includes.v[i] + 1, true, false};
        if (cmd->includes.v[i][0] == LAZYCK_ROLE_INCLUDE_FILE) resolve(&search, &forced, "", false, 0);
    }
    scan_file(&search, source, false, 0);
    Buffer key = key_of(&search, cwd), question = key_of_question(conf, cmd, source, cwd);
    bool is_known = count(&search) && recall(&search, file_of(conf, &key), &key);
    if ((!is_known || cmd->has_other_includes) && question.n && recall(&answered, file_of(conf, &question), &question))
        return paths_of(&answered, false);
    if (count(&search) && !is_known) {
        for (size_t i = 0; i < count(&search); i++) {
            Header header = *header_at(&search, i);  // the search goes on to append others
            if (header.path) scan_file(&search, header.path, header.stamp.is_system, header.from);
        }
        if (!search.lacks_names) keep(conf, &search, &key);
    }
    bool is_whole = !search.lacks_names && !cmd->has_other_includes;
    List told = {0};
    if (!is_whole && ask_and_keep(conf, cmd, source, &question, &told)) return told;
    return paths_of(&search, cmd->omits_system_headers);
}
