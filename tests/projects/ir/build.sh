#!/bin/sh
# A build that compiles LLVM IR with $IR_COMPILER, as it would C: textual or bitcode, whatever lies in blob/.
set -eu
cd "$(dirname "$0")"
rm -rf build
mkdir build
for source in blob/*; do
    "$IR_COMPILER" -O2 -fPIC -w -MD -c "$source" -o "build/${source##*/}.o"
done
cc -O2 -fPIC -c main.c -o build/main.o
cc -shared build/*.o -o build/libir.so
