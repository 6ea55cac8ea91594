// The machines that code is for: by the number that ELF files give them, and by the name that `uname -m` prints.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lazyck::rt {

// The machine that this code itself is for.
std::uint16_t own_machine();

// "aarch64"; "ELF machine 8" for one without a name here.
std::string machine_name(std::uint16_t machine);

// 0 for a name that is none.
std::uint16_t machine_of(std::string_view name);

}  // namespace lazyck::rt
