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

const char* name_of(const char* path) {
    const char* slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

char* conf_of(const char* program) {
    return join_text(directory_of(program), "/.lazyck/", join_text(name_of(program), ".conf", ""));
}

char** split(const char* text, const char* separators) {
    static char* none = NULL;
    List parts = {0};
    for (bool is_more = text && *text; is_more;) {
        size_t n = strcspn(text, separators);
        push(&parts, copy_text(text, n));
        is_more = text[n];
        text += n + is_more;
    }
    return parts.n ? parts.v : &none;
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

char* text_of(const Buffer* b) { return b->data ? b->data : ""; }

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

bool load_conf(Conf* conf, const char* path) {
    char* data;
    size_t size;
    *conf = (Conf){0};
    if (!read_file(path, &data, &size)) return false;
    const char *at = data, *end = data + size;
    while (at < end) {
        const char *key = next_text(&at, end), *number = next_text(&at, end);
        if (!number) return false;
        size_t count = strtoul(number, NULL, 10);
        List values = {allocate((count + 1) * sizeof(char*)), count, count + 1};
        for (size_t i = 0; i < count; i++)
            if (!(values.v[i] = (char*)next_text(&at, end))) return false;
        values.v[count] = NULL;
#define LAZYCK_TAKE_TEXT(name) \
    if (values.n && !strcmp(key, #name)) conf->name = values.v[0];
#define LAZYCK_TAKE_LIST(name) \
    if (!strcmp(key, #name)) conf->name = values;
        LAZYCK_SHIM_TEXTS(LAZYCK_TAKE_TEXT)
        LAZYCK_SHIM_LISTS(LAZYCK_TAKE_LIST)
    }
#define LAZYCK_IS_SET(name) conf->name&&
    return LAZYCK_SHIM_TEXTS(LAZYCK_IS_SET) conf->real.n && conf->compiler.n;
}
