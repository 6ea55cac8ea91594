// The dispatcher's view of forward attention; the kernels are in kernels_fwd.hpp.
#pragma once

#include "attn/args.hpp"
#include "attn/launch.hpp"
#include "attn/traits.hpp"

// This is specialized in one generated file per variant.
template <typename Traits>
float attn_fwd_(const stream_config& s, attn_fwd_args a);

// The dispatcher. Returns milliseconds if s asks for them, else 0; negative if this library has no
// such variant.
float attn_fwd(const attn_problem& t, attn_fwd_args a, const stream_config& s);
