#include "scale.hpp"

template <>
double run_scale<Traits<64>>(double x) {
    return x * Traits<64>::dim + offset();
}
