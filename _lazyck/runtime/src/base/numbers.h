// Reads and writes numbers in one form, whatever language the program has chosen. The C library's
// functions read and write "0,5" if LC_NUMERIC says so.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace lazyck::rt {

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

}  // namespace lazyck::rt
