// Finds the headers that a blob reads, for its depfile. It looks them up as the compiler would, in
// the command's own directories but not in those that are built into the compiler. The result for a
// list of first headers is kept in the tmp dir, because hundreds of blobs begin with the same
// headers.
//
//   kept   := magic key_size:u64 key count:u64 stamp*count path*count      path ends with NUL
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

static const char k_magic[8] = "LZHDRS1";

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
    const char* path;
    bool is_system;
} Directory;

typedef struct {
    const char* key;
    size_t value;
} Slot;

typedef struct {
    Directory* dirs;
    size_t count, quoted_only;  // the first `quoted_only` directories are searched for "x" only
    Header* headers;
    size_t n, cap;
    void* slots;       // a tree of `Slot`, see tsearch(3)
    bool lacks_names;  // a file has an include whose name is a macro
} Search;

// -- a table from texts to numbers ----------------------------------------------------------------

static int compare_slots(const void* a, const void* b) { return strcmp(((const Slot*)a)->key, ((const Slot*)b)->key); }

static size_t* slot_of(Search* s, const char* key, bool* is_new) {
    Slot* fresh = allocate(sizeof *fresh);
    *fresh = (Slot){key, 0};
    Slot** found = tsearch(fresh, &s->slots, compare_slots);
    if (!found) out_of_memory();
    *is_new = *found == fresh;
    return &(*found)->value;
}

// -- looking up -----------------------------------------------------------------------------------

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

static void add_directory(Search* s, const char* path, bool is_system) {
    s->dirs[s->count++] = (Directory){path, is_system};
}

static void add_directories(Search* s, const Command* cmd, char kind, bool is_system) {
    for (size_t i = 0; i < cmd->includes.n; i++)
        if (cmd->includes.v[i][0] == kind) add_directory(s, cmd->includes.v[i] + 1, is_system);
}

// Adds the directories in a variable. An empty item is the working directory.
static void add_variable(Search* s, const char* name, bool is_system) {
    const char* text = getenv(name);
    while (text && *text) {
        size_t n = strcspn(text, ":");
        add_directory(s, copy_text(text, n), is_system);
        text += n;
        if (*text && !*++text) add_directory(s, "", is_system);
    }
}

static size_t variable_size(const char* name) {
    const char* text = getenv(name);
    return text ? strlen(text) : 0;
}

static void begin_search(Search* s, const Command* cmd, bool is_c) {
    const char* by_language = is_c ? "C_INCLUDE_PATH" : "CPLUS_INCLUDE_PATH";
    size_t most = cmd->includes.n + variable_size("CPATH") + variable_size(by_language) + 2;
    *s = (Search){.dirs = allocate(most * sizeof(Directory))};
    add_directories(s, cmd, LAZYCK_ROLE_INCLUDE_QUOTED, false);
    s->quoted_only = s->count;
    add_directories(s, cmd, LAZYCK_ROLE_INCLUDE, false);
    add_variable(s, "CPATH", false);
    add_directories(s, cmd, LAZYCK_ROLE_INCLUDE_SYSTEM, true);
    add_variable(s, by_language, true);
    add_directories(s, cmd, LAZYCK_ROLE_INCLUDE_AFTER, true);
}

// Adds the file if it is new. A file that was known as a system header is added again as a user
// header, and is scanned again as such. The same file below another directory counts as another
// file, because its quoted includes may lead elsewhere.
static bool add_header(Search* s, char* path, bool is_system, size_t from) {
    Stamp stamp, place = {0};
    char key[2 * 20 * 2 + 8];
    if (!stamp_of(path, &stamp)) return false;
    struct stat st;
    const char* dir = directory_of(path);
    if (!stat(*dir ? dir : ".", &st)) place = (Stamp){.device = st.st_dev, .inode = st.st_ino};
    snprintf(key, sizeof key, "%llx:%llx:%llx:%llx", (unsigned long long)stamp.device, (unsigned long long)stamp.inode,
             (unsigned long long)place.device, (unsigned long long)place.inode);
    bool is_new;
    size_t* slot = slot_of(s, copy_text(key, strlen(key)), &is_new);
    if (!is_new && (is_system || !s->headers[*slot].stamp.is_system)) return true;
    if (!is_new) s->headers[*slot].path = NULL;  // added again at the end, as no system header
    if (s->n == s->cap) {
        s->cap = s->cap ? s->cap * 2 : 256;
        Header* bigger = allocate(s->cap * sizeof *bigger);
        if (s->n) memcpy(bigger, s->headers, s->n * sizeof *bigger);
        s->headers = bigger;
    }
    stamp.is_system = is_system;
    *slot = s->n;
    s->headers[s->n++] = (Header){path, stamp, from};
    return true;
}

static void search_directories(Search* s, const char* name, size_t from) {
    for (size_t i = from; i < s->count; i++)
        if (add_header(s, join_path(s->dirs[i].path, name), s->dirs[i].is_system, i + 1)) return;
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

// -- kept results ---------------------------------------------------------------------------------

static Buffer key_of(const Search* s, const char* cwd) {
    Buffer key = {0};
    append(&key, cwd, strlen(cwd) + 1);
    for (size_t i = 0; i < s->count; i++) {
        append_text(&key, i < s->quoted_only ? "q" : s->dirs[i].is_system ? "s" : "u");
        append(&key, s->dirs[i].path, strlen(s->dirs[i].path) + 1);
    }
    for (size_t i = 0; i < s->n; i++) {
        if (!s->headers[i].path) continue;
        append_text(&key, s->headers[i].stamp.is_system ? "S" : "U");
        append(&key, &s->headers[i].from, sizeof s->headers[i].from);
        append(&key, s->headers[i].path, strlen(s->headers[i].path) + 1);
    }
    return key;
}

// Sets `s->headers` to the result kept for `key`. Returns false if there is none, or if a header
// has changed since.
static bool recall(Search* s, const char* file, const Buffer* key) {
    char* data;
    size_t size;
    uint64_t key_size, count;
    if (!read_file(file, &data, &size) || size < sizeof k_magic + 8 || memcmp(data, k_magic, sizeof k_magic))
        return false;
    const char *at = data + sizeof k_magic, *end = data + size;
    memcpy(&key_size, at, 8);
    at += 8;
    if (key_size != key->n || (size_t)(end - at) < key->n + 8 || memcmp(at, key->data, key->n)) return false;
    at += key->n;
    memcpy(&count, at, 8);
    at += 8;
    if (count > (size_t)(end - at) / sizeof(Stamp)) return false;
    const char* path = at + count * sizeof(Stamp);
    Header* headers = allocate((count + 1) * sizeof *headers);
    for (size_t i = 0; i < count; i++) {
        if (path >= end) return false;
        headers[i] = (Header){.path = (char*)path};
        Stamp now;
        memcpy(&headers[i].stamp, at + i * sizeof(Stamp), sizeof(Stamp));
        if (!stamp_of(path, &now)) return false;
        now.is_system = headers[i].stamp.is_system;
        if (memcmp(&now, &headers[i].stamp, sizeof now)) return false;
        path += strlen(path) + 1;
    }
    s->headers = headers;
    s->n = count;
    return true;
}

static void keep(const Search* s, const char* file, const Buffer* key) {
    Buffer b = {0}, paths = {0};
    uint64_t key_size = key->n, count = 0;
    append(&b, k_magic, sizeof k_magic);
    append(&b, &key_size, 8);
    append(&b, key->data, key->n);
    size_t count_at = b.n;
    append(&b, &count, 8);
    for (size_t i = 0; i < s->n; i++) {
        if (!s->headers[i].path) continue;
        append(&b, &s->headers[i].stamp, sizeof(Stamp));
        append(&paths, s->headers[i].path, strlen(s->headers[i].path) + 1);
        count++;
    }
    memcpy(b.data + count_at, &count, 8);
    if (paths.n) append(&b, paths.data, paths.n);
    write_whole(file, &b);  // if this fails, the next blob looks again
}

static char* file_of(const Conf* conf, const Buffer* key) {
    char name[32];
    uint64_t h = 14695981039346656037u;  // FNV-1a
    for (size_t i = 0; i < key->n; i++) h = (h ^ (unsigned char)key->data[i]) * 1099511628211u;
    snprintf(name, sizeof name, "/%016llx", (unsigned long long)h);
    return join_text(conf->headers, name, "");
}

static void keep_in(const Conf* conf, const Search* s, const Buffer* key) {
    if (mkdir(conf->headers, 0777) == 0 || errno == EEXIST) keep(s, file_of(conf, key), key);
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
    append(&key, cwd, strlen(cwd) + 1);
    List question = header_question(conf, cmd);
    for (size_t i = 0; i < question.n; i++) {
        const char* word = strcmp(question.v[i], source) ? question.v[i] : "";
        append(&key, word, strlen(word) + 1);
    }
    for (size_t i = 0; i < conf->flag_env.n; i++) {
        const char* value = getenv(conf->flag_env.v[i]);
        append(&key, value ? value : "", value ? strlen(value) + 1 : 1);
    }
    const char* here = directory_of(source);
    append(&key, here, strlen(here) + 1);
    append_directives(&key, data, size);
    free(data);
    return key;
}

// Looks up the compiler's answer for a blob with this key. Returns false if none is kept.
static bool recall_answer(const Conf* conf, const Buffer* key, List* headers) {
    Search kept = {0};
    if (!key->n || !recall(&kept, file_of(conf, key), key)) return false;
    for (size_t i = 0; i < kept.n; i++) push(headers, kept.headers[i].path);
    return true;
}

static bool ask_and_keep(const Conf* conf, const Command* cmd, const char* source, const Buffer* key, List* headers) {
    if (!ask_headers(conf, cmd, source, headers)) return false;
    Search kept = {.headers = allocate((headers->n + 1) * sizeof(Header)), .n = headers->n};
    bool are_there = true;
    for (size_t i = 0; i < headers->n && are_there; i++) {
        kept.headers[i] = (Header){.path = (char*)headers->v[i]};
        are_there = stamp_of(headers->v[i], &kept.headers[i].stamp);
    }
    if (key->n && are_there) keep_in(conf, &kept, key);
    return true;
}

List find_headers(const Conf* conf, const Command* cmd, const char* source, const char* cwd) {
    Search search;
    const char* dot = strrchr(source, '.');
    bool is_c = cmd->language ? !strcmp(cmd->language, "c") : dot && !strcmp(dot, ".c");
    begin_search(&search, cmd, is_c);
    for (size_t i = 0; i < cmd->includes.n; i++) {
        Include forced = {cmd->includes.v[i] + 1, true, false};
        if (cmd->includes.v[i][0] == LAZYCK_ROLE_INCLUDE_FILE) resolve(&search, &forced, "", false, 0);
    }
    scan_file(&search, source, false, 0);
    Buffer key = key_of(&search, cwd);
    Buffer question = key_of_question(conf, cmd, source, cwd);
    List found = {0};
    bool is_known = search.n && recall(&search, file_of(conf, &key), &key);
    if ((!is_known || cmd->has_other_includes) && recall_answer(conf, &question, &found)) return found;
    if (search.n && !is_known) {
        for (size_t i = 0; i < search.n; i++) {
            Header header = search.headers[i];
            if (header.path) scan_file(&search, header.path, header.stamp.is_system, header.from);
        }
        if (!search.lacks_names) keep_in(conf, &search, &key);
    }
    bool is_whole = !search.lacks_names && !cmd->has_other_includes;
    if (!is_whole && ask_and_keep(conf, cmd, source, &question, &found)) return found;
    for (size_t i = 0; i < search.n; i++) {
        const Header* h = &search.headers[i];
        if (h->path && !(cmd->omits_system_headers && h->stamp.is_system)) push(&found, h->path);
    }
    return found;
}
