// Asks the compiler for the headers that a blob reads, if the blob's `#include` lines do not tell.
// This takes as long as preprocessing.
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shim.h"

// Lists the roles of options that name outputs. The question to the compiler leaves these options
// out.
static const char k_outputs[] = "coduPDtqwW";

List header_question(const Conf* conf, const Command* cmd) {
    List argv = {0};
    for (size_t i = 0; i < conf->compiler.n; i++) push(&argv, conf->compiler.v[i]);
    for (size_t i = 0; i < cmd->args.n; i++) {
        const char* word = cmd->args.v[i];
        const Rule* rule = word[0] == '-' && word[1] ? find_rule(conf, word) : NULL;
        size_t more = rule && rule->mode == LAZYCK_MODE_SEPARATE && i + 1 < cmd->args.n;
        if (!rule || !strchr(k_outputs, rule->role)) {
            push(&argv, map_text(&conf->path_map, word));
            if (more) push(&argv, map_text(&conf->path_map, cmd->args.v[i + 1]));
        }
        i += more;
    }
    push(&argv, "-w");
    push(&argv, cmd->omits_system_headers ? "-MM" : "-M");
    return argv;
}

// Runs a command and reads its standard output. Returns false if the command fails.
static bool run_and_read(const Conf* conf, char** argv, Buffer* out) {
    int ends[2], status;
    char part[1 << 16];
    if (pipe(ends)) return false;
    pid_t child = fork();
    if (child < 0) return false;
    if (!child) {
        int nothing = open("/dev/null", O_RDWR);
        dup2(nothing, 0);
        dup2(nothing, 2);
        dup2(ends[1], 1);
        close(ends[0]);
        close(ends[1]);
        clean_environment(conf);
        execv(argv[0], argv);
        _exit(127);
    }
    close(ends[1]);
    for (;;) {
        ssize_t n = read(ends[0], part, sizeof part);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        append(out, part, (size_t)n);
    }
    close(ends[0]);
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR) return false;
    return WIFEXITED(status) && !WEXITSTATUS(status);
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
    append(&rules, "", 0);
    if (!run_and_read(conf, argv.v, &rules)) return false;
    const char* at = rules.data;
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
