// Small text functions: quoting, splitting, names that are fit for file systems.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lazyck::rt {

using Strings = std::vector<std::string>;

// `word` so that a shell reads it as one word; with control characters in bash's way ($'\x1b'), so that it can be
// shown.
std::string shell_quote(std::string_view word);
std::string shell_join(const Strings& words);

// The non-empty parts of `text` between any of the characters of `separators`.
Strings split(std::string_view text, std::string_view separators);
std::string join(const Strings& parts, std::string_view separator);

// A readable file name part for any text: letters, digits and "._+-" stay; a changed or long one gets a hash.
std::string safe_name(std::string_view text);

// `text` as one line that shows what is in it: control characters, those that change the order of a line, and bytes
// that are not UTF-8 as \xNN; the middle of a very long one is left out.
std::string visible(std::string_view text);
// The same for a text of several lines, which stay lines.
std::string visible_lines(std::string_view text);

// A JSON string. Bytes that are not UTF-8 become lone surrogates, as Python's file names have them.
std::string json_string(std::string_view text);

// Seconds as "23.1 s".
std::string seconds_text(double seconds);

// Message of an errno value, and of a signal's number: "signal 9 (Killed)". In English, whatever the program's
// language: the C library's own texts take locks and load files for another one.
std::string system_text(int error);
std::string signal_text(int signal);

// Seconds since 1970 as "2026-11-23 06:22:18 UTC". The C library's functions read the time zone's files, under a lock.
std::string utc_text(std::int64_t seconds);

}  // namespace lazyck::rt
