# The project's own build: `sh build.sh ARCH shared|static`, in a directory of its own; ARCH as nvcc's -gencode has it.
set -e
here=$(cd "$(dirname "$0")" && pwd)
{
    printf 'rule compile\n command = nvcc -std=c++17 -O2 -gencode %s -I%s -Xcompiler -fPIC -c $in -o $out\n' "$1" "$here"
    printf 'rule link\n command = nvcc -shared $in -o $out -cudart %s -Xcompiler -pthread\n' "$2"
    objects=
    for source in "$here"/api.cpp "$here"/blob/*.cu; do
        object=$(basename "$source").o
        printf 'build %s: compile %s\n' "$object" "$source"
        objects="$objects $object"
    done
    printf 'build liblaunches.so: link%s\n' "$objects"
} > build.ninja
ninja --quiet
