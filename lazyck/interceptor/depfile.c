// Writes the depfile of a deferred blob: the rule that the compiler would write, with the source
// and the headers that it reads. If the blob's `#include` lines do not tell its headers, asks the
// compiler for its rule, which takes as long as preprocessing.
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shim.h"

// Escapes as gcc's -MQ does: blanks, the backslashes before them, `#` and `$`.
char* quote_for_make(const char* text) {
    Buffer b = {0};
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
    return text_of(&b);
}

static void append_name(Buffer* b, const char* name) {
    if (strchr(name, '\n')) return;  // no rule can name such a file
    append_text(b, " \\\n ");
    append_text(b, strpbrk(name, " \t#$") ? quote_for_make(name) : name);
}

char* depfile_path(const Command* cmd) {
    if (cmd->depfile) return (char*)cmd->depfile;
    const char *name = name_of(cmd->output), *dot = strrchr(name, '.');
    size_t n = dot ? (size_t)(dot - cmd->output) : strlen(cmd->output);
    return join_text(copy_text(cmd->output, n), ".d", "");
}

bool write_depfile(const Command* cmd, const char* source, const List* headers) {
    Buffer b = {0};
    for (size_t i = 0; i < cmd->targets.n; i++) {
        if (i) append_text(&b, " ");
        append_text(&b, cmd->targets.v[i]);
    }
    if (!cmd->targets.n && cmd->names_source) {
        const char *name = name_of(source), *dot = strrchr(name, '.');
        size_t n = dot ? (size_t)(dot - name) : strlen(name);
        append_text(&b, quote_for_make(join_text(copy_text(name, n), ".o", "")));
    } else if (!cmd->targets.n) {
        append_text(&b, quote_for_make(cmd->output));
    }
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
    if (!strcmp(path, "-")) return write(STDOUT_FILENO, b.data, b.n) == (ssize_t)b.n;
    struct stat st;
    if (!stat(path, &st) && !S_ISREG(st.st_mode)) {  // for example -MF /dev/null, /dev/stdout
        int fd = open(path, O_WRONLY | O_CLOEXEC);
        bool good = fd >= 0 && write(fd, b.data, b.n) == (ssize_t)b.n;
        if (fd >= 0) close(fd);
        return good;
    }
    return write_whole(path, &b);
}

// Returns the command that asks what a blob reads: its own without the options for outputs.
List header_question(const Conf* conf, const Command* cmd) {
    List argv = {0};
    for (size_t i = 0; i < conf->compiler.n; i++) push(&argv, conf->compiler.v[i]);
    for (size_t i = 0; i < cmd->args.n; i++) {
        Rule rule = find_rule(conf, cmd->args.v[i]);
        size_t last = i + (rule.mode == LAZYCK_MODE_SEPARATE && i + 1 < cmd->args.n);
        for (; i <= last; i++)
            if (!strchr(LAZYCK_ROLES_OF_OUTPUTS, rule.role)) push(&argv, map_text(&conf->path_map, cmd->args.v[i]));
        i = last;
    }
    push(&argv, "-w");
    push(&argv, cmd->omits_system_headers ? "-MM" : "-M");
    return argv;
}

// Returns the next word of a rule, without the characters that escape others for make, and moves
// `*at` behind the word. Returns NULL at the end of the text.
static char* next_word(const char** at) {
    const char* p = *at;
    Buffer word = {0};
    while (*p && (strchr(" \t\r\n", *p) || (p[0] == '\\' && (p[1] == '\n' || (p[1] == '\r' && p[2] == '\n'))))) p++;
    if (!*p) return NULL;
    for (; *p && !strchr(" \t\r\n", *p); p++) {
        if (*p == '\\' && p[1] == '\n') break;
        if (*p == '\\' && p[1] && strchr(" \t#\\", p[1])) {
            p++;
        } else if (*p == '$' && p[1] == '$') {
            p++;
        }
        append(&word, p, 1);
    }
    *at = p;
    return word.data;
}

bool ask_headers(const Conf* conf, const Command* cmd, const char* source, List* headers) {
    List argv = header_question(conf, cmd), found = {0};
    Buffer rules = {0};
    int status = -1;
    if (!read_output(argv.v, STDOUT_FILENO, conf, &rules, &status) || status) return false;
    const char* at = text_of(&rules);
    bool is_new = false;
    for (char* word; (word = next_word(&at));) {
        if (!strcmp(word, ":") && is_new) found.n--;  // nvcc puts a blank after a rule's target
        // Each pass of a GPU's compiler writes a rule, so words may be repeated.
        is_new = word[strlen(word) - 1] != ':' && strcmp(word, source) != 0;
        for (size_t i = 0; i < found.n && is_new; i++) is_new = strcmp(found.v[i], word) != 0;
        if (is_new) push(&found, word);
    }
    *headers = found;
    return true;
}
