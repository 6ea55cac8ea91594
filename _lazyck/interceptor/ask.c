// Asks the compiler for the headers that a blob reads, if the blob's `#include` lines do not tell.
// This takes as long as preprocessing.
#include <string.h>
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
    int status = -1;
    if (!read_output(argv.v, STDOUT_FILENO, conf, &rules, &status) || status) return false;
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
