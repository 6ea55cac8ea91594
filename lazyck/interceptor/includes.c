// Finds the `#include` lines of a C or C++ text. Conditionals are not evaluated. A line that the
// compiler would skip adds a header too many, which costs at worst a needless rebuild.
#define _GNU_SOURCE  // memmem
#include <ctype.h>
#include <string.h>

#include "shim.h"

enum { k_most_open_literals = 64, k_longest_delimiter = 16 };

void scan_text(Scanner* s, const char* data, size_t size) {
    *s = (Scanner){.at = data, .end = data + size};
    if (size >= 3 && !memcmp(data, "\xEF\xBB\xBF", 3)) s->at += 3;
}

// Returns the size of a line break after a backslash at `p`, with the blanks that gcc allows before
// it; 0 if there is none.
static size_t splice_size(const Scanner* s, const char* p) {
    const char* q = p + 1;
    while (q < s->end && (*q == ' ' || *q == '\t' || *q == '\r')) q++;
    return q < s->end && *q == '\n' ? (size_t)(q + 1 - p) : 0;
}

static void skip_splices(Scanner* s) {
    size_t n;
    while (s->at < s->end && *s->at == '\\' && (n = splice_size(s, s->at))) s->at += n;
}

static bool begins(const Scanner* s, const char* text, size_t size) {
    return (size_t)(s->end - s->at) >= size && !memcmp(s->at, text, size);
}

// Skips a block comment. An unclosed comment hides nothing, because its beginning was misread.
static void skip_block_comment(Scanner* s) {
    const char* close = s->no_more_comments ? NULL : memmem(s->at + 2, (size_t)(s->end - s->at - 2), "*/", 2);
    if (!close) s->no_more_comments = true;
    s->at = close ? close + 2 : s->at + 2;
}

static void skip_to_line_end(Scanner* s) {
    while (s->at < s->end) {
        const char* p = memchr(s->at, '\n', (size_t)(s->end - s->at));
        if (!p) p = s->end;
        const char* before = p;
        while (before > s->at && (before[-1] == ' ' || before[-1] == '\t' || before[-1] == '\r')) before--;
        bool goes_on = p < s->end && before > s->at && before[-1] == '\\';
        s->at = goes_on ? p + 1 : p;
        if (!goes_on) return;
    }
}

// Skips blanks and comments, and with `lines` also line breaks.
static void skip_blanks(Scanner* s, bool lines) {
    for (;;) {
        skip_splices(s);
        if (s->at == s->end) return;
        char c = *s->at;
        if (c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v' || (lines && c == '\n')) {
            s->at++;
        } else if (begins(s, "/*", 2)) {
            skip_block_comment(s);
        } else if (lines && begins(s, "//", 2)) {
            skip_to_line_end(s);
        } else {
            return;
        }
    }
}

static bool is_name_character(char c) { return isalnum((unsigned char)c) || c == '_'; }

// Returns whether the quote at `p` follows R, uR, u8R, UR or LR, and these are not the end of a
// longer name.
static bool is_raw(const char* begin, const char* p) {
    if (p == begin || p[-1] != 'R') return false;
    const char* name = p;
    while (name > begin && is_name_character(name[-1])) name--;
    return strstr(" R uR u8R UR LR ", join_text(" ", copy_text(name, (size_t)(p - name)), " "));
}

static bool skip_raw_string(Scanner* s) {
    const char* open = s->at + 1;
    const char* p = open;
    char close[k_longest_delimiter + 3] = ")";
    while (p < s->end && p - open <= k_longest_delimiter && !strchr("( )\\\"\t\n\r\v\f", *p)) p++;
    if (p == s->end || *p != '(' || p - open > k_longest_delimiter) return false;
    size_t n = (size_t)(p - open);
    memcpy(close + 1, open, n);
    close[n + 1] = '"';
    const char* found = memmem(p, (size_t)(s->end - p), close, n + 2);
    if (!found) {
        s->open_literals++;  // each such search goes to the end of the text
        return false;
    }
    s->at = found + n + 2;
    return true;
}

// Skips to behind the closing quote, or only over the opening one if the line has no other
// (`1'000`, prose in `#if 0`).
static void skip_literal(Scanner* s) {
    char quote = *s->at++;
    const char* p = s->at;
    while (p < s->end && *p != quote && *p != '\n') {
        size_t n = *p == '\\' ? splice_size(s, p) : 0;
        p += n ? n : *p == '\\' && p + 1 < s->end ? 2 : 1;
    }
    if (p < s->end && *p == quote) s->at = p + 1;
}

static const bool k_stops[256] = {['\n'] = true, ['\\'] = true, ['"'] = true, ['\''] = true, ['/'] = true};

static void skip_line(Scanner* s) {
    const char* begin = s->at;
    while (s->at < s->end) {
        const char* p = s->at;
        while (p < s->end && !k_stops[(unsigned char)*p]) p++;
        s->at = p;
        if (p == s->end || *p == '\n') return;
        size_t n;
        if (*p == '\\') {
            n = splice_size(s, p);
            s->at += n ? n : p + 1 < s->end ? 2 : 1;
        } else if (*p == '/') {
            if (begins(s, "//", 2)) {
                skip_to_line_end(s);
                return;
            }
            if (begins(s, "/*", 2))
                skip_block_comment(s);
            else
                s->at++;
        } else if (*p == '\'' || !is_raw(begin, p) || s->open_literals > k_most_open_literals || !skip_raw_string(s)) {
            skip_literal(s);
        }
    }
}

// Reads a directive after its `#`. Returns whether it is an include, and sets what it includes. The
// name is NULL for a macro, whose value is unknown here, and for #embed, whose file is not looked
// up.
static bool read_directive(Scanner* s, Include* out) {
    char word[16];
    size_t n = 0;
    skip_blanks(s, false);
    for (; skip_splices(s), s->at < s->end && is_name_character(*s->at); s->at++)
        if (n + 1 < sizeof word) word[n++] = *s->at;
    word[n] = 0;
    out->next = !strcmp(word, "include_next");
    out->name = NULL;
    if (!strcmp(word, "embed")) return true;
    if (!out->next && strcmp(word, "include") && strcmp(word, "import")) return false;
    skip_blanks(s, false);
    if (s->at < s->end && is_name_character(*s->at)) return true;
    if (s->at == s->end || (*s->at != '"' && *s->at != '<')) return false;
    out->quoted = *s->at == '"';
    char close = out->quoted ? '"' : '>';
    Buffer name = {0};
    for (s->at++; skip_splices(s), s->at < s->end && *s->at != close; s->at++) {
        if (*s->at == '\n' || !*s->at) return false;
        append(&name, s->at, 1);
    }
    if (s->at == s->end || !name.n) return false;
    s->at++;
    out->name = name.data;
    return true;
}

bool next_include(Scanner* s, Include* out) {
    for (;;) {
        skip_blanks(s, true);
        if (s->at == s->end) return false;
        size_t lead = *s->at == '#' ? 1 : begins(s, "%:", 2) ? 2 : begins(s, "?\?=", 3) ? 3 : 0;
        s->at += lead;
        bool found = lead && read_directive(s, out);
        skip_line(s);
        if (found) return true;
    }
}
