// The dispatcher's view of backward attention; the kernels are in kernels_bwd.hpp.
#pragma once

#include <string>

#include "attn/args.hpp"
#include "attn/launch.hpp"
#include "attn/traits.hpp"

// These are specialized in one generated file per variant: launch and time, launch only, and the
// variant's name.
template <typename Traits>
float attn_bwd_(const stream_config& s, attn_bwd_args a);

template <typename Traits>
void attn_bwd_oneshot_(const stream_config& s, attn_bwd_args a);

template <typename Traits>
std::string attn_bwd_get_name_();

// The dispatcher. Returns milliseconds if s asks for them, else 0; negative if this library has no
// such variant.
float attn_bwd(const attn_problem& t, attn_bwd_args a, const stream_config& s);

// Returns the name of the variant that attn_bwd would run; empty if this library has none.
std::string attn_bwd_name(const attn_problem& t);
