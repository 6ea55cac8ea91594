"""Test blobs that call each other, and blobs that use hidden symbols of the main library."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import Lazyck
from support.link_project import FLAGS, HEADER, SHARED, Project, body

from lazyck.postbuild.objects import elf


@pytest.fixture
def project(lazyck: Lazyck, tmp_path: Path) -> Project:
    return Project(lazyck, tmp_path)


@pytest.mark.parametrize("flags", [FLAGS, FLAGS + " -fvisibility=hidden"], ids=["default", "hidden"])
def test_a_blob_calls_what_only_another_blob_defines_in_a_circle(project: Project, flags: str) -> None:
    project.write(
        {
            1: body(1, "twice<2>(x) + 1"),
            2: "int only_blobs_know(int x);\n" + body(2, "x > 3 ? only_blobs_know(x) : x"),
            3: "int only_blobs_know(int x) { return twice<1>(x - 1) * 10; }\n",
            4: "int only_blobs_know(int);\n"
            + body(4, "[](int (*f)(int), int y) { return f(y); }(&only_blobs_know, x)"),
        },
        calls=[1, 4],
    ).build(SHARED, flags)
    assert "4 blobs deferred, 4 lazy with 4 symbols, 0 eager" in project.report
    assert project.calls((1, 3), (1, 5), (4, 3)) == ["4", "411", "30"]


@pytest.mark.parametrize("is_defined", [True, False])
def test_a_specialization_is_exported_as_it_is_ahead_of_time(project: Project, is_defined: bool) -> None:
    """GCC hides one of a template that is defined, and exports one of one that is declared."""
    template = f"template <class T> int of(T){' { return 1; }' if is_defined else ';'}\n"
    blob = f"{template}template <> int of(int x) {{ return x + 3; }}\n"
    project.write({1: blob + body(1, "of(x)")}).build(SHARED, FLAGS + " -fvisibility=hidden", cxx="g++")
    assert "1 lazy with 2 symbols" in project.report, project.report
    exported = elf.read_shared(project.where / "libx.so").defined
    assert ("_Z2ofIiEiT_" in exported) == (not is_defined)
    assert project.call(1, 3) == "6"


def test_nothing_takes_the_place_of_what_options_make_protected(project: Project) -> None:
    """Neither for another blob nor for the library itself."""
    bodies = {1: "int mine(int);\n" + body(1, "mine(x) + 1"), 2: "int mine(int x) { return x * 2; }\n"}
    project.write(bodies, calls=[1], more='int mine(int);\nextern "C" int own(int x) { return mine(x); }\n')
    main = 'extern "C" { int run(int, int); int own(int); int printf(const char*, ...); }\n'
    main += 'int mine(int) { return 9000; }\nint main() { printf("%d %d", run(1, 3), own(3)); }\n'
    project.file("main.cc", main)
    build = f"{SHARED}; c++ -rdynamic main.cc -o main -L. -lx -Wl,-rpath,$PWD"
    project.build(build, FLAGS + " -fvisibility=protected")
    assert "2 lazy with 2 symbols" in project.report, project.report
    assert subprocess.run([project.where / "main"], capture_output=True, text=True).stdout == "7 6"


def test_what_a_header_instantiates_elsewhere_does_not_show_what_is_hidden_here(project: Project) -> None:
    """The probe asks for the addresses of what `extern template` declares."""
    far = "template <class T> T far(T x) { return x; }\nextern template int far<int>(int);\n"
    project.file("far.hpp", f"#ifndef FAR\n#define FAR\n{far}#endif\n")
    hidden = "template <class T> T near(T x) { return x; }\n"
    hidden += 'template __attribute__((visibility("hidden"))) int near<int>(int);\n'
    blob = f'#include "far.hpp"\ntemplate int far<int>(int);\n{hidden}'
    project.write({1: blob + body(1, "far(x) + near(x)")}).build(SHARED, cxx="g++")
    assert "_Z4nearIiET_S0_" not in elf.read_shared(project.where / "libx.so").defined
    assert project.call(1, 3) == "6"


def test_what_an_excluded_archive_defines_stays_in_the_library(project: Project) -> None:
    """Of its three blobs one is eager, for its data."""
    bodies = {
        1: body(1, "twice<2>(x) + x"),
        2: body(2, "twice<3>(x) * 10"),
        3: "int level = 4;\n" + body(3, "x + level"),
    }
    link = "ar rcs libv.a v?.o; c++ -shared -o libx.so dispatch.o -Wl,--whole-archive libv.a -Wl,--no-whole-archive"
    project.write(bodies).build(f"{link} -Wl,--exclude-libs,ALL")
    assert "2 lazy" in project.report and len(project.eager()) == 1, project.report
    exported = elf.read_shared(project.where / "libx.so").defined
    assert not [name for name in exported if "twice" in name or name == "level"]
    assert project.calls((1, 3), (2, 1)) == ["73", "50"]


def test_blobs_of_two_libraries_call_each_other(project: Project) -> None:
    project.write({1: "int far(int);\n" + body(1, "far(x) + 1"), 2: "int far(int x) { return x * 100; }\n"}, calls=[1])
    project.build(
        "c++ -shared -o libfar.so v2.o\nc++ -shared -o libx.so dispatch.o v1.o -L. -lfar -Wl,-rpath,'$ORIGIN'"
    )
    assert project.report.count("1 lazy with 1 symbol") == 2
    assert project.call(1, 3) == "301"


def test_two_libraries_of_hidden_kernels_with_equal_names_each_reach_their_own(project: Project) -> None:
    flags = FLAGS + " -fvisibility=hidden"
    more = 'int kernel(int); int twin(int);\nextern "C" __attribute__((visibility("default"))) '
    more += "int both(int x) { return kernel(x) * 100 + twin(x); }\n"
    for n, name in enumerate(("one", "two"), 1):
        other = Project(project.lazyck, project.where / name)
        blob = f"int kernel(int x) {{ return x + {n}; }}\nint twin(int x) {{ return kernel(x); }}\n"
        other.write({5: blob}, calls=[], more=more)
        other.build(f"c++ -shared -Wl,-soname,lib{name}.so -o libx.so dispatch.o v5.o", flags)
    code = (
        "import ctypes\n"
        "one, two = (ctypes.CDLL(f'./{n}/libx.so', ctypes.RTLD_GLOBAL) for n in ('one', 'two'))\n"
        "print(one.both(10), two.both(10))"
    )
    called = subprocess.run([sys.executable, "-c", code], cwd=project.where, capture_output=True, text=True)
    assert called.stdout == "1111 1212\n", called.stderr


LINKERS = [name for name in ("bfd", "gold", "lld", "mold") if shutil.which(f"ld.{name}")]


@pytest.mark.parametrize("linker", LINKERS)
def test_blobs_of_two_libraries_with_equal_hidden_names_each_use_their_own_library(
    project: Project, linker: str
) -> None:
    """The libraries stand for two that are linked from one static archive. A blob uses functions
    and data of another blob and of an object."""
    flags = FLAGS + " -fvisibility=hidden"
    for n, name in enumerate(("one", "two"), 1):
        other = Project(project.lazyck, project.where / name)
        # mold exports a protected thread-local variable for all libraries to see.
        mine = "thread_local int mine" if linker != "mold" else "int mine"
        user = f"int kernel(int); int helper(int); int stored(); extern int table, zeros; extern {mine};\n"
        user += "int twin(int x) { return kernel(x) + helper(x) + table + zeros + mine + stored(); }\n"
        user += "bool is_helper(int (*f)(int)) { return f == &helper; }\n"
        more = f"int twin(int); bool is_helper(int (*)(int)); int table = {1000 * n}, zeros;\n"
        more += f"{mine} = {10000 * n};\n"
        more += f"int helper(int x) {{ return {10 * n} * x; }}\n"
        more += 'extern "C" __attribute__((visibility("default"))) '
        more += "int use(int x) { return twin(x) * 10 + is_helper(&helper); }\n"
        other.write({5: f"int kernel(int x) {{ return x + {n}; }}\n", 6: user}, calls=[], more=more)
        archive = f"echo 'int stored() {{ return {100000 * n}; }}' > s.cpp; c++ {flags} -c s.cpp; ar rcs libs.a s.o; "
        words = f"-fuse-ld={linker} -shared -Wl,-soname,lib{name}.so -o libx.so dispatch.o v5.o v6.o libs.a"
        other.build(f"{archive} c++ {words}", flags)
        assert "2 lazy with 3 symbols, 0 eager" in other.report, other.report
    code = (
        "import ctypes\n"
        "one, two = (ctypes.CDLL(f'./{n}/libx.so', ctypes.RTLD_GLOBAL) for n in ('one', 'two'))\n"
        "print(one.use(10), two.use(10))"
    )
    called = subprocess.run([sys.executable, "-c", code], cwd=project.where, capture_output=True, text=True)
    assert called.stdout == "1111111 2222121\n", called.stderr


HIDDEN = "int helper(int x) { return x * 7; }\nint other_helper(int x) { return x; }\nint level = 5;\n"
HIDDEN += "Keeper::Keeper() : value(4) {}\n"


ARCHIVE = "mv extra.o e.obj; ar rcs libextra.a e.obj; " + SHARED + " libextra.a"


@pytest.mark.parametrize(
    ("link", "flags", "more"),
    [
        pytest.param(SHARED, FLAGS + " -fvisibility=hidden", HIDDEN, id="command-line"),
        pytest.param(SHARED, FLAGS, "#pragma GCC visibility push(hidden)\n" + HIDDEN, id="pragma"),
        *(
            pytest.param(f"{ARCHIVE} -fuse-ld={linker}{option}", flags, "", id=f"{linker}-{name}")
            for linker in LINKERS
            for name, option, flags in (
                ("archive", "", FLAGS + " -fvisibility=hidden"),
                ("exclude-libs", " -Wl,--exclude-libs,ALL", FLAGS),
                ("exclude-one", " -L. -Wl,--exclude-libs=libextra.a", FLAGS),
            )
        ),
        *(
            pytest.param(
                f"{SHARED} -fuse-ld={linker} -Wl,--version-script=api.map", FLAGS, HIDDEN, id=f"{linker}-script"
            )
            for linker in LINKERS
        ),
    ],
)
def test_a_blob_finds_what_objects_of_its_library_hide(project: Project, link: str, flags: str, more: str) -> None:
    project.write({1: body(1, "helper(x)"), 2: body(2, "level + x"), 3: body(3, "checked(x)")}, more=more)
    if not more:
        project.file("extra.cpp", '#include "api.hpp"\n' + HIDDEN)
    project.file("api.map", "{ global: run; local: *; };\n")
    project.build(link, flags)
    assert "3 blobs deferred, 3 lazy with 3 symbols, 0 eager" in project.report, project.report
    assert project.calls((1, -3), (2, -3), (3, -3)) == ["-21", "2", "-21"]


@pytest.mark.parametrize(
    ("link", "more"),
    [
        (SHARED, "#pragma GCC visibility push(hidden)\n" + HIDDEN),
        (ARCHIVE, ""),
    ],
    ids=["hidden-in-its-header", "hidden-in-the-header-of-an-archive"],
)
def test_a_blob_that_cannot_have_a_hidden_symbol_is_eager_and_the_symbol_is_named(
    project: Project, link: str, more: str
) -> None:
    project.write({1: body(1, "helper(x)"), 2: body(2, "x * 2"), 3: body(3, "checked(x)")}, more=more)
    if not more:
        project.file("extra.cpp", '#include "api.hpp"\n' + HIDDEN)
    project.file(
        "api.hpp", HEADER.replace("int helper(int x);", '__attribute__((visibility("hidden"))) int helper(int x);')
    )
    project.build(link)
    assert "3 blobs deferred, 1 lazy with 1 symbol, 2 eager" in project.report, project.report
    assert project.eager() == [
        "2 sources, each of which needs a symbol that the library does not export: "
        "blob/v1.cpp, blob/v3.cpp (helper(int))"
    ]
    assert project.calls((1, -3), (2, -3), (3, -3)) == ["-21", "-6", "-21"]


def test_a_blob_whose_hidden_function_others_call_is_eager_and_says_so(project: Project) -> None:
    hidden = '__attribute__((visibility("hidden"))) '
    project.write(
        {
            1: f"{hidden}int secret(int x) {{ return x + 1; }}\n" + body(1, "secret(x)"),
            2: f"{hidden}int only(int x) {{ return x + 2; }}\n",
            3: f"{hidden}int unused(int x) {{ return x + 3; }}\n" + body(3, "unused(x)"),
        },
        calls=[1, 3],
        more=f"{hidden}int secret(int); {hidden}int only(int);\n"
        'extern "C" int direct(int x) { return secret(x) * 10 + only(x); }\n',
    ).build(SHARED)
    assert project.eager() == [
        "2 sources, each of which has a hidden function that other files may call: "
        "blob/v2.cpp (only(int)); blob/v1.cpp (secret(int))"
    ]
    assert project.calls((1, 1), (3, 1)) == ["2", "4"]


def test_what_the_compiler_s_own_start_files_define_is_no_symbol_of_the_library(project: Project) -> None:
    # libtool links C++ in this way. `__dso_handle`, of which each library has its own, is defined
    # in one of the command's objects.
    box = "struct Loud { ~Loud(); int n = 5; };\ninline Loud::~Loud() { n = 0; }\n"
    box += (
        "template <int N> struct Box { int get() { static Loud loud; return loud.n + N; } };\ntemplate struct Box<1>;\n"
    )
    project.write({1: box + body(1, "Box<1>().get() + x")})
    first, last = (
        " ".join(f"$(c++ -print-file-name={n}.o)" for n in ns) for ns in (("crti", "crtbeginS"), ("crtendS", "crtn"))
    )
    project.build(f"c++ -shared -nostdlib {first} *.o -lstdc++ -lm -lc -lgcc_s {last} -o libx.so")
    assert "1 lazy with 2 symbols, 0 eager" in project.report, project.report
    assert project.call(1, 4) == "10"


def test_an_eager_blob_under_hidden_visibility_makes_no_other_one_eager(project: Project) -> None:
    project.write(
        {
            1: body(1, "level + x"),
            2: body(2, "Keeper().value + x"),
            3: "int table[2] = {1, 2};\nint quiet(int x) { return table[x]; }\n" + body(3, "x"),
            4: "int quiet(int);\n" + body(4, "quiet(x)"),
            5: body(5, "x"),
        },
        more=HIDDEN,
    ).build(SHARED, FLAGS + " -fvisibility=hidden")
    assert "4 lazy with 4 symbols, 1 eager" in project.report, project.report
    assert project.calls((1, 1), (2, 1), (3, 1), (4, 1), (5, 1)) == ["6", "5", "1", "2", "1"]


def test_a_hidden_class_of_an_eager_blob_can_be_derived_from(project: Project) -> None:
    base = "struct Base { virtual ~Base(); virtual int f(); };\n"
    derived = "struct Derived : Base { int f() override { return Base::f() + 4; } };\n"
    project.write(
        {
            1: base + "Base::~Base() {}\nint Base::f() { return 3; }\n" + body(1, "x"),
            2: base + derived + body(2, "[](Base&& b) { return b.f(); }(Derived()) + x"),
        },
    ).build(SHARED, FLAGS + " -fvisibility=hidden")
    assert "1 lazy with 1 symbol, 1 eager" in project.report, project.report
    assert project.calls((1, 1), (2, 1)) == ["1", "8"]


@pytest.mark.parametrize("instance", ["struct Box<3>", "int Box<3>::get(int)"])
def test_a_hidden_instance_whose_template_is_declared_extern_is_found(project: Project, instance: str) -> None:
    box = f"template <int N> struct Box {{ int get(int x); }};\nextern template {instance};\n"
    defined = f"template <int N> int Box<N>::get(int x) {{ return x + N; }}\ntemplate {instance};\n"
    project.write({1: box + body(1, "Box<3>().get(x)"), 2: body(2, "x")}, more=box + defined)
    project.build(SHARED, FLAGS + " -fvisibility=hidden")
    assert "2 lazy with 2 symbols, 0 eager" in project.report, project.report
    assert project.call(1, 4) == "7"


def test_what_shared_headers_only_declare_makes_no_blob_a_candidate(project: Project) -> None:
    project.write({n: body(n, f"x + {n}") for n in (1, 2, 3)}, more=HIDDEN)
    project.build(SHARED, FLAGS + " -fvisibility=hidden")
    assert "3 lazy with 3 symbols, 0 eager" in project.report
    words = ["build", "full", "--verbose", "--toolchain", "host", "--tmp-dir", project.where / "tmp2"]
    done = project.lazyck(*words, "--", "sh", "build.sh", cwd=project.where)
    assert done.returncode == 0
    assert "for the host" not in done.stdout + done.stderr


def test_an_instantiated_class_that_only_another_blob_uses_gets_stubs(project: Project) -> None:
    box = "template <int N> struct Box { int get(int x); };\n"
    project.write(
        {
            1: box + "extern template struct Box<3>;\n" + body(1, "Box<3>().get(x)"),
            2: box
            + "template <int N> int Box<N>::get(int x) { return x + N; }\ntemplate struct Box<3>;\n"
            + body(2, "x"),
        },
    ).build(SHARED)
    assert "2 lazy with 3 symbols, 0 eager" in project.report, project.report
    assert project.call(1, 4) == "7"


def test_lambdas_of_an_instantiated_class_make_no_blob_a_candidate(project: Project) -> None:
    shared = "template <class F> __attribute__((noinline)) int each(F f) { return f(1) + f(2); }\n"
    box = (
        "template <int N> struct Box {\n"
        "  int get(int x) { return each([x](int y) { static int n; return ++n + x; }); }\n"
        "};\n"
        "template struct Box<3>;\n"
    )
    project.file("each.h", "#pragma once\n" + shared)
    include = '#include "each.h"\n'
    project.write(
        {1: include + box + body(1, "x"), 2: include + body(2, "each([x](int y) { return x + y; })"), 3: body(3, "x")}
    )
    project.build(SHARED)
    assert "3 lazy with 4 symbols, 0 eager" in project.report, project.report
    words = ["build", "full", "--verbose", "--toolchain", "host", "--tmp-dir", project.where / "tmp2"]
    done = project.lazyck(*words, "--", "sh", "build.sh", cwd=project.where)
    assert done.returncode == 0
    assert "for the host" not in done.stdout + done.stderr


def test_an_undefined_symbol_at_load_is_explained(project: Project) -> None:
    project.write({1: "extern int from_elsewhere[];\n" + body(1, "from_elsewhere[x]")}).build(SHARED)
    done = subprocess.run(
        [sys.executable, "-c", "import ctypes; ctypes.CDLL('./libx.so').run(1, 1)"],
        cwd=project.where, capture_output=True, text=True, env={"LAZYCK_ON_ERROR": "abort", "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert done.returncode != 0
    assert "cannot load blob 'v1'" in done.stderr
    assert "it needs from_elsewhere" in done.stderr
    assert "keep the blob out of --blobs" in done.stderr


def test_hidden_data_that_only_the_initializer_of_a_table_names_is_found(project: Project) -> None:
    # The text follows a C library's style: the word `struct` in the type of the table is not a
    # scope.
    project.write(
        {
            1: "struct Algorithm algorithm = {7};\n" + body(1, "x"),
            2: "static const struct Algorithm* table[] = {&algorithm};\n" + body(2, "table[x - 1]->factor * x"),
        }
    )
    text = "struct Algorithm { int factor; };\nextern struct Algorithm algorithm;\n"
    project.file("api.hpp", (project.where / "api.hpp").read_text() + text)
    project.build(SHARED, FLAGS + " -fvisibility=hidden")
    assert "defines data that other files can use: algorithm" in project.report, project.report
    assert project.calls((1, 1), (2, 1)) == ["1", "7"]


@pytest.mark.parametrize("way", ["-fvisibility=hidden", "-Wl,--version-script=x.map", "-Wl,-Bsymbolic"])
def test_an_inline_function_that_a_library_hides_is_its_blobs_own(project: Project, way: str) -> None:
    """Another library, which is loaded before, exports one of another version."""
    header = "template <class T> struct Box { virtual T v(T x) { return x * VERSION; } };\n"
    header += (
        "__attribute__((noinline)) inline int f(int x) { Box<int>* b = new Box<int>; return b->v(x) + VERSION; }\n"
    )
    project.file("versioned.hpp", header)
    project.file("x.map", "{ global: run; local: *; };\n")
    project.file("first.cc", '#define VERSION 1\n#include "versioned.hpp"\nint first(int x) { return f(x); }\n')
    project.write({1: '#define VERSION 100\n#include "versioned.hpp"\n' + body(1, "f(x)")})
    flags, link = (f"{FLAGS} {way}", SHARED) if way.startswith("-f") else (FLAGS, f"{SHARED} {way}")
    project.build(f"{link}\nc++ -O1 -fPIC -shared first.cc -o libfirst.so", flags)
    assert "1 lazy" in project.report
    code = "import ctypes as c; c.CDLL('./libfirst.so', c.RTLD_GLOBAL); print(c.CDLL('./libx.so').run(1, 5))"
    shown = subprocess.run([sys.executable, "-c", code], cwd=project.where, capture_output=True, text=True)
    assert shown.stdout == "600\n", shown.stderr


def test_what_headers_alone_name_is_offered_to_each_blob_that_reads_them(project: Project) -> None:
    """Two blobs that read other headers are preprocessed apart. The first one is eager."""
    project.write({1: '#include "base.hpp"\nint data = 1;\n' + body(1, "x + data")})
    project.file("base.hpp", "#pragma once\nstruct Base { virtual int named(int); virtual int unnamed(int); };\n")
    project.file("more.hpp", "#pragma once\ninline int more() { return 5; }\n")
    derived = "struct Own : Base { int named(int x) override { return x + more(); } };\n"
    uses = "template <> int twice<2>(int x) { Base* volatile own = new Own; return own->named(x); }\n"
    project.write({2: '#include "base.hpp"\n#include "more.hpp"\n' + derived + uses}, calls=[1, 2])
    project.file(
        "base.cpp", '#include "base.hpp"\nint Base::named(int) { return 0; }\nint Base::unnamed(int) { return 1; }\n'
    )
    project.build(SHARED, FLAGS + " -fvisibility=hidden", cxx="g++")
    assert "1 lazy with 1 symbol, 1 eager" in project.report, project.report
    assert project.calls((1, 3), (2, 3)) == ["4", "8"]


PROGRAM = """#include <cstdio>
#include <dlfcn.h>
int twice(int x) { return 2 * x; }
int base = 10;
template <int N> int of() { static int calls; return calls += N; }
extern "C" int run(int);
int main() {
    void* plug_in = dlopen("./plugin.so", RTLD_NOW);
    int (*entry)(int) = reinterpret_cast<int (*)(int)>(dlsym(plug_in, "entry"));
    int first = of<1>(), of_blob = run(3), last = of<1>();
    std::printf("%d %d %d %d", first, of_blob, last, entry(3));
}
"""
BLOB = """int twice(int); extern int base;
template <int N> int of() { static int calls; return calls += N; }
extern "C" int run(int x) { return twice(x) + base + 100 * of<1>(); }
"""


@pytest.mark.parametrize(
    ("linker", "lto"),
    [*((x, "") for x in ("bfd", "gold", "lld", "mold")), *((x, "-flto") for x in ("bfd", "gold", "mold"))],
)
def test_a_program_exports_nothing_for_its_blobs_and_shares_all_with_them(
    project: Project, linker: str, lto: str
) -> None:
    if not shutil.which(f"ld.{linker}"):
        pytest.skip(f"needs ld.{linker}")
    project.write({}).file("dispatch.cpp", PROGRAM)
    project.file("blob/run.cpp", BLOB)
    project.file(
        "plugin.cpp", 'int twice(int x) { return x + 1000; }\nextern "C" int entry(int x) { return twice(x); }\n'
    )
    link = f"g++ -fuse-ld={linker} {lto} dispatch.o run.o -o prog -ldl; g++ {lto} -shared plugin.o -o plugin.so"
    project.build(link, f"-fPIC -O1 {lto}", cxx="g++")
    assert "1 lazy with 1 symbol" in project.report, project.report
    run = subprocess.run([project.where / "prog"], cwd=project.where, capture_output=True, text=True)
    others = "1003" if not lto else "6"  # what LTO objects have cannot be offered, and is exported
    assert (run.stdout, run.returncode) == (f"1 216 3 {others}", 0), run.stderr
    exported = {name for name in elf.read_shared(project.where / "prog").defined if "twice" in name or name == "run"}
    assert bool(exported) == bool(lto)


def test_a_library_s_version_of_an_inline_function_is_none_of_a_program_s_blob(project: Project) -> None:
    version = "__attribute__((noinline)) inline int version(int x) {{ return x * 10 + {}; }}\n"
    project.write({1: version.format(2) + body(1, "version(x)")})
    project.file("first.cc", version.format(1) + "int first(int x) { return version(x); }\n")
    project.file(
        "main.cc", 'extern "C" int run(int, int), printf(const char*, ...);\nint main() { printf("%d", run(1, 5)); }\n'
    )
    link = "c++ -shared -fPIC first.cc -o libfirst.so; c++ -c main.cc; c++ *.o -o main -Wl,--no-as-needed ./libfirst.so"
    project.build(link)
    assert "1 lazy with 1 symbol" in project.report, project.report
    run = subprocess.run([project.where / "main"], cwd=project.where, capture_output=True, text=True)
    assert run.stdout == "52", run.stderr


def test_a_library_of_a_program_calls_a_function_of_the_program_s_blob(project: Project) -> None:
    project.write({1: 'extern "C" int hook(int x) { return x + 40; }\n' + body(1, "hook(x)")})
    project.file("first.cc", 'extern "C" int hook(int);\nint first(int x) { return hook(x); }\n')
    project.file(
        "main.cc", 'extern "C" int printf(const char*, ...);\nint first(int);\nint main() { printf("%d", first(2)); }\n'
    )
    link = "c++ -shared -fPIC first.cc -o libfirst.so; c++ -c main.cc; c++ *.o -o main ./libfirst.so"
    project.build(link)
    assert "1 lazy with 2 symbols" in project.report, project.report
    run = subprocess.run([project.where / "main"], cwd=project.where, capture_output=True, text=True)
    assert run.stdout == "42", run.stderr
