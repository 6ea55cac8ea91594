# The project's own build: `sh build.sh ARCH shared|static`, in a directory of its own; ARCH as nvcc's -gencode has it.
set -e
here=$(cd "$(dirname "$0")" && pwd)
for source in api kernels; do
    nvcc -std=c++17 -O2 -gencode "$1" -Xcompiler -fPIC -c "$here/$source.cu" -o "$source.o"
done
nvcc -shared api.o kernels.o -o liblate.so -cudart "$2"
