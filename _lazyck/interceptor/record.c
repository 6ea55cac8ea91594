// Writes the records of a call: the record proper (_lazyck/records.py has the grammar), its copy in
// the list of compiles, and the log.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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
    append(&b, "", 0);
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
    append_string(&b, verdict->output ? verdict->output : "");
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
    put_number(b.data + count_at, count);
    put_number(b.data + 8, b.n);
    return b;
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
