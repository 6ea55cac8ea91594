// The function that a lazy call comes from, as this library's machine code has it.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

namespace lazyck::rt {

// The slots of all lazy functions that the function calls to which `return_address` belongs, each once, in the order of
// its code; none where that function is not this library's own or cannot be told, or calls more than `most`. `slot_of`
// answers which slot a symbol has, -1 for none: what the loader has not bound yet is known by name. On x86-64 only.
std::vector<std::uint32_t> slots_called_beside(const void* return_address, std::size_t most,
                                               const std::function<std::int64_t(std::string_view)>& slot_of);

// What a mangled name is an instance of: `_Z1fIiEvT_` of `_Z1f`. "" where it is no instance of a template, or a name
// that is not read here (one that begins with an operator, say).
std::string_view template_of(std::string_view mangled);

}  // namespace lazyck::rt
