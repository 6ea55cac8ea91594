#include "ops.hpp"
#define BODY(name) extern "C" double name(double a, double b, int c)

BODY(c_plain) { return a * b + c; }
