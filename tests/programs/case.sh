#!/bin/bash
# Builds the program beside this script ahead of time and lazily, and compares them as
# tests/programs does. LAZYCK=/path/to/lazyck ./case prints PASS or FAIL. `found` says what was
# found, `what` what is compared.
set -u
: "${LAZYCK:?set LAZYCK to the path of the lazyck command}"
here=$(cd "$(dirname "$0")" && pwd)
what=$(cat "$here/what")
W=$(mktemp -d)
trap 'rm -rf "$W"' EXIT
cd "$W" || exit 1
export LAZYCK_CACHE_DIR=$W/cache CI=
fail() {
    echo "FAIL: $*"
    exit 1
}
run() { # SCRIPTS PLACE NAME: what the program prints, and its status
    timeout 20 sh "$1/run.sh" "$2" > "$3.out" 2> "$3.err"
    echo "status $?" >> "$3.out"
}
same() { # STEP SCRIPTS PLACE
    run "$2" "$3" lazy
    cmp -s ahead.out lazy.out || fail "$1: ahead of time: $(tr '\n' ' ' < ahead.out); lazily: $(tr '\n' ' ' < lazy.out)" \
        "$(grep -h 'what()\|error' lazy.err | cut -c1-300 | head -3)"
}
seen() { # PLACE: what others see of the build
    (cd "$1" && find . ! -name 'lib*.so' | sort)
    for library in "$1"/out/libp0.so; do
        [ -e "$library" ] || continue
        case $what in
            "more symbols" | "vague symbols") nm -D --defined-only "$library" | sed 's/.* //; /lazyck/d' | sort ;;
            needed | soname | path | flags) readelf -dW "$library" | grep "$(echo "$what" | tr '[:lower:]' '[:upper:]')" |
                sed '/libstdc++\|libm\.\|libgcc_s\|libc\./d; s/^ 0x[0-9a-f]*//' ;;
        esac
    done
}
missing() { # the strong symbols that only the library ahead of time has
    nm -D --defined-only ahead/out/libp0.so 2> /dev/null | sed -n 's/.* [ABDRTi] //p' | while read -r name; do
        nm -D --defined-only lazy/out/libp0.so | grep -qF " $name" || echo "$name"
    done
}
both() { # STEP: build both ways, run and compare
    (cd ahead && sh build.sh) > ahead.log 2>&1 || fail "$1: it does not build ahead of time: $(tail -1 ahead.log)"
    (cd lazy && "$LAZYCK" build full --toolchain host --tmp-dir "$W/tmp" --install-dir "$W/installed" -- \
        sh build.sh) > lazy.log 2>&1 || fail "$1: the lazy build fails: $(grep -m2 'error' lazy.log)"
    run ahead "$W/ahead/out" ahead
    seen ahead > ahead.seen
    seen lazy > lazy.seen
    cmp -s ahead.seen lazy.seen || fail "$1: $(diff ahead.seen lazy.seen | grep '^[<>]' | head -5 | tr '\n' ' ')"
    [ -z "$(missing)" ] || fail "$1: only ahead of time: $(missing)"
    same "$1" lazy "$W/lazy/out"
}
cp -a "$here/files" ahead && cp -a "$here/files" lazy
both cold
LAZYCK_JIT=off same cached lazy "$W/lazy/out"
if [ -d "$here/later" ]; then
    for tree in ahead lazy; do cp -a "$here/later/." $tree; done
    both changed
fi
# elsewhere, without sources and with an empty cache
mkdir deployed
cp -a lazy/out/. deployed
rm -f deployed/*.o deployed/*.ob deployed/*.a
[ ! -d installed ] || cp -a installed/. deployed
mv lazy gone
mv tmp gone-tmp
LAZYCK_CACHE_DIR=$W/cache-deployed same deployed gone "$W/deployed"
echo "PASS: $(tr '\n' ' ' < lazy.out)"
