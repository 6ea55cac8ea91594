// Provides small text functions: quoting, splitting, names for file systems, and numbers.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lazyck::rt {

using Strings = std::vector<std::string>;

// Returns `word` quoted so that a shell reads it as one word. Control characters are quoted in
// bash's way ($'\x1b'), so that the result can be shown.
std::string shell_quote(std::string_view word);
std::string shell_join(const Strings& words);

// Returns the non-empty parts of `text` between any of the characters of `separators`.
Strings split(std::string_view text, std::string_view separators);
std::string join(const Strings& parts, std::string_view separator);
// Returns `text` without blanks, tabs and carriage returns at its ends.
std::string without_blanks(const std::string& text);

// Returns `text` with its ASCII letters in lower case.
std::string lower(std::string_view text);
// Returns two digits.
std::string hex(unsigned char byte);

// Returns a readable part of a file name for any text. Letters, digits and "._+-" are kept. A
// changed or long text gets a hash.
std::string safe_name(std::string_view text);

// Returns `text` as one line without hidden contents. Control characters, characters that change
// the order of a line, and bytes that are not UTF-8 appear as \xNN. The middle of a very long text
// is left out.
std::string visible(std::string_view text);
// Does as `visible` for a text of several lines, and keeps the line breaks and tabs.
std::string visible_lines(std::string_view text);

// Returns a JSON string. Bytes that are not UTF-8 become lone surrogates, as in Python's file
// names.
std::string json_string(std::string_view text);

// Builds a JSON object on one line, member by member.
class JsonObject {
 public:
    // Adds a member, unless its value is empty.
    void add(const char* name, const std::string& literal) {
        if (!literal.empty()) m_text += (m_text.empty() ? "{\"" : ", \"") + std::string(name) + "\": " + literal;
    }
    void add_text(const char* name, const std::string& value) {
        if (!value.empty()) add(name, json_string(value));
    }
    std::string text() const { return m_text.empty() ? "{}" : m_text + "}"; }

 private:
    std::string m_text;
};

// Numbers are read and written in one form, whatever language the program has chosen. The C
// library's functions read and write "0,5" if LC_NUMERIC says so.

// Returns `value` with `digits` digits behind the point, at most nine. The result is "0" if the
// value is not finite.
std::string decimal(double value, int digits);

// Returns the number in `text`, which must consist of digits, with at most one point among them,
// and nothing else.
std::optional<double> number_in(std::string_view text);

// Returns the number that `text` begins with, after blanks, and removes what was read from `text`.
// Returns nothing, and leaves `text` without its leading blanks, if there is no number.
std::optional<double> take_number(std::string_view& text);
std::optional<long> take_integer(std::string_view& text);

// Returns a number of seconds such as "90" or "0.5"; nullopt for anything else. `seconds_of` in
// quantities.py accepts the same texts.
std::optional<double> seconds_in(std::string_view text);

// Returns the bytes of a size such as "20G", "1.5 GB", "512MiB", "7B" or "0"; nullopt for anything
// else. All units but B are powers of 1024, in either case. `size_of` in quantities.py accepts the
// same sizes.
std::optional<double> size_in(std::string_view text);

// Returns a size such as "1.5 GB", in powers of 1024, like `show_size` in quantities.py.
std::string size_text(double bytes);

// Returns a time such as "23.1 s".
std::string seconds_text(double seconds);

// These return the message of an errno value, and of a signal's number: "signal 9 (Killed)". The
// text is in English, whatever the program's language: the C library's own functions take locks and
// load files for another language.
std::string system_text(int error);
std::string signal_text(int signal);

// Returns the seconds since 1970.
double now_seconds();

// Returns the seconds since then, by a clock that cannot be set.
double seconds_since(std::chrono::steady_clock::time_point then);

// Returns `seconds` since 1970 as "2026-11-23 06:22:18 UTC". The C library's functions would read
// the time zone's files, under a lock.
std::string utc_text(std::int64_t seconds);

}  // namespace lazyck::rt
