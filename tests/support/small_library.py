"""Sources of a library with two blobs, and a program that calls one and catches its failure."""

HEADER = "#pragma once\nint add(int, int); int sub(int, int); int use(int);\n"


BLOBS = {
    "add": '#include "demo.h"\nint add(int a, int b) { return a + b; }\n',
    "sub": '#include "demo.h"\nint sub(int a, int b) { return a - b; }\n',
}


MAIN = '#include "demo.h"\nint use(int x) { return add(x, x); }\n'


SYMBOLS = {"add": ("_Z3addii",), "sub": ("_Z3subii",)}


CALL_CAUGHT = r"""
#include "demo.h"
#include "error.hpp"
#include <cstdio>
int main() {
    try { std::printf("%d\n", use(4)); return 0; }
    catch (const lazyck::CompileError& e) { std::puts(e.what()); return 3; }
}
"""
