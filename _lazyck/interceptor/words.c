// Reads command lines: with the option table, and with response files as gcc, clang and nvcc read
// them.
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shim.h"

// Returns the rule for a word. An exact text wins over a prefix, and a longer prefix over a shorter
// one. There are a few hundred rules and a few dozen words: the comparison of two characters first
// keeps this below the cost of one system call.
const Rule* find_rule(const Conf* conf, const char* word) {
    const Rule* best = NULL;
    for (size_t i = 0; i < conf->rule_count; i++) {
        const Rule* r = &conf->rules[i];
        if (word[0] != r->text[0] || word[1] != r->text[1]) continue;
        if (r->mode == LAZYCK_MODE_PREFIX) {
            if (!strncmp(word, r->text, r->size) && (!best || r->size > best->size)) best = r;
        } else if (!strcmp(word, r->text)) {
            return r;
        }
    }
    return best;
}

static bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// Splits a response file into words: blanks separate, ' and " quote, and a backslash takes the next
// character literally, inside quotes too (libiberty's buildargv, clang's TokenizeGNUCommandLine).
// nvcc's `--options-file` is another language: ' is an ordinary character, and \" and \\ leave
// nothing, because nvcc looks again at the character after a backslash.
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
    // A pipe, such as `@<(command)`, can only be read once, by the compiler.
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
                push(out, word);  // no such file: the word is taken literally
            } else if (!expand_file(conf, word + 1, out, budget, depth, false)) {
                return false;
            }
            continue;
        }
        const Rule* rule = word[0] == '-' ? find_rule(conf, word) : NULL;
        if (!rule || rule->role != LAZYCK_ROLE_RESPONSE) {
            push(out, word);
            continue;
        }
        const char* files = rule->mode == LAZYCK_MODE_SEPARATE ? *++words : word + rule->size;
        if (!files) return false;
        while (*files) {
            size_t n = strcspn(files, ",");
            if (n && !expand_file(conf, copy_text(files, n), out, budget, depth, true)) return false;
            files += n + (files[n] == ',');
        }
    }
    return true;
}

// Expands response files. Returns false if the words cannot be determined: the nesting is too deep,
// or the compiler will report an error in a file.
bool expand_words(const Conf* conf, char* const* argv, List* out) {
    int budget = k_most_files;
    return expand(conf, argv, out, &budget, 0);
}
