#!/bin/sh
# Builds the fuzz targets and runs each for SECONDS (0: the corpus only), one after the other:
#     tests/fuzz/run.sh [SECONDS [TARGET...]]
# LAZYCK_FUZZ_DIR keeps what is built and found (default: a directory that is removed); LAZYCK_FUZZ_RUNS bounds the
# executions of each target; PYTHON is a Python that finds lazyck. Ends with status 77 where there is no clang with libFuzzer.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
repo=$(dirname "$(dirname "$here")")
seconds=${1:-60}
[ $# -eq 0 ] || shift
out=${LAZYCK_FUZZ_DIR:-}
if [ -z "$out" ]; then
    out=$(mktemp -d)
    trap 'rm -rf "$out"' EXIT
fi
mkdir -p "$out"
python=${PYTHON:-python3}
export PYTHONPATH="$repo${PYTHONPATH:+:$PYTHONPATH}"
clang=$(command -v clang-19 || command -v clang || true)
clangxx=$(command -v clang++-19 || command -v clang++ || true)
flags="-g -O1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all"
echo 'int LLVMFuzzerTestOneInput(const char* d, unsigned long n) { return d && n > 9 ? 0 : 0; }' > "$out/try.c"
if [ -z "$clang" ] || [ -z "$clangxx" ] || ! "$clang" $flags "$out/try.c" -o "$out/try" 2> "$out/try.log"; then
    echo "no clang with libFuzzer (Debian: clang-19 libclang-rt-19-dev)"
    exit 77
fi
"$python" -c 'from lazyck import abi; print(abi.render_header(), end="")' > "$out/lazyck_abi.h"
"$python" "$here/seeds.py" conf "$out/shim.conf"
export LAZYCK_FUZZ_CONF="$out/shim.conf"
# what the libraries keep to the end is no leak
export ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1
src=$repo/lazyck/runtime/src
shim=$repo/lazyck/interceptor

build() { # target, sources
    target=$1
    shift
    case $target in
    shim_*) "$clang" $flags -std=gnu11 -include "$here/arena.h" -I "$shim" -I "$out" "$here/$target.c" "$@" -o "$out/$target" ;;
    *) "$clangxx" $flags -std=c++17 -iquote "$src" -I "$out" "$here/$target.cpp" "$@" -o "$out/$target" -ldl -pthread ;;
    esac
}
base="$src/failure.cpp $src/text.cpp $src/hash.cpp $src/files.cpp"
for target in ${@:-manifest elf entry shim_words shim_includes shim_headers}; do
    case $target in
    manifest) build manifest "$src/manifest_view.cpp" "$src/machine.cpp" $base ;;
    elf) build elf "$src/elf_view.cpp" ;;
    entry) build entry "$src/elf_view.cpp" "$src/machine.cpp" "$src/checked_file.cpp" "$src/memory_file.cpp" $base ;;
    shim_words) build shim_words "$shim/classify.c" "$shim/inputs.c" "$shim/record.c" "$shim/object.c" "$shim/depfile.c" ;;
    shim_includes) build shim_includes "$shim/object.c" ;;
    shim_headers) build shim_headers "$shim/includes.c" "$shim/object.c" ;;
    *) echo "no target $target" && exit 2 ;;
    esac
    mkdir -p "$out/found/$target" "$out/work"
    limit="-max_total_time=$seconds"
    [ "$seconds" != 0 ] || limit="-runs=${LAZYCK_FUZZ_RUNS:-2000}"
    echo "== $target"
    (cd "$out/work" && "$out/$target" $limit -max_len=20000 -timeout=10 -rss_limit_mb=2048 -malloc_limit_mb=512 \
        -artifact_prefix="$out/$target-" -print_final_stats=1 "$out/found/$target" "$here/corpus/$target" \
        > "$out/$target.log" 2>&1) || { tail -60 "$out/$target.log"; exit 1; }
    grep -E 'number_of_executed_units|peak_rss_mb' "$out/$target.log"
done
