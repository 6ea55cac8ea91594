// For machines whose machine code is not read: a call does not reveal its caller's other calls.
#pragma once

namespace lazyck::rt::machine {

constexpr std::size_t k_longest_call = 0, k_longest_jump = 0;

inline CallTarget call_at(std::uintptr_t) { return {}; }
inline std::uintptr_t jump_at(std::uintptr_t) { return 0; }
inline std::optional<std::uint32_t> number_pushed_at(std::uintptr_t) { return std::nullopt; }
inline const void* return_address(const std::uintptr_t*) { return nullptr; }

}  // namespace lazyck::rt::machine
