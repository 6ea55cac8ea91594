#include "ops.hpp"

using trait_0 = Traits<128, true>;

template <>
float run_special<trait_0>(const Args& args) {
    float sum = 0;
    for (int i = 0; i < args.n; ++i) sum += args.out[i] = args.in[i] * 128 + (true ? 1 : 0);
    return sum;
}
