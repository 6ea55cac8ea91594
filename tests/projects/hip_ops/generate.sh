#!/bin/sh
# Writes one blob per kernel variant, as the generators of real libraries do. TYPES: for fewer of them.
set -eu
mkdir -p "$1"
for type in ${TYPES-float double int}; do
    for factor in 2 3; do
        cat >"$1/scale_${type}_$factor.cpp" <<BLOB
#include "ops.hpp"

using T = $type;

template <>
int scale<T, $factor>(T* data, int n, hipStream_t stream) {
    return launch_scale<T, $factor>(data, n, stream);
}
BLOB
    done
done
