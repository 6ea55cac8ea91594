#ifndef LATER
#define LATER 0
#endif
#include "../both0.h"
extern "C" int f0(int x) { return x * 3 + 0 + LATER + s0++; }
