#include "../scale.hpp"

template <>
double scale<32>(double x) {
    return x * 32;
}
