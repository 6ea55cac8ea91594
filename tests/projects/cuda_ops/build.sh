#!/bin/sh
# A build as many CUDA projects have it. NVCC, NVCCFLAGS, LINK and LDFLAGS vary it; OUT is where it goes.
set -eu
cd "$(dirname "$0")"
out=${OUT:-build}
mkdir -p "$out"
for source in dispatch.cpp blob/*.cu; do
    ${NVCC:-nvcc} -O2 -std=c++17 -Iinclude -Xcompiler -fPIC ${NVCCFLAGS-} -c "$source" -o "$out/$(basename "$source" .cu).o"
done
${LINK:-${NVCC:-nvcc}} -shared "$out"/*.o -o "$out/libcudaops.so" ${LDFLAGS-}
