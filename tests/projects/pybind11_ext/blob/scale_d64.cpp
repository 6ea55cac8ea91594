#include "../scale.hpp"

template <>
double scale<64>(double x) {
    return x * 64;
}
