// Reads command lines: with the option table, and with response files as gcc, clang and nvcc read
// them.
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shim.h"

// Returns whether an option has no value, a number or a switch.
static bool is_numeric(const char* word) {
    const char* value = strchr(word, '=');
    if (!value || !value[1 + strspn(value + 1, "0123456789-")]) return true;
    for (char** each = split(LAZYCK_SWITCHES, " "); *each; each++)
        if (!strcmp(value + 1, *each)) return true;
    return false;
}

// Returns the rule for a word. An exact text wins over a beginning, and a longer beginning over a
// shorter one. There are many hundred rules and a few dozen words: the comparison of two characters
// first keeps this below the cost of one system call.
Rule find_rule(const Conf* conf, const char* word) {
    Rule best = {LAZYCK_MODE_EXACT, LAZYCK_ROLE_UNKNOWN, "", "", ""};
    for (char** row = conf->rules.v; row < conf->rules.v + conf->rules.n; row += 3) {
        const char *kind = row[0], *text = row[1];
        if (word[0] != text[0] || word[1] != text[1]) continue;
        size_t size = strlen(text);
        if (kind[0] == LAZYCK_MODE_EXACT || kind[0] == LAZYCK_MODE_SEPARATE) {
            if (!strcmp(word, text)) return (Rule){kind[0], kind[1], text, row[2], ""};
        } else if (!strncmp(word, text, size) && size > strlen(best.text) &&
                   (kind[0] != LAZYCK_MODE_NUMERIC || is_numeric(word))) {
            best = (Rule){kind[0], kind[1], text, row[2], word + size};
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
        push(out, text_of(&word));
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
        Rule rule = find_rule(conf, word);
        if (rule.role != LAZYCK_ROLE_RESPONSE) {
            push(out, word);
            continue;
        }
        const char* files = rule.mode == LAZYCK_MODE_SEPARATE ? *++words : rule.value;
        if (!files) return false;
        for (char** file = split(files, ","); *file; file++)
            if (**file && !expand_file(conf, *file, out, budget, depth, true)) return false;
    }
    return true;
}

// Expands response files. Returns false if the words cannot be determined: the nesting is too deep,
// or the compiler will report an error in a file.
bool expand_words(const Conf* conf, char* const* argv, List* out) {
    int budget = k_most_files;
    return expand(conf, argv, out, &budget, 0);
}
