#!/bin/sh
# Runs the fuzz targets under libFuzzer, one after the other, each for SECONDS (0: its corpus and
# some more inputs; default: 60):
#     tests/fuzz/run.sh [SECONDS [TARGET...]]
# Targets in C and C++ are built with ASan and UBSan. Targets named py_* (python_targets.py) run
# under atheris. LAZYCK_FUZZ_DIR keeps what is built and found. The default is a directory that is
# removed unless a target fails. LAZYCK_FUZZ_RUNS is the number of inputs if SECONDS is 0. PYTHON is
# a Python that finds lazyck.
# Status 1: an input made a target fail, or take more than 10 s or 2 GB. The input's file is named.
# Status 77: there is no clang with libFuzzer, or no atheris. The targets that do not need it were
# run.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
repo=$(dirname "$(dirname "$here")")
seconds=${1:-60}
[ $# -eq 0 ] || shift
out=${LAZYCK_FUZZ_DIR:-}
failed=
temporary=
[ -n "$out" ] || temporary=$(mktemp -d)
out=${out:-$temporary}
mkdir -p "$out"
out=$(cd "$out" && pwd)
# The directory is in memory if possible, since targets write a file for each input.
work=$(mktemp -d -p /dev/shm 2> /dev/null || mktemp -d)
trap 'rm -rf "$work"; [ -n "$failed" ] || [ -z "$temporary" ] || rm -rf "$temporary"' EXIT
trap 'exit 1' HUP INT TERM
python=${PYTHON:-python3}
case $python in */*) python=$(cd "$(dirname "$python")" && pwd)/${python##*/} ;; esac
export PYTHONPATH="$repo:$repo/tests${PYTHONPATH:+:$PYTHONPATH}"
clang=$(command -v clang-19 || command -v clang || true)
clangxx=$(command -v clang++-19 || command -v clang++ || true)
level=-O1
[ "$seconds" != 0 ] || level=-O0 # for a few inputs, most of the time goes into compiling
flags="-g $level -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all"
export LAZYCK_FUZZ_CONF="$out/shim.conf"
# Memory that the libraries keep to the end is no leak.
export ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1
src=$repo/lazyck/runtime/src
shim=$repo/lazyck/interceptor

find_python() { "$python" "$here/run_python.py"; }
find_native() {
    echo 'int LLVMFuzzerTestOneInput(const char* d, unsigned long n) { return d && n > 9 ? 0 : 0; }' > "$out/try.c"
    if [ -z "$clang" ] || [ -z "$clangxx" ] || ! "$clang" $flags "$out/try.c" -o "$out/try" 2> "$out/try.log"; then
        echo "no clang with libFuzzer (Debian: clang-19 libclang-rt-19-dev)"
        return 77
    fi
    "$python" -c 'from lazyck.formats.c_header import render_header; print(render_header(), end="")' > "$out/lazyck_abi.h" &&
        "$python" "$here/seeds.py" conf "$out/shim.conf"
}
has() { # python or native: whether its targets can run here; what is missing is said once
    eval "found=\${found_$1:-}"
    if [ -z "$found" ]; then
        found=0
        "find_$1" || found=$?
        case $found in 0 | 77) eval "found_$1=$found" ;; *) exit 1 ;; esac
    fi
    [ "$found" = 0 ]
}

build() { # target, sources
    target=$1
    shift
    case $target in
    shim_*)
        # The files of the shim that the target does not include, and that have no main().
        for source in "$shim"/*.c; do
            grep -qF "interceptor/${source##*/}\"" "$here/$target.c" || grep -qF 'int main(' "$source" || set -- "$@" "$source"
        done
        "$clang" $flags -std=gnu11 -include "$here/arena.h" -I "$shim" -I "$out" "$here/$target.c" "$@" -o "$out/$target"
        ;;
    *)
        # As one source, they read the headers of the C++ library once.
        printf '#include "%s"\n' "$here/$target.cpp" "$@" > "$out/$target.cpp"
        "$clangxx" $flags -std=c++17 -iquote "$src" -I "$out" "$out/$target.cpp" -o "$out/$target" -ldl -pthread
        ;;
    esac
}
base="$src/base/failure.cpp $src/base/text.cpp $src/base/hash.cpp $src/platform/files.cpp"
native="manifest elf entry shim_words shim_includes shim_headers"
decoders="py_manifest py_record py_elf py_archive py_compile_commands py_log py_words py_remote"
missing=
for target in ${@:-$native $decoders}; do
    case " $native $decoders " in *" $target "*) ;; *) echo "no target $target" && exit 2 ;; esac
    echo "== $target"
    case $target in py_*) kind=python ;; *) kind=native ;; esac
    if ! has $kind; then
        missing=yes
        continue
    fi
    set -- "$out/$target"
    case $target in
    manifest) build manifest "$src/bundle/manifest_view.cpp" "$src/platform/cpu.cpp" "$src/platform/elf_view.cpp" $base ;;
    elf) build elf "$src/platform/elf_view.cpp" ;;
    entry) build entry "$src/platform/elf_view.cpp" "$src/cache/checked_file.cpp" "$src/cache/front.cpp" "$src/cache/loader_names.cpp" "$src/platform/empty_library.cpp" "$src/platform/process_tree.cpp" "$src/platform/memory_file.cpp" "$src/cache/cache.cpp" \
        "$src/cache/costs.cpp" "$src/platform/staging.cpp" "$src/platform/environment.cpp" $base ;;
    shim_*) build "$target" ;;
    *) set -- "$python" "$here/run_python.py" "--$target" ;;
    esac
    limit="-max_total_time=$seconds"
    [ "$seconds" != 0 ] || limit="-runs=${LAZYCK_FUZZ_RUNS:-2000}"
    set -- "$@" $limit -max_len=20000 -timeout=10 -rss_limit_mb=2048 -malloc_limit_mb=512 \
        -artifact_prefix="$out/$target-" -print_final_stats=1 "$out/found/$target" "$here/corpus/$target"
    mkdir -p "$out/found/$target"
    case $target in
    # The runtime's decoder of the same format has inputs too.
    py_manifest | py_elf) set -- "$@" "$here/corpus/${target#py_}" ;;
    py_words)
        "$python" "$here/seeds.py" options "$out/options"
        set -- "$@" -dict="$out/options"
        ;;
    esac
    (cd "$work" && "$@" > "$out/$target.log" 2>&1) || failed=yes
    if [ -n "$failed" ]; then
        tail -60 "$out/$target.log"
        echo "$target failed; the input: $(echo "$out/$target"-*)"
        exit 1
    fi
    grep -E 'number_of_executed_units|peak_rss_mb' "$out/$target.log"
done
[ -z "$missing" ] || exit 77
