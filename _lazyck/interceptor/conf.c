// Allocates memory that is never freed (the process ends or execs in a millisecond), and reads the
// configuration beside the shim.
//
//   conf  := entry*      entry := key NUL count NUL (value NUL)*count       count in decimal
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shim.h"

void out_of_memory(void) {
    fputs("lazyck: out of memory in the compiler's shim\n", stderr);
    _exit(1);
}

void* allocate(size_t size) {
    void* p = malloc(size ? size : 1);
    if (!p) out_of_memory();
    return p;
}

char* copy_text(const char* text, size_t size) {
    char* p = allocate(size + 1);
    memcpy(p, text, size);
    p[size] = 0;
    return p;
}

char* join_text(const char* a, const char* b, const char* c) {
    size_t na = strlen(a), nb = strlen(b), nc = strlen(c);
    char* p = allocate(na + nb + nc + 1);
    memcpy(p, a, na);
    memcpy(p + na, b, nb);
    memcpy(p + na + nb, c, nc + 1);
    return p;
}

char* directory_of(const char* path) {
    const char* slash = strrchr(path, '/');
    return slash ? copy_text(path, slash == path ? 1 : (size_t)(slash - path)) : "";
}

bool holds(const List* list, const char* text) {
    for (size_t i = 0; i < list->n; i++)
        if (!strcmp(list->v[i], text)) return true;
    return false;
}

void push(List* list, const char* word) {
    if (list->n + 2 > list->cap) {
        list->cap = list->cap ? list->cap * 2 : 32;
        char** bigger = allocate(list->cap * sizeof *bigger);
        if (list->n) memcpy(bigger, list->v, list->n * sizeof *bigger);
        list->v = bigger;
    }
    list->v[list->n++] = (char*)word;
    list->v[list->n] = NULL;
}

void append(Buffer* b, const void* data, size_t size) {
    if (b->n + size + 1 > b->cap) {
        b->cap = (b->n + size + 1) * 2;
        char* bigger = allocate(b->cap);
        if (b->n) memcpy(bigger, b->data, b->n);
        b->data = bigger;
    }
    if (size) memcpy(b->data + b->n, data, size);
    b->n += size;
    b->data[b->n] = 0;
}

void append_text(Buffer* b, const char* text) { append(b, text, strlen(text)); }

bool read_file(const char* path, char** data, size_t* size) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    struct stat st;
    if (fstat(fd, &st) || S_ISDIR(st.st_mode)) {
        close(fd);
        return false;
    }
    size_t cap = st.st_size > 0 ? (size_t)st.st_size + 1 : 65536, n = 0;
    char* p = allocate(cap + 1);
    for (;;) {
        ssize_t got = read(fd, p + n, cap - n);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) {
            close(fd);
            return false;
        }
        if (got == 0) break;
        n += (size_t)got;
        if (n == cap) {  // a pipe, or a file that grew
            char* bigger = allocate(cap * 2 + 1);
            memcpy(bigger, p, n);
            p = bigger;
            cap *= 2;
        }
    }
    close(fd);
    p[n] = 0;
    *data = p;
    *size = n;
    return true;
}

static const char* next_text(const char** at, const char* end) {
    if (*at >= end) return NULL;
    const char* text = *at;
    *at += strlen(text) + 1;
    return text;
}

static bool read_rules(Conf* conf, const char** at, const char* end, size_t count) {
    conf->rule_count = count / 3;
    conf->rules = allocate(conf->rule_count * sizeof(Rule));
    for (size_t i = 0; i < conf->rule_count; i++) {
        const char *kind = next_text(at, end), *text = next_text(at, end), *reason = next_text(at, end);
        if (!reason || strlen(kind) != 2) return false;
        conf->rules[i] = (Rule){kind[0], kind[1], text, strlen(text), reason};
    }
    return true;
}

bool load_conf(Conf* conf, const char* path) {
    const struct {
        const char* key;
        List* list;
        const char** text;
    } fields[] = {
        {"tool", NULL, &conf->tool},
        {"toolchain", NULL, &conf->toolchain},
        {"target", NULL, &conf->target},  // triple
        {"log", NULL, &conf->log},
        {"compiles", NULL, &conf->compiles},
        {"headers", NULL, &conf->headers},
        {"links", NULL, &conf->links},
        {"python", NULL, &conf->python},
        {"bootstrap", NULL, &conf->bootstrap},
        {"traits", NULL, &conf->traits},
        {"listed", NULL, &conf->listed},
        {"real", &conf->real, NULL},
        {"compiler", &conf->compiler, NULL},
        {"blobs", &conf->blobs, NULL},
        {"suffixes", &conf->suffixes, NULL},
        {"languages", &conf->languages, NULL},
        {"flag_env", &conf->flag_env, NULL},
        {"option_env", &conf->option_env, NULL},
        {"path_map", &conf->path_map, NULL},
        {"env_names", &conf->env_names, NULL},
        {"restore", &conf->restore, NULL},
        {"shim_dirs", &conf->shim_dirs, NULL},
        {"launch", &conf->launch, NULL},
        {"launchers", &conf->launchers, NULL},
        {"pass_when", &conf->pass_when, NULL},
    };
    char* data;
    size_t size;
    *conf = (Conf){0};
    if (!read_file(path, &data, &size)) return false;
    const char *at = data, *end = data + size;
    while (at < end) {
        const char *key = next_text(&at, end), *number = next_text(&at, end);
        if (!number) return false;
        size_t count = strtoul(number, NULL, 10);
        if (!strcmp(key, "rules")) {
            if (!read_rules(conf, &at, end, count)) return false;
            continue;
        }
        size_t f = 0, known = sizeof fields / sizeof *fields;
        while (f < known && strcmp(key, fields[f].key)) f++;
        for (size_t i = 0; i < count; i++) {
            const char* value = next_text(&at, end);
            if (!value) return false;
            if (f < known && fields[f].list) push(fields[f].list, value);
            if (f < known && fields[f].text) *fields[f].text = value;
        }
    }
    return conf->tool && conf->toolchain && conf->target && conf->log && conf->compiles && conf->headers &&
           conf->links && conf->python && conf->bootstrap && conf->traits && conf->real.n && conf->compiler.n;
}
