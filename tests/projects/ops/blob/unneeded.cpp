#include "ops.hpp"

template <>
float run_special<Traits<256, true>>(const Args&) {
    return -1;
}
