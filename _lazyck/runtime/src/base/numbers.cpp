#include "base/numbers.h"

#include <charconv>
#include <cmath>
#include <cstdint>
#include <iterator>

#include "lazyck_abi.h"

namespace lazyck::rt {

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

void skip_blanks(std::string_view& text) {
    while (!text.empty() && (text[0] == ' ' || text[0] == '\t')) text.remove_prefix(1);
}

}  // namespace

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
    double value = 0, unit = 1;
    bool has_digits = false, is_behind = false;
    while (!rest.empty() && (is_digit(rest[0]) || (rest[0] == '.' && !is_behind))) {
        if (rest[0] == '.') {
            is_behind = true;
        } else {
            value = 10 * value + (rest[0] - '0');
            if (is_behind) unit *= 10;
            has_digits = true;
        }
        rest.remove_prefix(1);
    }
    if (!has_digits || !std::isfinite(value) || !std::isfinite(unit)) return std::nullopt;
    text = rest;
    return value / unit;
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
    std::string unit;
    for (const char c : text[0] == ' ' ? text.substr(1) : text) {
        unit += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    }
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

}  // namespace lazyck::rt
