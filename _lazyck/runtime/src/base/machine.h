// Names the machines that code is for: by their number in ELF files, and by the name that
// `uname -m` prints.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lazyck::rt {

// Returns the machine that this code was compiled for.
std::uint16_t own_machine();

// Returns the machine's name, such as "aarch64", or "ELF machine 8" if it has no name here.
std::string machine_name(std::uint16_t machine);

// Returns the number of the machine called `name`, or 0 if the name is unknown.
std::uint16_t machine_of(std::string_view name);

}  // namespace lazyck::rt
