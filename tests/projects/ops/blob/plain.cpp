#include "ops.hpp"

namespace {
float helper(float x) { return x * 2; }
}  // namespace

float ops::plain(float x) { return helper(x) + 1; }
