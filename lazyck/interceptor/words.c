// Command lines: the option table, and response files as gcc, clang and nvcc read them.
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shim.h"

// Exact texts win over beginnings, longer beginnings over shorter ones. A few hundred rules, a few dozen words:
// comparing two characters first keeps this below the cost of one system call.
const Rule* find_rule(const Conf* conf, const char* word) {
    const Rule* best = NULL;
    for (size_t i = 0; i < conf->rule_count; i++) {
        const Rule* r = &conf->rules[i];
        if (word[0] != r->text[0] || word[1] != r->text[1]) continue;
        if (r->mode == 'p') {
            if (!strncmp(word, r->text, r->size) && (!best || r->size > best->size)) best = r;
        } else if (!strcmp(word, r->text)) {
            return r;
        }
    }
    return best;
}

static bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// Words of a response file: blanks separate, ' and " quote, a backslash takes the next character as it is, inside
// quotes too (libiberty's buildargv, clang's TokenizeGNUCommandLine). nvcc's `--options-file` is another language: ' is
// a character like any other, and what a backslash protects is looked at again, so that \" and \\ leave nothing.
static void split_file(const char* p, const char* end, List* out, bool is_nvcc) {
    while (p < end) {
        while (p < end && is_blank(*p)) p++;
        if (p == end) return;
        Buffer word = {0};
        append(&word, "", 0);
        char quote = 0;
        for (; p < end && (quote || !is_blank(*p)); p++) {
            if (*p == '\\' && p + 1 < end) {
                p++;
                if (!is_nvcc || (*p != '"' && *p != '\\')) append(&word, p, 1);
            } else if (quote && *p == quote) {
                quote = 0;
            } else if (!quote && ((*p == '\'' && !is_nvcc) || *p == '"')) {
                quote = *p;
            } else {
                append(&word, p, 1);
            }
        }
        push(out, copy_text(word.data, strlen(word.data)));
    }
}

enum { k_most_files = 2000 };

static bool expand(const Conf* conf, char* const* words, List* out, int* budget, int depth);

static bool expand_file(const Conf* conf, const char* path, List* out, int* budget, int depth, bool is_nvcc) {
    char* data;
    size_t size;
    List inner = {0};
    struct stat st;
    // A pipe, as of `@<(command)`, can be read but once, and by the compiler.
    if (stat(path, &st) || !S_ISREG(st.st_mode)) return false;
    if (--*budget < 0 || depth > 100 || !read_file(path, &data, &size)) return false;
    split_file(data, data + size, &inner, is_nvcc);
    return !inner.n || expand(conf, inner.v, out, budget, depth + 1);
}

static bool expand(const Conf* conf, char* const* words, List* out, int* budget, int depth) {
    for (; *words; words++) {
        const char* word = *words;
        if (word[0] == '@' && word[1]) {
            if (access(word + 1, R_OK)) {
                push(out, word);  // no such file: the word stands for itself
            } else if (!expand_file(conf, word + 1, out, budget, depth, false)) {
                return false;
            }
            continue;
        }
        const Rule* rule = word[0] == '-' ? find_rule(conf, word) : NULL;
        if (!rule || rule->role != 'r') {
            push(out, word);
            continue;
        }
        const char* files = rule->mode == 's' ? *++words : word + rule->size;
        if (!files) return false;
        while (*files) {
            size_t n = strcspn(files, ",");
            if (n && !expand_file(conf, copy_text(files, n), out, budget, depth, true)) return false;
            files += n + (files[n] == ',');
        }
    }
    return true;
}

// False if the words cannot be known: too deep, or a file that the compiler itself will complain about.
bool expand_words(const Conf* conf, char* const* argv, List* out) {
    int budget = k_most_files;
    return expand(conf, argv, out, &budget, 0);
}
