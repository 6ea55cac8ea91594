"""Traits: how the library is linked, and how it is loaded."""

from dataclasses import replace

from programs.rows import Row

# A function of a further object, which the blob calls.
HELPER = Row(
    files={"help%.cpp": 'extern "C" int help%(int); int help%(int x) { return x + 30; }\n'},
    head='extern "C" int help%(int);',
    term="help%(x)",
    after="$CXX -fPIC -O1 -w -c help%.cpp -o out/help%.ob",
)


def helper(after: str = "", words: str = "", **more: str) -> Row:
    return replace(HELPER, after=f"{HELPER.after}\n{after}", words=words, **more)  # type: ignore[arg-type]


def dependency(words: str, name: str = "dep%", after: str = "", **more: str) -> Row:
    """Return the row of a shared library that defines what the blob calls."""
    made = f"$CXX -shared -Wl,-soname,lib{name}.so -o out/lib{name}.so out/help%.ob\n{after}"
    return helper(made, f"-Lout -Wl,-rpath,'$ORIGIN' {words}", **more)


def archive(flags: str, words: str) -> Row:
    """Return the row of blobs in an archive."""
    made = f"gcc-ar {flags} out/libblobs.a $(ls out/*.o | grep -v out/lib.o)"
    return Row(after=made, objects="out/lib.o", words=words)


def script(text: str) -> Row:
    return Row(files={"script%.map": text + "\n"}, words="-Wl,--version-script,script%.map")


# fmt: off
ROWS = {
    "archives/helper": helper("gcc-ar rc out/libhelp%.a out/help%.ob", "-Lout -lhelp%"),
    "archives/helper-by-name": helper("gcc-ar rc out/libhelp%.a out/help%.ob", "-Lout -l:libhelp%.a"),
    "archives/helper-excluded": helper("gcc-ar rc out/libhelp%.a out/help%.ob", "-Lout -lhelp% -Wl,--exclude-libs,ALL"),
    "archives/helper-with-state": replace(helper("gcc-ar rc out/libhelp%.a out/help%.ob", "out/libhelp%.a"),
        files={"help%.cpp": 'int state%; extern "C" int more%() { return ++state%; }\n'
            'extern "C" int help%(int x) { return x + state%; }\n'},
        host='extern "C" __attribute__((weak)) int more%();', value="(more% ? more%() : 1)"),
    "archives/blobs": archive("rcs", "out/libblobs.a"),
    "archives/blobs-whole": archive("rcs", "-Wl,--whole-archive out/libblobs.a -Wl,--no-whole-archive"),
    "archives/blobs-thin": archive("rcsT", "out/libblobs.a"),
    "archives/blobs-in-group": archive("rcs", "-Wl,--start-group out/libblobs.a -Wl,--end-group"),
    "archives/unneeded-blob": Row(after="$CXX -fPIC -c blob/u%.cpp -o out/u%.ob; gcc-ar rcs out/libu%.a out/u%.ob",
        words="out/libu%.a",
        files={"blob/u%.cpp": 'extern "C" int f0(int) { return 1; } int u%(int x) { return x; }\n'}),
    "archives/joined-objects": Row(after="ld -r $(ls out/*.o | grep -v out/lib.o) -o out/joined.ob",
        objects="out/lib.o out/joined.ob"),
    "libraries/needed": dependency("-ldep%"),
    "libraries/as-needed": dependency("-Wl,--as-needed -ldep%"),
    "libraries/not-needed": dependency("-Wl,--as-needed -ldep% -Wl,--no-as-needed", term=""),
    "libraries/linker-script": dependency("-ldep%", "real%", "echo 'INPUT(libreal%.so)' > out/libdep%.so"),
    "libraries/without-a-soname": helper("$CXX -shared -o out/libdep%.so out/help%.ob",
        "-Lout -Wl,-rpath,'$ORIGIN' -Wl,--as-needed -ldep%"),
    "libraries/versions": Row(head='extern "C" int ver%(int);', term="ver%(x)", files={
        "ver%.c": "int old%(int x) { return x + 1; }\nint new%(int x) { return x + 2; }\n"
            '__asm__(".symver old%, ver%@V1"); __asm__(".symver new%, ver%@@V2");\n',
        "ver%.map": "V1 { global: ver%; local: *; };\nV2 { global: ver%; } V1;\n"},
        after="$CC -shared -fPIC -w ver%.c -Wl,--version-script,ver%.map -Wl,-soname,libver%.so -o out/libver%.so",
        words="-Lout -lver% -Wl,-rpath,'$ORIGIN'"),
    "scripts/all-global": script("P% { global: *; };"),
    "scripts/only-the-entry": script("{ global: entry; local: *; };"),
    "scripts/entry-and-functions": script("V% { global: entry; f*; local: *; };"),
    "scripts/two-nodes": script("V1 { global: entry; };\nV2 { global: f0; } V1;"),
    "scripts/dynamic-list": Row(files={"list%": "{ entry; f0; };\n"}, words="-Wl,--dynamic-list,list%"),
    "scripts/symver": Row(both='extern "C" int s%(int);', value="s%(x)",
        head='extern "C" int s%_1(int x) { return x + 1; } extern "C" int s%(int x) { return x + 3; }\n'
        '__asm__(".symver s%_1, s%@V1");', files={"script%.map": "V1 { };\nV2 { global: *; } V1;\n"},
        words="-Wl,--version-script,script%.map"),
    "scripts/soname": Row(words="-Wl,-soname,$LIB.1", last="ln -s $LIB out/$LIB.1"),
    "linker/wrap": replace(helper(words="out/help%.ob -Wl,--wrap=help%"),
        host='extern "C" int __wrap_help%(int x) { return x + 500; }'),
    "linker/wrap-of-a-blob": Row(words="-Wl,--wrap=f0", host='extern "C" int __real_f0(int);\n'
        'extern "C" int __wrap_f0(int x) { return __real_f0(x) + 900; }'),
    "linker/wrapper-in-an-archive": replace(archive("rcs", "out/libblobs.a -Wl,--wrap=f0"), blobs={"w%.cpp": (
        'extern "C" int __real_f0(int);\nextern "C" int __wrap_f0(int x) { return __real_f0(x) + 700; }\n', "")}),
    "linker/defined-symbol": Row(host='extern "C" int real%(int x) { return x + 60; }', words="-Wl,--defsym=def%=real%",
        head='extern "C" int def%(int);', term="def%(x)"),
    "linker/init": Row(host='int begun% = 1; extern "C" void begin%() { begun% = 5; }', value="begun%",
        words="-Wl,-init,begin%"),
    "linker/collected-sections": Row(all_flags="-ffunction-sections -fdata-sections", words="-Wl,--gc-sections"),
    "linker/lto-of-the-dispatcher": Row(all_flags="-flto"),
    "linker/gold": Row(words="-fuse-ld=gold"),
    "linker/gold-that-binds-all": Row(words="-fuse-ld=gold -Wl,-Bsymbolic"),
    "linker/lld": Row(words="-fuse-ld=lld"),
    "linker/mold": Row(words="-fuse-ld=mold"),
    "linker/search-of-programs": Row(words="-rdynamic -pthread -Wl,-rpath-link,out"),
}
# fmt: on

_HEAD = 'extern "C" int printf(const char*, ...); extern "C" int fflush(void*);\n'
_OPEN = """#include <dlfcn.h>
int main(int, char** words) {
  void* h = OPEN;
  if (!h) { printf("not loaded\\n"); return 3; }
  int (*entry)(int, int) = (int (*)(int, int))dlsym(h, "entry");
  CALLS
  CLOSE
  return 0;
}
"""


def opened(call: str, close: str = "") -> Row:
    return Row(main=_HEAD + _OPEN.replace("OPEN", call).replace("CLOSE", close).replace("%", "%%"))


def beside(name: str, text: str, **more: str) -> Row:
    """Return the row of a load with another library."""
    return Row(files={"first.cpp": text}, after=f"$CXX -shared -fPIC -w first.cpp -o out/lib{name}.so", **more)  # type: ignore[arg-type]


AGAIN = 'dlclose(h); h = dlopen(words[1], RTLD_LAZY); if (h) { entry = (int (*)(int, int))dlsym(h, "entry"); CALLS }'
OWN_F0 = 'extern "C" int f0(int x) { return 4000 + x; }\n'
LOADS = {
    "load/needed": Row(main=_HEAD + 'extern "C" int entry(int, int);\nint main() { CALLS return 0; }\n'),
    "load/executable": Row(main=_HEAD + 'extern "C" int entry(int, int);\nint main() { CALLS return 0; }\n'),
    "load/dlopen-now": opened("dlopen(words[1], RTLD_NOW)"),
    "load/dlopen-lazy": opened("dlopen(words[1], RTLD_LAZY)"),
    "load/dlopen-global": opened("dlopen(words[1], RTLD_NOW | RTLD_GLOBAL)"),
    "load/dlopen-nodelete": opened("dlopen(words[1], RTLD_LAZY | RTLD_NODELETE)", "dlclose(h); CALLS"),
    "load/dlopen-deepbind": opened("dlopen(words[1], RTLD_NOW | RTLD_DEEPBIND)"),
    "load/dlopen-closed": opened("dlopen(words[1], RTLD_NOW)", 'printf("%d\\n", dlclose(h));'),
    "load/dlopen-twice": opened("dlopen(words[1], RTLD_NOW)", AGAIN),
    "load/dlmopen": opened("dlmopen(LM_ID_NEWLM, words[1], RTLD_NOW)"),
}
LOADS |= {
    # The program has a function of the blob's name, too; with deepbind the library's own counts.
    "load/dlopen-with-a-rival": replace(LOADS["load/dlopen-now"], main_words="-rdynamic"),
    "load/dlopen-deepbind-with-a-rival": replace(LOADS["load/dlopen-deepbind"], main_words="-rdynamic"),
    "load/preloaded": replace(
        beside("empty", 'extern "C" int entry(int, int) { return -99; }\n', main_words="-lempty", preload="$LIB"),
        main=LOADS["load/needed"].main,
    ),
    "load/interposed": replace(beside("first", OWN_F0, preload="libfirst.so"), main=LOADS["load/needed"].main),
    # A function of the blob chooses one of the program's while the loader relocates.
    "load/needed-by-a-resolver": Row(
        main=_HEAD + 'extern "C" int entry(int, int);\nint f0(int);\n'
        "static int more(int x) { return x + 1; } static int less(int x) { return x - 1; }\n"
        "static void* pick(void) { return f0(1) > 3 ? (void*)more : (void*)less; }\n"
        'int chosen(int) __attribute__((ifunc("pick")));\n'
        'int main() { printf("%%d\\n", chosen(3)); CALLS return 0; }\n'
    ),
    "load/overridden": replace(LOADS["load/needed"], main_words="-rdynamic"),
}
for _name in ("load/dlopen-with-a-rival", "load/dlopen-deepbind-with-a-rival", "load/overridden"):
    LOADS[_name] = replace(LOADS[_name], main=OWN_F0 + LOADS[_name].main)
