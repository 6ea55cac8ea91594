#include "base/text.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <csignal>
#include <iterator>

#include "base/hash.h"
#include "lazyck_abi.h"

namespace lazyck::rt {

std::string hex(unsigned char byte) {
    constexpr char k_digits[] = "0123456789abcdef";
    return {k_digits[byte >> 4], k_digits[byte & 15]};
}

namespace {

constexpr std::size_t k_longest_file_name = 160;
constexpr std::size_t k_longest_shown = 16 * 1024;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_alnum(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c); }

bool is_one_of(char c, std::string_view set) { return set.find(c) != std::string_view::npos; }

// Returns the length of the UTF-8 sequence at the start of `text`, or 0 if there is none.
std::size_t utf8_length(std::string_view text) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    const unsigned char first = byte(0);
    std::size_t length = first < 0x80 ? 1 : first >= 0xc2 && first < 0xe0 ? 2 : first >= 0xe0 && first < 0xf0 ? 3 : 0;
    if (first >= 0xf0 && first < 0xf5) length = 4;
    if (length == 0 || length > text.size()) return 0;
    for (std::size_t i = 1; i < length; ++i) {
        if ((byte(i) & 0xc0) != 0x80) return 0;
    }
    if (length == 3 && ((first == 0xe0 && byte(1) < 0xa0) || (first == 0xed && byte(1) >= 0xa0))) return 0;
    if (length == 4 && ((first == 0xf0 && byte(1) < 0x90) || (first == 0xf4 && byte(1) >= 0x90))) return 0;
    return length;
}

// Returns whether the character at the start of `text` (UTF-8, `length` bytes) moves the cursor,
// sets colours, begins a line or changes the writing direction: C0, DEL, C1, U+2028 to U+202E,
// U+2066 to U+2069.
bool is_control(std::string_view text, std::size_t length) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    if (length == 1) return byte(0) < 0x20 || byte(0) == 0x7f;
    if (length == 2) return byte(0) == 0xc2 && byte(1) < 0xa0;
    if (length != 3 || byte(0) != 0xe2) return false;
    return (byte(1) == 0x80 && byte(2) >= 0xa8 && byte(2) <= 0xae) ||
           (byte(1) == 0x81 && byte(2) >= 0xa6 && byte(2) <= 0xa9);
}

std::string escaped(std::string_view text, bool keeps_lines) {
    std::string out;
    for (std::size_t i = 0; i < text.size();) {
        const std::size_t length = utf8_length(text.substr(i));
        const std::size_t taken = length == 0 ? 1 : length;
        const bool is_kept_line = keeps_lines && (text[i] == '\n' || text[i] == '\t');
        if (is_kept_line || (length != 0 && !is_control(text.substr(i), length))) {
            out += text.substr(i, taken);
        } else {
            for (std::size_t k = 0; k < taken; ++k) {
                out += "\\x" + hex(static_cast<unsigned char>(text[i + k]));
            }
        }
        i += taken;
    }
    return out;
}

bool has_control(std::string_view text) { return escaped(text, false).size() != text.size(); }

std::string two_digits(long value) { return (value < 10 ? "0" : "") + std::to_string(value); }

void skip_blanks(std::string_view& text) {
    while (!text.empty() && (text[0] == ' ' || text[0] == '\t')) text.remove_prefix(1);
}

struct Named {
    int number;
    const char* text;
};

// Lists the errors of files, processes and sockets.
constexpr Named k_errors[] = {
    {EPERM, "Operation not permitted"},
    {ENOENT, "No such file or directory"},
    {ESRCH, "No such process"},
    {EINTR, "Interrupted system call"},
    {EIO, "Input/output error"},
    {ENXIO, "No such device or address"},
    {E2BIG, "Argument list too long"},
    {ENOEXEC, "Exec format error"},
    {EBADF, "Bad file descriptor"},
    {ECHILD, "No child processes"},
    {EAGAIN, "Resource temporarily unavailable"},
    {ENOMEM, "Cannot allocate memory"},
    {EACCES, "Permission denied"},
    {EFAULT, "Bad address"},
    {EBUSY, "Device or resource busy"},
    {EEXIST, "File exists"},
    {EXDEV, "Invalid cross-device link"},
    {ENODEV, "No such device"},
    {ENOTDIR, "Not a directory"},
    {EISDIR, "Is a directory"},
    {EINVAL, "Invalid argument"},
    {ENFILE, "Too many open files in system"},
    {EMFILE, "Too many open files"},
    {ENOTTY, "Inappropriate ioctl for device"},
    {ETXTBSY, "Text file busy"},
    {EFBIG, "File too large"},
    {ENOSPC, "No space left on device"},
    {ESPIPE, "Illegal seek"},
    {EROFS, "Read-only file system"},
    {EMLINK, "Too many links"},
    {EPIPE, "Broken pipe"},
    {ENAMETOOLONG, "File name too long"},
    {ENOLCK, "No locks available"},
    {ENOSYS, "Function not implemented"},
    {ENOTEMPTY, "Directory not empty"},
    {ELOOP, "Too many levels of symbolic links"},
    {EOVERFLOW, "Value too large for defined data type"},
    {EOPNOTSUPP, "Operation not supported"},
    {ECONNRESET, "Connection reset by peer"},
    {ETIMEDOUT, "Connection timed out"},
    {ESTALE, "Stale file handle"},
    {EDQUOT, "Disk quota exceeded"},
    {ECANCELED, "Operation canceled"},
    {EREMOTEIO, "Remote I/O error"},
};

constexpr Named k_signals[] = {
    {SIGHUP, "Hangup"},
    {SIGINT, "Interrupt"},
    {SIGQUIT, "Quit"},
    {SIGILL, "Illegal instruction"},
    {SIGTRAP, "Trace/breakpoint trap"},
    {SIGABRT, "Aborted"},
    {SIGBUS, "Bus error"},
    {SIGFPE, "Floating point exception"},
    {SIGKILL, "Killed"},
    {SIGSEGV, "Segmentation fault"},
    {SIGPIPE, "Broken pipe"},
    {SIGALRM, "Alarm clock"},
    {SIGTERM, "Terminated"},
    {SIGXCPU, "CPU time limit exceeded"},
    {SIGXFSZ, "File size limit exceeded"},
    {SIGSYS, "Bad system call"},
};

}  // namespace

std::string visible(std::string_view text) {
    if (text.size() <= k_longest_shown) return escaped(text, false);
    const std::size_t part = k_longest_shown / 2;
    return escaped(text.substr(0, part), false) + " [...] " + escaped(text.substr(text.size() - part), false);
}

std::string visible_lines(std::string_view text) { return escaped(text, true); }

std::string shell_quote(std::string_view word) {
    if (has_control(word)) {
        std::string inner;
        for (const char c : word) inner += c == '\\' || c == '\'' ? std::string("\\") + c : std::string(1, c);
        return "$'" + escaped(inner, false) + "'";
    }
    const auto is_plain = [](char c) { return is_alnum(c) || is_one_of(c, "_@%+=:,./-"); };
    if (!word.empty() && std::all_of(word.begin(), word.end(), is_plain)) return std::string(word);
    std::string out = "'";
    for (const char c : word) out += c == '\'' ? "'\"'\"'" : std::string(1, c);
    return out + "'";
}

std::string shell_join(const Strings& words) {
    Strings quoted;
    for (const std::string& word : words) quoted.push_back(shell_quote(word));
    return join(quoted, " ");
}

Strings split(std::string_view text, std::string_view separators) {
    Strings parts;
    std::size_t at = 0;
    while ((at = text.find_first_not_of(separators, at)) != std::string_view::npos) {
        const std::size_t end = text.find_first_of(separators, at);
        parts.emplace_back(text.substr(at, end == std::string_view::npos ? end : end - at));
        at = end;
        if (end == std::string_view::npos) break;
    }
    return parts;
}

std::string without_blanks(const std::string& text) {
    const std::size_t first = text.find_first_not_of(" \t\r");
    return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

std::string join(const Strings& parts, std::string_view separator) {
    std::string out;
    for (std::size_t i = 0; i < parts.size(); ++i) {
        if (i > 0) out += separator;
        out += parts[i];
    }
    return out;
}

std::string lower(std::string_view text) {
    std::string out(text);
    for (char& c : out) {
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    }
    return out;
}

std::string safe_name(std::string_view text) {
    std::string out;
    for (const char c : text.substr(0, k_longest_file_name)) out += is_alnum(c) || is_one_of(c, "._+-") ? c : '_';
    if (out.empty()) return "_";
    if (out[0] == '.' || out[0] == '-') out[0] = '_';
    if (out != text) out += "~" + hash(text).hex().substr(0, 8);
    return out;
}

std::string json_string(std::string_view text) {
    std::string out = "\"";
    for (std::size_t i = 0; i < text.size();) {
        const std::size_t length = utf8_length(text.substr(i));
        const auto byte = static_cast<unsigned char>(text[i]);
        if (length > 1) {
            out += text.substr(i, length);
        } else if (length == 0) {
            out += "\\udc" + hex(byte);
        } else if (byte < 0x20) {
            out += "\\u00" + hex(byte);
        } else {
            if (byte == '"' || byte == '\\') out += '\\';
            out += text[i];
        }
        i += length == 0 ? 1 : length;
    }
    return out + "\"";
}

// Uses integers, since the C++ library has to_chars and from_chars for floating point only since
// GCC 11.
std::string decimal(double value, int digits) {
    double scale = 1;
    for (int i = 0; i < digits; ++i) scale *= 10;
    const double scaled = value * scale;
    if (!(scaled > -9e18 && scaled < 9e18)) return "0";
    const auto rounded = static_cast<std::int64_t>(scaled < 0 ? scaled - 0.5 : scaled + 0.5);
    std::string text = std::to_string(rounded < 0 ? -rounded : rounded);
    const auto behind = static_cast<std::size_t>(digits);
    if (text.size() <= behind) text.insert(0, behind + 1 - text.size(), '0');
    if (behind > 0) text.insert(text.size() - behind, ".");
    return rounded < 0 ? "-" + text : text;
}

std::optional<double> take_number(std::string_view& text) {
    skip_blanks(text);
    std::string_view rest = text;
    double value = 0, scale = 1;
    bool has_digits = false, is_behind = false;
    while (!rest.empty() && (is_digit(rest[0]) || (rest[0] == '.' && !is_behind))) {
        if (rest[0] == '.') {
            is_behind = true;
        } else {
            value = 10 * value + (rest[0] - '0');
            if (is_behind) scale *= 10;
            has_digits = true;
        }
        rest.remove_prefix(1);
    }
    if (!has_digits || !std::isfinite(value) || !std::isfinite(scale)) return std::nullopt;
    text = rest;
    return value / scale;
}

std::optional<long> take_integer(std::string_view& text) {
    skip_blanks(text);
    long value = 0;
    const auto end = std::from_chars(text.data(), text.data() + text.size(), value);
    if (end.ec != std::errc()) return std::nullopt;
    text.remove_prefix(static_cast<std::size_t>(end.ptr - text.data()));
    return value;
}

std::optional<double> number_in(std::string_view text) {
    if (text.empty() || text[0] == ' ' || text[0] == '\t') return std::nullopt;
    const std::optional<double> value = take_number(text);
    return text.empty() ? value : std::nullopt;
}

std::optional<double> seconds_in(std::string_view text) {
    const std::optional<double> seconds = number_in(text);
    return seconds && *seconds <= LAZYCK_LONGEST_SECONDS ? seconds : std::nullopt;
}

std::optional<double> size_in(std::string_view text) {
    if (text.empty() || text[0] == ' ' || text[0] == '\t') return std::nullopt;
    const std::optional<double> number = take_number(text);
    if (!number) return std::nullopt;
    if (text.empty()) return *number == 0 ? number : std::nullopt;  // a bare 20 could mean anything
    const std::string unit = lower(text[0] == ' ' ? text.substr(1) : text);
    double bytes = *number;
    if (unit != "b") {
        const std::size_t power = unit.empty() ? std::string::npos : std::string_view("kmgt").find(unit[0]);
        const std::string rest = unit.substr(unit.empty() ? 0 : 1);
        if (power == std::string::npos || (!rest.empty() && rest != "b" && rest != "ib")) return std::nullopt;
        for (std::size_t i = 0; i <= power; ++i) bytes *= 1024;
    }
    return bytes < LAZYCK_TOO_MANY_BYTES ? std::optional<double>(bytes) : std::nullopt;
}

std::string size_text(double bytes) {
    constexpr const char* units[] = {" B", " KB", " MB", " GB", " TB"};
    std::size_t unit = 0;
    for (; bytes >= 999.5 && unit + 1 < std::size(units); ++unit) bytes /= 1024;
    return decimal(bytes, unit > 0 && bytes < 99.95 ? 1 : 0) + units[unit];
}

std::string seconds_text(double seconds) { return decimal(seconds, 1) + " s"; }

std::string system_text(int error) {
    for (const Named& each : k_errors) {
        if (each.number == error) return each.text;
    }
    return "error " + std::to_string(error);
}

std::string signal_text(int signal) {
    std::string text = "signal " + std::to_string(signal);
    for (const Named& each : k_signals) {
        if (each.number == signal) text += " (" + std::string(each.text) + ")";
    }
    return text;
}

double now_seconds() {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

double seconds_since(std::chrono::steady_clock::time_point then) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - then).count();
}

// Computes the proleptic Gregorian calendar, in eras of 400 years that begin in March: see
// https://howardhinnant.github.io/date_algorithms.html (civil_from_days).
std::string utc_text(std::int64_t seconds) {
    constexpr std::int64_t k_day = 86400, k_era = 146097;
    const std::int64_t day = seconds >= 0 ? seconds / k_day : (seconds - k_day + 1) / k_day;
    const auto second = static_cast<long>(seconds - day * k_day);
    const std::int64_t shifted = day + 719468;
    const std::int64_t era = (shifted >= 0 ? shifted : shifted - k_era + 1) / k_era;
    const std::int64_t day_of_era = shifted - era * k_era;
    const std::int64_t year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / (k_era - 1)) / 365;
    const std::int64_t day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    const std::int64_t from_march = (5 * day_of_year + 2) / 153;
    const std::int64_t month = from_march < 10 ? from_march + 3 : from_march - 9;
    const std::int64_t year = year_of_era + era * 400 + (month <= 2 ? 1 : 0);
    const std::int64_t in_month = day_of_year - (153 * from_march + 2) / 5 + 1;
    return std::to_string(year) + "-" + two_digits(month) + "-" + two_digits(in_month) + " " +
           two_digits(second / 3600) + ":" + two_digits(second / 60 % 60) + ":" + two_digits(second % 60) + " UTC";
}

}  // namespace lazyck::rt
