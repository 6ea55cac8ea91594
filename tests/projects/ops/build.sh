#!/bin/sh
# The project's own build: knows nothing of lazyck. OUT is where it goes.
set -e
cd "$(dirname "$0")"
OUT=${OUT:-build}
mkdir -p "$OUT"
CXX=${CXX:-c++}
for source in dispatch.cpp blob/*.cpp; do
    # unquoted: CXX may be several words
    $CXX -std=c++17 -O1 -fPIC -Wall -Iinclude -c "$source" -o "$OUT/$(basename "$source" .cpp).o"
done
$CXX -shared -o "$OUT/libops.so" "$OUT"/*.o
