"""Test libraries, archives and objects that only blobs need, LTO objects, and executables."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import Lazyck
from support.counting import CountingCompiler
from support.link_project import FLAGS, Project, body


@pytest.fixture
def project(lazyck: Lazyck, tmp_path: Path) -> Project:
    return Project(lazyck, tmp_path)


FOO = "int foo(int x) { return x * 1000; }\n"
MAKE_FOO = "g++ -shared -fPIC -Wl,-soname,libfoo.so -o libfoo.so"
USES_FOO = "int foo(int);\n" + body(1, "foo(x) + 1")


def prepared(project: Project, make: str) -> Project:
    """Put `foo` into a library or archive before lazyck runs."""
    (project.where / "ext").mkdir()
    project.file("ext/foo.cpp", FOO)
    project.file("ext/bar.cpp", "int bar() { return 1; }\n")
    subprocess.run(["sh", "-ec", make], cwd=project.where / "ext", check=True)
    return project


@pytest.mark.parametrize("how", ["-Lext -lfoo", "ext/libfoo.so", "-Wl,ext/libfoo.so"])
def test_a_shared_library_that_only_a_blob_needs_stays_needed(project: Project, how: str) -> None:
    prepared(project, f"{MAKE_FOO} foo.cpp; g++ -shared -fPIC -o libbar.so bar.cpp")
    project.write({1: USES_FOO, 2: body(2, "x")})
    project.build(f"c++ -shared -o libx.so *.o -Wl,--as-needed {how} -Lext -lbar -Wl,-rpath,$PWD/ext")
    assert "2 lazy with 2 symbols, 0 eager" in project.report
    assert project.call(1, 3) == "3001"
    dynamic = subprocess.run(["readelf", "-d", "libx.so"], cwd=project.where, capture_output=True, text=True).stdout
    assert "libfoo.so" in dynamic
    assert "libbar.so" not in dynamic, "nobody needs it: the linker dropped it, as it does ahead of time"


@pytest.mark.parametrize("words", ["", "-Wl,--as-needed"])
def test_a_library_without_a_soname_is_needed_by_the_path_that_the_link_names(project: Project, words: str) -> None:
    prepared(project, "g++ -shared -fPIC -o libfoo.so foo.cpp")
    project.write({1: USES_FOO, 2: body(2, "x")})
    project.build(f"c++ -shared -o libx.so *.o {words} ./ext/libfoo.so")
    library = project.where / "libx.so"
    for _ in range(2):
        dynamic = subprocess.run(["readelf", "-d", library], capture_output=True, text=True).stdout
        assert "Shared library: [./ext/libfoo.so]" in dynamic, dynamic
        assert project.call(1, 3) == "3001"
        for made in (project.where / "tmp").glob("libs/*/libx.so"):
            made.unlink()
        done = project.lazyck("build", "quick", "--tmp-dir", project.where / "tmp", cwd=project.where / "ext")
        assert done.returncode == 0, done.stderr


def test_a_library_in_one_of_the_compilers_own_places_stays_needed(project: Project) -> None:
    prepared(project, f"{MAKE_FOO} foo.cpp")
    project.write({1: USES_FOO, 2: body(2, "x")})
    project.build("LIBRARY_PATH=ext c++ -shared -o libx.so *.o -Wl,--as-needed -lfoo -Wl,-rpath,$PWD/ext")
    assert "2 lazy with 2 symbols, 0 eager" in project.report
    assert project.call(1, 3) == "3001"


def test_an_archive_of_blobs_is_found_by_library_path(project: Project) -> None:
    project.write({1: body(1, "x + 1"), 2: body(2, "x")})
    parts = "mkdir lib; mv v1.o v2.o lib; ar rcs lib/libparts.a lib/v1.o lib/v2.o"
    project.build(f"{parts}; LIBRARY_PATH=lib c++ -shared -o libx.so *.o -lparts")
    assert "2 lazy with 2 symbols, 0 eager" in project.report, project.report
    assert project.call(1, 3) == "4"


def test_a_system_library_that_only_a_blob_needs_stays_needed(project: Project) -> None:
    found = subprocess.run(["c++", "-print-file-name=libcrypt.so"], capture_output=True, text=True).stdout.strip()
    if not Path(found).is_file():
        pytest.skip("no libcrypt.so")
    declared = 'extern "C" char* crypt(const char*, const char*);\n'
    project.write({1: declared + body(1, 'x + crypt("a", "bc")[0]'), 2: body(2, "x")})
    project.build("c++ -shared -o libx.so *.o -Wl,--as-needed -lcrypt")
    assert "2 lazy with 2 symbols, 0 eager" in project.report
    assert project.call(1, 3) == str(3 + ord("b"))


def test_a_member_of_an_archive_that_only_a_blob_needs_is_pulled_in_once(project: Project) -> None:
    prepared(project, "g++ -c -fPIC foo.cpp bar.cpp; ar rcs libfoo.a foo.o bar.o")
    project.write({1: USES_FOO, 2: body(2, "x")})
    project.build("c++ -shared -o libx.so *.o -Lext -lfoo")
    assert "2 lazy with 2 symbols, 0 eager" in project.report
    assert project.call(1, 3) == "3001"
    symbols = subprocess.run(["nm", "-D", "libx.so"], cwd=project.where, capture_output=True, text=True).stdout
    assert "_Z3fooi" in symbols
    assert "_Z3barv" not in symbols


def test_a_hidden_member_of_an_archive_is_found(project: Project) -> None:
    prepared(project, "g++ -c -fPIC -fvisibility=hidden foo.cpp; ar rcs libfoo.a foo.o")
    project.write({1: USES_FOO, 2: body(2, "x")})
    project.build("c++ -shared -o libx.so *.o ext/libfoo.a")
    assert "2 lazy with 2 symbols, 0 eager" in project.report, project.report
    assert project.calls((1, 3), (2, 3)) == ["3001", "3"]


def test_the_maths_library_of_a_blob_in_c(project: Project) -> None:
    project.write(
        {2: body(2, "x")}, more='extern "C" { double cosine(double); int nearly(int x) { return cosine(x) * 100; } }\n'
    )
    project.file("blob/c.c", "double cos(double);\ndouble cosine(double x) { return cos(x); }\n")
    project.build("cc -O0 -fPIC -fno-builtin -c blob/c.c -o c.o\ncc -shared -o libx.so *.o -Wl,--as-needed -lm")
    done = subprocess.run(
        [sys.executable, "-c", "import ctypes; print(ctypes.CDLL('./libx.so').nearly(0))"],
        cwd=project.where, capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout == "100\n", done.stderr


@pytest.mark.parametrize("flags", ["-flto", "-flto -ffat-lto-objects"])
@pytest.mark.parametrize("cxx", ["g++", "clang++"])
def test_dispatchers_and_blobs_that_are_lto_objects(project: Project, cxx: str, flags: str) -> None:
    tools, driver = project.where / "tools", cxx
    tools.mkdir()
    if cxx == "clang++":
        driver = "clang++ -fuse-ld=lld-19"
        clang = shutil.which("clang++-19")
        if not clang or not shutil.which("ld.lld-19"):
            pytest.skip("needs clang++-19 and lld-19")
        (tools / cxx).symlink_to(os.path.realpath(clang))
    blobs = {1: body(1, "x + 1"), 2: "int weigh(int);\n" + body(2, "weigh(x)")}
    project.write(blobs, more="int weigh(int x) { return x * 5; }\n")
    project.build(f"{driver} {flags} -shared -o libx.so *.o", f"{FLAGS} {flags}", cxx, str(tools))
    assert "2 lazy with 2 symbols, 0 eager" in project.report, project.report
    assert project.calls((1, 3), (2, 3)) == ["4", "15"]


def test_lto_objects_that_nothing_can_read_make_every_blob_eager(project: Project) -> None:
    project.write({1: body(1, "x + 1")})
    (project.where / "tools").mkdir()
    project.file("tools/nm", "#!/bin/sh\nexit 1\n")
    (project.where / "tools" / "nm").chmod(0o755)
    project.build("PATH=$PWD/tools:$PATH c++ -flto -shared -o libx.so *.o", FLAGS + " -flto")
    assert (
        "is linked with LTO objects that no nm at hand can read: " in project.eager()[0]
        and "dispatch.o" in project.report
    )
    assert project.call(1, 3) == "4"


MAIN = """
#include <cstdio>
typedef int (*fn)(int);
fn table[] = {twice<1>, twice<2>};
int shared_level = 3;
int main() { std::printf("%d %d %d\\n", run(1, 5), table[1](5), table[0] == &twice<1>); }
"""


@pytest.mark.parametrize(
    ("compile_flags", "link_flags"), [("-fPIE", "-pie"), ("-fno-pie", "-no-pie"), ("-fPIE", "-pie -s")]
)
def test_executables(project: Project, compile_flags: str, link_flags: str) -> None:
    project.write(
        {1: "extern int shared_level;\n" + body(1, "x + shared_level"), 2: body(2, "twice<1>(x) * 2")}, more=MAIN
    )
    project.build(f"c++ {link_flags} -o prog *.o", f"-I. {compile_flags}")
    assert "2 lazy with 2 symbols, 0 eager" in project.report, project.report
    done = subprocess.run(["./prog"], cwd=project.where, capture_output=True, text=True)
    assert done.stdout == "8 16 1\n", done.stderr


def test_a_hidden_function_of_an_executable_is_found(project: Project) -> None:
    more = MAIN + '__attribute__((visibility("hidden"))) int secret(int x) { return x + 3; }\n'
    project.write({1: "int secret(int);\n" + body(1, "secret(x)"), 2: body(2, "x * 3")}, more=more)
    project.build("c++ -o prog *.o", "-I.")
    assert "2 lazy with 2 symbols, 0 eager" in project.report, project.report
    assert subprocess.run(["./prog"], cwd=project.where, capture_output=True, text=True).stdout == "8 15 1\n"


@pytest.mark.parametrize("flag", ["-static", "-static-pie"])
def test_a_static_executable_has_eager_blobs(project: Project, flag: str) -> None:
    project.write({1: body(1, "x + 1"), 2: body(2, "x + 2")}, more=MAIN).build(f"c++ {flag} -o prog *.o", "-I. -fPIE")
    assert project.eager() == [
        "2 sources, each of which is linked into a static program, which cannot load blobs at run time: "
        "blob/v1.cpp, blob/v2.cpp"
    ]
    assert subprocess.run(["./prog"], cwd=project.where, capture_output=True, text=True).stdout == "6 7 1\n"


def test_quick_links_again_with_all_that_blobs_demand(project: Project, lazyck: Lazyck) -> None:
    prepared(
        project,
        "g++ -shared -fPIC -o libfoo.so foo.cpp; g++ -c -fPIC bar.cpp; ar rcs libbar.a bar.o",
    )
    project.write({1: USES_FOO, 2: "int bar();\n" + body(2, "bar() + x")})
    project.build("c++ -shared -o libx.so *.o -Wl,--as-needed -Lext -lfoo -lbar -Wl,-rpath,$PWD/ext")
    (project.where / "libx.so").unlink()
    next((project.where / "tmp" / "libs").glob("*/libx.so")).unlink()
    done = lazyck("build", "quick", "--tmp-dir", project.where / "tmp")
    assert done.returncode == 0, done.stderr
    assert project.calls((1, 3), (2, 3)) == ["3001", "4"]


@pytest.mark.differs("counts compiles, and the comparison has some of its own")
def test_a_library_that_blobs_name_is_kept_without_a_compile(project: Project) -> None:
    prepared(project, f"{MAKE_FOO} foo.cpp")
    compiler = CountingCompiler(project.where, "g++-9")
    project.write({n: "int foo(int);\n" + body(n, f"foo(x) + {n}") for n in range(1, 7)})
    link = "g++-9 -shared -o libx.so *.o -Wl,--as-needed -Lext -lfoo -Wl,-rpath,$PWD/ext"
    project.build(link, cxx="g++-9", path=str(compiler.path.parent))
    assert sum(compiler.compiles(f"v{n}") for n in range(1, 7)) == 0
    assert project.call(3, 1) == "1003"


def needed_by(library: Path) -> str:
    return subprocess.run(["readelf", "-d", str(library)], capture_output=True, text=True, check=True).stdout


@pytest.mark.differs("counts compiles, and the comparison has some of its own")
@pytest.mark.parametrize("mentions", [True, False])
def test_below_large_headers_a_library_that_may_be_needed_is_kept_without_a_compile(
    project: Project, mentions: bool
) -> None:
    prepared(project, f"{MAKE_FOO} foo.cpp")
    compiler = CountingCompiler(project.where, "g++-9")
    # These are 9 MB in few words, which compilers read quickly.
    large = "".join(f"extern int padding_{i}{'_' * 980};\n" for i in range(9000))
    project.file("large.h", "#pragma once\n" + large + ("int foo(int);\n" if mentions else ""))
    project.write({1: '#include "large.h"\n' + body(1, "x + 1"), 2: body(2, "x")})
    link = "g++-9 -shared -o libx.so *.o -Wl,--as-needed -Lext -lfoo -Wl,-rpath,$PWD/ext"
    project.build(link, flags="-I. -O1", cxx="g++-9", path=str(compiler.path.parent))
    assert "2 lazy with 2 symbols, 0 eager" in project.report
    assert sum(compiler.compiles(f"v{n}") for n in (1, 2)) == 0
    assert ("libfoo.so" in needed_by(project.where / "libx.so")) == mentions


@pytest.mark.differs("counts compiles, and the comparison has some of its own")
def test_hidden_classes_that_each_file_has_itself_cost_no_compile(project: Project) -> None:
    compiler = CountingCompiler(project.where, "g++-9")
    project.file(
        "error.h",
        "#pragma once\n#include <stdexcept>\n"
        'namespace quiet __attribute__((visibility("hidden"))) {\n'
        "struct Error : std::runtime_error {\n  using runtime_error::runtime_error;\n"
        "  virtual int code() const { return 7; }\n};\n"
        "}\n",
    )
    catches = '[](int n) { try { throw quiet::Error("x"); } catch (const quiet::Error& e) { return n + e.code(); } }(x)'
    project.write(
        {1: '#include "error.h"\n' + body(1, catches)},
        more=f'#include "error.h"\nint own(int x) {{ return {catches}; }}\n',
    )
    project.build("g++-9 -shared -o libx.so *.o", flags="-I. -O1", cxx="g++-9", path=str(compiler.path.parent))
    assert "1 lazy with 1 symbol, 0 eager" in project.report, project.report
    assert compiler.compiles("v1") == 0
    assert project.call(1, 3) == "10"


@pytest.mark.parametrize("hidden", ["", '__attribute__((visibility("hidden"))) '], ids=["default", "hidden"])
def test_an_eager_blob_of_an_archive_brings_the_members_that_it_needs(project: Project, hidden: str) -> None:
    only = f"{hidden}int only(int x);\n"
    project.write(
        {1: only + "int table = 3;\n" + body(1, "only(x) + table"), 2: body(2, "x + 2"), 3: only + body(3, "only(x)")}
    )
    project.file("plain.cpp", only + "int only(int x) { return x * 9; }\n")
    project.build("ar rcs libparts.a v1.o v2.o v3.o plain.o; c++ -shared -o libx.so dispatch.o libparts.a -Wl,-z,defs")
    assert "3 blobs deferred" in project.report
    assert project.calls((1, 2), (2, 2)) == ["21", "4"]
