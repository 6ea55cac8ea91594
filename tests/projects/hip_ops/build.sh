#!/bin/sh
# A build as many HIP projects have it. HIPCC, ARCHS, OFFLOAD, CXXFLAGS, LINKER and LDFLAGS vary it; OUT is where it goes.
set -eu
cd "$(dirname "$0")"
out=${OUT:-build}
hipcc=${HIPCC:-hipcc}
offload=${OFFLOAD-}
if [ -z "$offload" ]; then
    for arch in $(echo "${ARCHS-gfx90a;gfx1030}" | tr ';,' '  '); do
        offload="$offload --offload-arch=$arch"
    done
fi
mkdir -p "$out"
sh generate.sh "$out/blob"
flags="-O2 -std=c++17 -fPIC -Iinclude ${CXXFLAGS-}"
for source in dispatch.cpp "$out"/blob/*.cpp; do
    $hipcc $flags $offload ${LANGUAGE-} -c "$source" -o "$out/$(basename "$source" .cpp).o"
done
${LINKER:-$hipcc $offload} -shared "$out"/*.o -o "$out/libhipops.so" ${LDFLAGS-}
