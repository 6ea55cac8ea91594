// Finds the function that a lazy call comes from, in this library's machine code.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

namespace lazyck::rt {

// Returns the slots of all lazy functions that are called by the function to which `return_address`
// belongs, each once, in the order of its code. The result is empty if that function is not this
// library's own, cannot be determined, or calls more than `most`. `slot_of` returns the slot of a
// symbol, or -1; it is used for calls that the loader has not bound yet.
std::vector<std::uint32_t> slots_called_beside(const void* return_address, std::size_t most,
                                               const std::function<std::int64_t(std::string_view)>& slot_of);

// Returns the template that a mangled name is an instance of: `_Z1f` for `_Z1fIiEvT_`. Returns an
// empty string if the name is no instance, or has a form that is not parsed (an operator, for
// example).
std::string_view template_of(std::string_view mangled);

}  // namespace lazyck::rt
