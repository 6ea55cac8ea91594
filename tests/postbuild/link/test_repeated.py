"""Tests that blobs' references are bound as the words of their link say, or blobs are eager."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import Lazyck
from support.link_project import SHARED, Project, body

from lazyck.postbuild.objects import linker_script
from lazyck.postbuild.objects.offered import read_offered


@pytest.fixture
def project(lazyck: Lazyck, tmp_path: Path) -> Project:
    return Project(lazyck, tmp_path)


def dependency(project: Project, name: str, result: int, default: str, other: str = "") -> None:
    """Make a library that defines `dep` with the version `default`, and another with `other`."""
    (project.where / "ext").mkdir(exist_ok=True)
    text = f"int now(int x) {{ return {result}; }}\n" + f'__asm__(".symver now,dep@@{default}");\n'
    if other:
        text += f'int old(int x) {{ return -1; }}\n__asm__(".symver old,dep@{other}");\n'
    project.file(f"ext/{name}.c", text)
    nodes = (f"{other} {{ }};\n" if other else "") + f"{default} {{ global: dep; local: *; }};\n"
    project.file(f"ext/{name}.map", nodes)
    argv = ["cc", "-shared", "-fPIC", f"-Wl,--version-script={name}.map,-soname,lib{name}.so", "-o", f"lib{name}.so"]
    subprocess.run([*argv, f"{name}.c"], cwd=project.where / "ext", check=True)


USES_DEP = 'extern "C" int dep(int);\n'
WITH_EXT = f"{SHARED} -Lext -Wl,-rpath,$PWD/ext"


def test_a_blob_refers_to_the_default_version_of_a_dependency_s_symbol(project: Project) -> None:
    dependency(project, "dep", 2, "V2", other="V1")
    project.write({1: USES_DEP + body(1, "dep(x)")}).build(f"{WITH_EXT} -ldep")
    assert project.call(1, 3) == "2"
    # Only what the library itself lacks comes from a dependency.
    project.write({1: USES_DEP + body(1, "dep(x)")}, more='extern "C" int dep(int) { return 5; }').build(
        f"{WITH_EXT} -ldep"
    )
    assert project.call(1, 3) == "5"


def test_a_blob_refers_to_the_first_library_that_defines_a_symbol(project: Project) -> None:
    dependency(project, "one", 1, "A1")
    dependency(project, "two", 2, "B1")
    project.write({1: USES_DEP + body(1, "dep(x)")})
    assert project.build(f"{WITH_EXT} -lone -ltwo").call(1, 3) == "1"
    assert project.build(f"{WITH_EXT} -ltwo -lone").call(1, 3) == "2"


def test_a_link_that_makes_no_file_ends_with_the_linker_s_status(project: Project) -> None:
    project.write({1: body(1, "x")}).build(f"{SHARED} -Wl,--help\ntest ! -e libx.so\n{SHARED} -Wl,--bad || test $? = 1")
    assert "Usage: " in project.report and "made no file" in project.report


def test_what_a_dependency_offers_is_in_the_key(project: Project) -> None:
    dependency(project, "dep", 1, "V1")
    project.write({1: USES_DEP + body(1, "dep(x)")})
    assert project.build(f"{WITH_EXT} -ldep").call(1, 3) == "1"
    dependency(project, "dep", 2, "V2", other="V1")
    assert project.build(f"{WITH_EXT} -ldep").call(1, 3) == "2"


def test_a_blob_in_c_refers_to_the_mathematics_of_its_library(lazyck: Lazyck, tmp_path: Path) -> None:
    libm = subprocess.run(["c++", "-print-file-name=libm.so.6"], capture_output=True, text=True).stdout.strip()
    if not {"exp@@GLIBC_2.29", "exp@GLIBC_2.2.5"} <= read_offered(Path(libm)).exports.keys():
        pytest.skip("this libm has one version of exp")
    (tmp_path / "blob").mkdir()
    (tmp_path / "blob/k.c").write_text("double exp(double);\ndouble k(double x) { return exp(x); }\n")
    (tmp_path / "main.cpp").write_text(
        'extern "C" double k(double); extern "C" double call(double x) { return k(x); }\n'
    )
    script = "cc -fPIC -c blob/k.c -o k.o; c++ -fPIC -c main.cpp -o main.o; c++ -shared -o libk.so main.o k.o"
    done = lazyck(
        "build", "full", "--toolchain", "host", "--blobs", "*/blob/*", "--", "sh", "-ec", script, cwd=tmp_path
    )
    assert done.returncode == 0 and "1 lazy" in done.stderr, done.stderr
    code = "import ctypes; c = ctypes.CDLL('./libk.so').call; c.argtypes = [ctypes.c_double]"
    env = {**os.environ, "LD_DEBUG": "bindings"}
    called = subprocess.run(
        [sys.executable, "-c", f"{code}; c(1.0)"], cwd=tmp_path, capture_output=True, text=True, env=env
    )
    bound = [line for line in called.stderr.splitlines() if "`exp'" in line and "file /proc/" in line]
    assert bound and all("[GLIBC_2.29]" in line for line in bound), called.stderr[-2000:]


WRAPPER = 'extern "C" {} int __wrap_helping(int x) {{ return x + 1000; }}\n'
HELPER = 'extern "C" int helping(int x) { return x; }\n'


@pytest.mark.parametrize("linker", ["bfd", "gold", "lld", "mold"])
def test_calls_of_blobs_are_wrapped(project: Project, linker: str) -> None:
    if shutil.which(f"ld.{linker}") is None:
        pytest.skip(f"no ld.{linker}")
    project.file("helping.cpp", HELPER)
    uses = 'extern "C" int helping(int);\n' + body(1, "helping(x)")
    real = 'extern "C" int __real_helping(int);\n' + body(2, "__real_helping(x)")
    project.write({1: uses, 2: real}, more=WRAPPER.format("")).build(f"{SHARED} -fuse-ld={linker} -Wl,--wrap=helping")
    assert "2 lazy" in project.report
    assert project.calls((1, 3), (2, 3)) == ["1003", "3"]


@pytest.mark.parametrize("linker", ["bfd", "gold", "lld", "mold"])
def test_calls_of_a_program_s_blobs_are_wrapped(project: Project, linker: str) -> None:
    if shutil.which(f"ld.{linker}") is None:
        pytest.skip(f"no ld.{linker}")
    project.file("helping.cpp", HELPER)
    main = '#include <cstdio>\nint main() { std::printf("%d", run(1, 3)); }\n'
    project.write({1: 'extern "C" int helping(int);\n' + body(1, "helping(x)")}, more=WRAPPER.format(""))
    project.file("main.cpp", f'extern "C" int run(int, int);\n{main}')
    project.build(f"c++ -o main *.o -fuse-ld={linker} -Wl,--wrap=helping")
    assert "1 lazy with 1 symbol, 0 eager" in project.report, project.report
    assert subprocess.run([project.where / "main"], capture_output=True, text=True).stdout == "1003"


def test_calls_are_not_wrapped_by_what_blobs_cannot_reach(project: Project) -> None:
    hidden = WRAPPER.format('__attribute__((visibility("hidden")))')
    project.file("helping.cpp", HELPER)
    project.write({1: 'extern "C" int helping(int);\n' + body(1, "helping(x)")}, more=hidden)
    project.build(f"{SHARED} -Wl,--wrap,helping")
    assert "__wrap_helping is hidden" in project.eager()[0]
    assert project.call(1, 3) == "1003"


def test_the_runtime_s_own_calls_are_not_wrapped(project: Project) -> None:
    counting = (
        "#include <cstdlib>\nstatic int calls;\n"
        'extern "C" void __real_free(void*);\n'
        'extern "C" void __wrap_free(void* at) { ++calls; __real_free(at); }\n'
        "int count() { return calls; }\n"
    )
    uses = "#include <cstdlib>\nint count();\nstatic void* volatile at;\n" + body(
        1, "(at = malloc(x), free(at), count())"
    )
    project.write({1: uses}, more=counting).build(f"{SHARED} -Wl,--wrap=free")
    assert "1 lazy" in project.report
    assert project.calls((1, 8), (1, 8)) == ["1", "2"]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("-Wl,--defsym=a=run", r"an option that holds within one library, .* \(--defsym=a=run\)"),
        ("-Wl,-z,initfirst", r"an option that holds within one library, .* \(-z initfirst\)"),
        ("-Wl,--split-by-reloc=9", r"an option that lazyck does not know: .* \(--split-by-reloc=9\)"),
        ("symbols.ld", r"a linker script that does more than name files: .* \(.*/symbols.ld\)"),
    ],
)
def test_a_link_whose_words_are_not_repeated_has_eager_blobs(project: Project, words: str, reason: str) -> None:
    project.file("symbols.ld", "other_run = run;\n")
    project.write({1: body(1, "x + 1"), 2: body(2, "x")}).build(f"{SHARED} {words}")
    (said,) = project.eager()
    assert said.startswith("2 sources, each of which is linked with")
    assert re.search(reason, said), said
    assert project.call(1, 3) == "4"


MAIN_OF_BOUND = """
#include <cstdio>
template <int N> int twice(int x);
int helper(int x) { return x * 1000; }
template <> int twice<2>(int x) { return x * 1000; }
int level = 1000;
extern "C" int run(int n, int x);
int main() { std::printf("%d\\n", run(1, 3)); }
"""


@pytest.mark.parametrize("option", ["-Bsymbolic", "-Bsymbolic-functions"])
def test_what_a_link_binds_to_its_library_its_blobs_find_there(project: Project, option: str) -> None:
    """The program has functions and a variable of the same names."""
    more = "int helper(int x) { return x * 7; }\nint level = 5;\n"
    project.write({1: body(1, "helper(x) + twice<2>(x) + level"), 2: body(2, "x * 2")}, more=more)
    project.file("main.cc", MAIN_OF_BOUND)
    link = f"{SHARED} -Wl,{option}; c++ -rdynamic main.cc -o main -L. -lx -Wl,-rpath,$PWD"
    project.build(link)
    assert "2 lazy with 2 symbols, 0 eager" in project.report, project.report
    shown = subprocess.run([project.where / "main"], capture_output=True, text=True)
    level = 5 if option == "-Bsymbolic" else 1000
    assert shown.stdout == f"{3 * 7 + 3 * 2 + level}\n", shown.stderr


@pytest.mark.parametrize("linker", [name for name in ("gold", "lld", "mold") if shutil.which(f"ld.{name}")])
def test_a_linker_that_binds_unique_symbols_has_eager_blobs(project: Project, linker: str) -> None:
    project.write({1: body(1, "x + 1")}).build(f"{SHARED} -fuse-ld={linker} -Wl,-Bsymbolic")
    (said,) = project.eager()
    assert f"-Bsymbolic beside -fuse-ld={linker}" in said, said


RESOLVER = """
static int plain(int x) { return x + 1; }
static int fast(int x) { return x + 2; }
int twice_of(int);
extern "C" int (*choose())(int) { return twice_of(1) > 5 ? fast : plain; }
extern "C" int chosen(int) __attribute__((ifunc("choose")));
extern "C" int call_chosen(int x) { return chosen(x); }
"""
MAIN_OF_RESOLVERS = """
#include <cstdio>
extern "C" int run(int, int);
int main() { std::printf("%d %d %d\\n", call_chosen1(3), call_chosen3(3), run(4, 3)); }
"""


def test_what_a_resolver_asks_is_eager(project: Project) -> None:
    project.file("resolver.cpp", RESOLVER)
    project.file("between.cpp", '#include "api.hpp"\nint twice_of(int x) { return twice<1>(x); }\n')
    project.write({1: body(1, "x + 7"), 2: body(2, "x")}, calls=[2]).build(SHARED, "-fPIC -I. -O1 -fvisibility=hidden")
    (said,) = project.eager()
    assert "v1.cpp is asked by a resolver (IFUNC)" in said
    assert "1 lazy" in project.report
    assert project.call(2, 3) == "3"


def test_what_resolvers_of_later_files_ask_is_eager(project: Project) -> None:
    """A library that needs the lazy one asks twice<1>, which asks twice<2>, and the program asks
    twice<3>."""
    asks = [RESOLVER.replace("twice_of(1)", f"twice<{n}>(1)").replace("chosen", f"chosen{n}") for n in (1, 3)]
    project.file("plug.cc", f'#include "api.hpp"\n{asks[0].replace("choose", "choose1")}')
    project.file("main.cc", f'#include "api.hpp"\n{asks[1]}extern "C" int call_chosen1(int);\n{MAIN_OF_RESOLVERS}')
    flags = "-fPIC -I. -O1"
    link = (
        f"{SHARED} -Wl,-soname,libx.so.1; ln -sf libx.so libx.so.1; c++ {flags} -shared plug.cc -o libplug.so -L. -lx; "
        f"c++ {flags} main.cc -o main -L. -lplug -lx -Wl,-rpath,$PWD"
    )
    bodies = {1: body(1, "twice<2>(x) + 7"), 2: body(2, "x"), 3: body(3, "x + 3"), 4: body(4, "x * 4")}
    project.write(bodies)
    for text in ("x * 4", "x * 5"):  # the second time, it is known from the beginning
        project.file("blob/v4.cpp", f'#include "api.hpp"\n{body(4, text)}')
        project.build(link, flags)
        assert "4 blobs deferred, 1 lazy with 1 symbol, 3 eager" in project.report, project.report
        assert all("asked by a resolver (IFUNC)" in said for said in project.eager())
        shown = subprocess.run([project.where / "main"], capture_output=True, text=True)
        assert shown.stdout == f"5 4 {3 * int(text[-1])}\n", shown.stderr
    shutil.rmtree(project.where / "tmp")
    project.build(f"{link}; rm *.o", flags)
    assert "warning: libx-" in project.report and "it cannot be linked once more: " in project.report


def test_a_script_in_place_of_a_library_is_followed(project: Project) -> None:
    dependency(project, "real", 4, "V1")
    project.file(
        "ext/libdep.so", "/* as packages have it */\nOUTPUT_FORMAT(elf64-x86-64)\nINPUT(AS_NEEDED(libreal.so))"
    )
    project.write({1: USES_DEP + body(1, "dep(x)")}).build(f"{WITH_EXT} -ldep")
    assert project.call(1, 3) == "4"


def test_an_archive_is_taken_where_the_link_asks_for_archives(project: Project) -> None:
    dependency(project, "dep", 1, "V1")
    make = 'echo "int dep(int x) { return 6; }" > a.c; cc -fPIC -c a.c; ar rcs libdep.a a.o'
    subprocess.run(["sh", "-ec", make], cwd=project.where / "ext", check=True)
    project.write({1: USES_DEP + body(1, "dep(x)")}).build(f"{WITH_EXT} -Wl,-Bstatic -ldep -Wl,-Bdynamic")
    assert project.call(1, 3) == "6"


def test_linker_scripts_are_understood_whole_or_not_at_all() -> None:
    glibc = (
        b"/* GNU ld script\n*/\nOUTPUT_FORMAT(elf64-x86-64)\nGROUP ( /lib/libm.so.6  AS_NEEDED ( /lib/libmvec.so.1 ) )"
    )
    assert linker_script.parse(glibc) == linker_script.LinkerScript(("/lib/libm.so.6", "/lib/libmvec.so.1"), ())
    more = linker_script.parse(b'SEARCH_DIR("/opt/a b"); INPUT("x y.o", -lz)')
    assert more == linker_script.LinkerScript(("x y.o", "-lz"), ("/opt/a b",))
    for text in (
        b"INPUT(a.o) b = 1;",
        b"SECTIONS { .x : { *(.x) } }",
        b"EXTERN(f)",
        b"",
        b"int main() {}",
        b"\x7fELF\0",
    ):
        assert linker_script.parse(text) is None


@pytest.mark.parametrize("declared", ["int hook(int)", "__attribute__((weak)) int hook(int)"])
def test_a_program_exports_what_only_blobs_use(project: Project, declared: str) -> None:
    project.write({1: f'extern "C" {declared};\n' + body(1, "hook ? hook(x) : 0")})
    project.build(f"{SHARED} -Wl,-soname,libx.so")
    project.file("program.c", "int hook(int x) { return x + 40; } int run(int, int); int main() { return run(1, 2); }")
    made = "cc -w program.c -o program -L. -lx -Wl,-rpath,$PWD && ./program"
    done = subprocess.run(["sh", "-c", made], cwd=project.where, capture_output=True, text=True)
    assert done.returncode == 42, done.stderr


def test_a_process_has_one_static_of_an_inline_function_in_spite_of_bsymbolic(project: Project) -> None:
    """GNU's linker leaves unique symbols to the loader."""
    counter = "inline int& counter() { static int n; return n; }\n"
    more = counter + 'extern "C" int of_library() { return counter(); }'
    project.write({1: counter + body(1, "counter() += x")}, more=more).build(
        f"{SHARED} -Wl,-Bsymbolic && echo '{counter} int first(int x) {{ return counter() += x; }}' > first.cc"
        " && c++ -O1 -fPIC -shared first.cc -o libfirst.so"
    )
    code = "import ctypes as c; f = c.CDLL('./libfirst.so'); x = c.CDLL('./libx.so'); f._Z5firsti(7); x.run(1, 10)"
    shown = subprocess.run(
        [sys.executable, "-c", f"{code}; print(x.of_library())"], cwd=project.where, capture_output=True, text=True
    )
    assert shown.stdout == "17\n", shown.stderr


def test_of_two_definitions_that_a_link_allows_the_first_one_wins(project: Project) -> None:
    project.write({1: "int both(int) { return 1; }\n" + body(1, "both(x)")}, more="int both(int) { return 2; }")
    project.build(f"{SHARED.replace('*.o', 'v1.o dispatch.o')} -Wl,-z,muldefs")
    assert (project.call(1, 3), "both" in project.report) == ("1", True)


def test_eager_objects_stand_where_the_link_has_them(project: Project) -> None:
    """Initializers of variables run in that order."""
    at_load = 'extern "C" int printf(const char*, ...); static int {0} = printf("{0} ");\n'
    texts = {n: at_load.format(f"v{n}") + body(n, f"x + v{n}") for n in (1, 2)}
    project.write(texts, more=at_load.format("dispatch")).build(SHARED.replace("*.o", "v1.o dispatch.o v2.o"))
    shown = subprocess.run(
        [sys.executable, "-c", "import ctypes; ctypes.CDLL('./libx.so')"],
        cwd=project.where,
        capture_output=True,
        text=True,
    )
    assert shown.stdout == "v1 dispatch v2 "


def test_what_nothing_defines_is_no_error_before_it_is_called(project: Project) -> None:
    hook = 'extern "C" int hook(int);\n'
    more = hook + 'extern "C" int other(int x) { return hook(x); }'
    project.write({1: hook + body(1, "x > 5 ? hook(x) : x + 1")}, more=more).build(SHARED)
    project.file("late.c", "int hook(int x) { return x * 100; }\n")
    project.file(
        "program.c",
        "#include <dlfcn.h>\n#include <stdio.h>\nint main(void) {\n"
        'int (*run)(int, int) = (int (*)(int, int))dlsym(dlopen("./libx.so", RTLD_LAZY), "run");\n'
        'printf("%d ", run(1, 1)); dlopen("./late.so", RTLD_NOW | RTLD_GLOBAL); printf("%d\\n", run(1, 6)); }\n',
    )
    for words in (["-shared", "-fPIC", "late.c", "-o", "late.so"], ["program.c", "-ldl", "-o", "program"]):
        subprocess.run(["cc", *words], cwd=project.where, check=True)
    shown = subprocess.run(["./program"], cwd=project.where, capture_output=True, text=True)
    assert shown.stdout == "2 600\n", shown.stderr
