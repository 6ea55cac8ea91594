// Writes the depfile of a deferred blob: the rule that the compiler would write, with the source
// and the headers that it reads.
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shim.h"

// Escapes as gcc's -MQ does: blanks, the backslashes before them, `#` and `$`.
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

static void append_name(Buffer* b, const char* name) {
    if (strchr(name, '\n')) return;  // no rule can name such a file
    append_text(b, " \\\n ");
    append_text(b, strpbrk(name, " \t#$") ? quote_for_make(name) : name);
}

char* depfile_path(const Command* cmd) {
    if (cmd->depfile) return (char*)cmd->depfile;
    const char *slash = strrchr(cmd->output, '/'), *dot = strrchr(cmd->output, '.');
    bool has_suffix = dot && (!slash || dot > slash + 1);
    size_t n = has_suffix ? (size_t)(dot - cmd->output) : strlen(cmd->output);
    return join_text(copy_text(cmd->output, n), ".d", "");
}

bool write_depfile(const Command* cmd, const char* source, const List* headers) {
    Buffer b = {0};
    for (size_t i = 0; i < cmd->targets.n; i++) {
        if (i) append_text(&b, " ");
        append_text(&b, cmd->targets.v[i]);
    }
    if (!cmd->targets.n) append_text(&b, quote_for_make(cmd->output));
    append_text(&b, ":");
    if (!strchr(source, '\n')) {
        append_text(&b, " ");
        append_text(&b, quote_for_make(source));
    }
    for (size_t i = 0; i < headers->n; i++) append_name(&b, headers->v[i]);
    append_text(&b, "\n");
    for (size_t i = 0; cmd->has_phony_targets && i < headers->n; i++) {
        if (strchr(headers->v[i], '\n')) continue;
        append_text(&b, quote_for_make(headers->v[i]));
        append_text(&b, ":\n");
    }
    const char* path = depfile_path(cmd);
    struct stat st;
    if (!stat(path, &st) && !S_ISREG(st.st_mode)) {  // for example -MF /dev/null, /dev/stdout
        int fd = open(path, O_WRONLY | O_CLOEXEC);
        bool good = fd >= 0 && write(fd, b.data, b.n) == (ssize_t)b.n;
        if (fd >= 0) close(fd);
        return good;
    }
    return write_whole(path, &b);
}
