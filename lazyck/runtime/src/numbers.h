// Numbers as text in one form, whatever language the program has chosen: the C library's own functions write and read
// "0,5" where its LC_NUMERIC says so.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace lazyck::rt {

// `value` with `digits` of them behind the point, at most nine; "0" for what is not finite.
std::string decimal(double value, int digits);

// The number that `text` is: digits, with a point among them or none, and nothing else.
std::optional<double> number_in(std::string_view text);

// The number that `text` begins with after blanks, if it does. Takes what it has read away from `text`.
std::optional<double> take_number(std::string_view& text);
std::optional<long> take_integer(std::string_view& text);

// The bytes of a size such as "20G", "1.5 GB", "512MiB", "7B" or "0"; nullopt for anything else. `size_of` of
// quantities.py has the same grammar: all units but B are powers of 1024, in either case.
std::optional<double> size_in(std::string_view text);

// "1.5 GB", in powers of 1024, as `show_size` of quantities.py.
std::string size_text(double bytes);

}  // namespace lazyck::rt
