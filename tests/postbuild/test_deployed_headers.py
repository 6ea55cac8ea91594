"""Tests that a deployed library compiles its blobs from its bundle alone, after the build's own
tree is gone."""

import os
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from support import Lazyck

from lazyck import abi
from lazyck.library.process import landlock_version

CALL = """import ctypes, sys
lib = ctypes.CDLL(sys.argv[1])
for name in sys.argv[2:]: print(name, getattr(lib, name)())
"""


@dataclass
class Tree:
    """A project of files, and the place where its library goes."""

    dir: Path
    lazyck: Lazyck

    def write(self, name: str, text: str) -> Path:
        path = self.dir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def build(self, script: str, **env: str) -> str:
        """Build lazily with a shell script, and return the output."""
        words = ("--toolchain", "host", "--tmp-dir", self.dir / "tmp", "--install-dir", self.dir.parent / "install")
        done = self.lazyck("build", "full", *words, "--", "sh", "-ec", script, cwd=self.dir, env=env)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def deploy(self) -> Path:
        """Move what was installed to another place, remove everything else, and return the
        library."""
        there = self.dir.parent / "another place"
        (self.dir.parent / "install").rename(there)
        shutil.rmtree(self.dir)
        return there / "libx.so"


def call(library: Path, *names: str, **env: str) -> dict[str, int]:
    """Return the results of the functions, called in a new process, by name."""
    argv = [sys.executable, "-c", CALL, str(library), *names]
    done = subprocess.run(argv, env={**os.environ, **env}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {name: int(value) for name, value in (line.split() for line in done.stdout.splitlines())}


@pytest.fixture
def tree(tmp_path: Path, lazyck: Lazyck) -> Tree:
    made = Tree(tmp_path / "project", lazyck)
    made.dir.mkdir()
    return made


def test_headers_that_variables_lead_to_are_found_in_the_bundle(tree: Tree) -> None:
    for directory in ("common", "cxx", "c", "here"):
        tree.write(f"inc/{directory}/{directory}.h", f"enum {{ {directory.upper()} = {len(directory)} }};\n")
    tree.write("blob/a.cpp", '#include <common.h>\nextern "C" int a() { return COMMON; }\n')
    tree.write("blob/b.cpp", '#include <cxx.h>\n#include <here.h>\nextern "C" int b() { return CXX * HERE; }\n')
    tree.write("blob/c.c", "#include <c.h>\n#include <common.h>\nint c(void) { return 10 * C + COMMON; }\n")
    summary = tree.build("""
        CPATH=$PWD/inc/common:/nowhere c++ -fPIC -c blob/a.cpp -o a.o
        (cd inc/here && CPLUS_INCLUDE_PATH=/nowhere:../cxx: c++ -fPIC -c ../../blob/b.cpp -o ../../b.o)
        CPATH=:inc/common C_INCLUDE_PATH=inc/c:/usr/include cc -fPIC -c blob/c.c -o c.o
        LIBRARY_PATH=/nowhere c++ -shared a.o b.o c.o -o libx.so
    """)
    assert "3 lazy" in summary, summary
    library = tree.deploy()
    # The compiles of blobs ignore such variables of the process.
    assert call(library, "a", "b", "c", CPATH="/elsewhere") == {"a": 6, "b": 12, "c": 16}


@pytest.mark.parametrize("way", ["-I.", "-Xpreprocessor -I$PWD", "CPATH=$PWD"], ids=["option", "passed-on", "variable"])
def test_headers_are_found_by_their_path_below_a_directory_above_all_files(tree: Tree, way: str) -> None:
    tree.write("lib/core/config.h", '#pragma once\n#include "lib/core/number.h"\n')
    tree.write("lib/core/number.h", "enum { NUMBER = 7 };\n")
    tree.write("lib/core/blob/a.cpp", '#include "lib/core/config.h"\nextern "C" int a() { return NUMBER; }\n')
    compiler = f"{way} c++" if "=" in way else f"c++ {way}"
    summary = tree.build(f"{compiler} -fPIC -c lib/core/blob/a.cpp -o a.o; c++ -shared a.o -o libx.so")
    assert "1 lazy" in summary, summary
    assert call(tree.deploy(), "a") == {"a": 7}


def test_blobs_that_differ_in_what_a_relative_variable_means_are_told_apart(tree: Tree) -> None:
    for i, directory in enumerate(("one", "two")):
        tree.write(f"{directory}/inc/which.h", f"#define WHICH which_{directory}\n")
        tree.write(f"blob/{directory}.cpp", f'#include <which.h>\nextern "C" int WHICH() {{ return {i}; }}\n')
    summary = tree.build("""
        (cd one && CPATH=inc c++ -fPIC -c ../blob/one.cpp -o ../one.o)
        (cd two && CPATH=inc c++ -fPIC -c ../blob/two.cpp -o ../two.o)
        c++ -shared one.o two.o -o libx.so
    """)
    assert "2 lazy" in summary, summary
    assert call(tree.deploy(), "which_one", "which_two") == {"which_one": 0, "which_two": 1}


@pytest.mark.parametrize(("later", "value"), [(0, 11), (5, 13)], ids=["taken-for-one", "kept-apart"])
def test_headers_of_equal_contents_mean_in_the_bundle_what_they_meant(tree: Tree, later: int, value: int) -> None:
    for i, directory in enumerate(("one", "two")):
        same = tree.write(f"inc/{directory}/same.h", '#pragma once\n#include <last.h>\n#include "own.h"\n')
        os.utime(same, (1_000_000_000 + i * later,) * 2)
        tree.write(f"inc/{directory}/own.h", f"#define OWN_{directory} {i + 1}\n")
    tree.write("inc/last.h", "#ifndef LAST\n#define LAST 10\n#endif\n")
    body = '#include "one/same.h"\n#include "two/same.h"\n#ifndef OWN_two\n#define OWN_two 0\n#endif\n'
    for name in ("a", "b"):
        tree.write(f"blob/{name}.cpp", body + f'extern "C" int {name}() {{ return OWN_one + LAST + OWN_two; }}\n')
    summary = tree.build("""
        for b in a b; do c++ -fPIC -Iinc -c blob/$b.cpp -o $b.o; done
        c++ -shared a.o b.o -o libx.so
    """)
    assert "2 lazy" in summary, summary
    ahead = "c++ -fPIC -Iinc blob/a.cpp blob/b.cpp -shared -o ahead.so"
    subprocess.run(ahead.split(), cwd=tree.dir, check=True)
    assert call(tree.dir / "ahead.so", "a", "b") == {"a": value, "b": value}
    assert call(tree.deploy(), "a", "b") == {"a": value, "b": value}


def test_headers_that_are_taken_for_others_cost_no_second_look(tree: Tree) -> None:
    tools = tree.dir.parent / "tools"
    wrapper = tree.write("../tools/c++", f'#!/bin/sh\necho "$*" >> {tools}/log\nexec /usr/bin/c++ "$@"\n')
    wrapper.chmod(0o755)
    for name in ("one_native", "two_native", "here/same", "there/same"):
        same = tree.write(f"inc/{name}.h", f"#pragma once\n#include <{'number' if 'native' in name else 'other'}.h>\n")
        os.utime(same, (1_000_000_000,) * 2)
    tree.write("inc/number.h", "#define NUMBER 4\n")
    tree.write("inc/other.h", "#define OTHER 1\n")
    names = ("one_native.h", "two_native.h", "here/same.h", "there/same.h")
    tree.write("inc/all.h", "".join(f"#include <{name}>\n" for name in names))
    tree.write("blob/a.cpp", '#include <all.h>\nextern "C" int a() { return NUMBER + OTHER; }\n')
    script = "c++ -fPIC -Iinc -c blob/a.cpp -o a.o; c++ -shared a.o -o libx.so"
    summary = tree.build(script, PATH=f"{tools}:{os.environ['PATH']}")
    assert "1 lazy" in summary, summary
    looks = [line for line in (tools / "log").read_text().splitlines() if " -MG" in line and "proof" in line]
    assert len(looks) == 1, looks
    assert call(tree.deploy(), "a") == {"a": 5}


def test_headers_that_are_only_asked_for_are_in_the_bundle(tree: Tree) -> None:
    tree.write("inc/there.h", "#error never included\n")
    tree.write(
        "blob/a.cpp",
        "#if __has_include(<there.h>) && !__has_include(<absent.h>)\n#define THERE 1\n#else\n#define THERE 2\n#endif\n"
        'extern "C" int a() { return THERE; }\n',
    )
    summary = tree.build("c++ -fPIC -Iinc -c blob/a.cpp -o a.o; c++ -shared a.o -o libx.so")
    assert "1 lazy" in summary, summary
    assert call(tree.deploy(), "a") == {"a": 1}


def test_a_header_that_is_only_asked_for_and_appears_is_seen_by_the_next_build(tree: Tree) -> None:
    source = "#define NAME <opt.h>\n#if __has_include(NAME)\n#define THERE 1\n#else\n#define THERE 2\n#endif\n"
    tree.write("inc/other.h", "")
    tree.write("blob/a.cpp", source + 'extern "C" int a() { return THERE; }\n')
    script = "c++ -fPIC -Iinc -c blob/a.cpp -o a.o; c++ -shared a.o -o libx.so"
    assert "1 lazy" in tree.build(script)
    assert call(tree.dir.parent / "install/libx.so", "a") == {"a": 2}
    tree.write("inc/opt.h", "#error never included\n")
    tree.build(script)
    assert call(tree.deploy(), "a") == {"a": 1}


def test_a_header_that_an_option_searches_for_is_found_in_the_bundle(tree: Tree) -> None:
    tree.write("inc/first.h", "#pragma once\n#include <cstdint>\n#define FIRST 3\n")
    tree.write("here.h", "#define HERE 4\n")
    tree.write("blob/a.cpp", 'extern "C" std::int32_t a() { return FIRST + HERE; }\n')
    options = "-include cstdint -include first.h -include here.h -imacros climits"
    summary = tree.build(f"c++ -fPIC -Iinc {options} -c blob/a.cpp -o a.o; c++ -shared a.o -o libx.so")
    assert "1 lazy" in summary, summary
    assert call(tree.deploy(), "a") == {"a": 7}


@pytest.mark.parametrize(
    "text",
    ['asm(".pushsection .rodata\\n.incbin \\"" FILE "\\"\\n.popsection");', 'asm(".include \\"" FILE "\\"");',
     "inline int* own() { static thread_local int x __attribute__((tls_model(\"initial-exec\"))); return &x; }"],
)  # fmt: skip
@pytest.mark.parametrize("place", ["blob/a.cpp", "inc/a.h"])
def test_a_blob_that_reads_by_the_assembler_or_needs_a_place_at_start_is_eager(
    tree: Tree, text: str, place: str
) -> None:
    tree.write("inc/a.h", "#pragma once\nstruct S { void include(int); };\n")
    tree.write("blob/b.cpp", '#include "a.h"\nextern "C" int b() { S s; (void)sizeof(s.include(1), 0); return 5; }\n')
    tree.write("blob/a.cpp", '#include "a.h"\nextern "C" int a() { return 4; }\n')
    with (tree.dir / place).open("a") as f:
        f.write(text)
    tree.write("data", "# nothing\n")
    summary = tree.build(f"""
        for name in a b; do c++ -fPIC -Iinc '-DFILE="{tree.dir}/data"' -c blob/$name.cpp -o $name.o; done
        c++ -shared a.o b.o -o libx.so
    """)
    assert ("1 lazy" in summary) == (place == "blob/a.cpp"), summary


def test_sources_that_a_unity_build_names_by_their_path_are_found_in_the_bundle(tree: Tree) -> None:
    tree.write("src/part.cpp", '#include "beside.h"\nextern "C" int part() { return BESIDE; }\n')
    tree.write("src/beside.h", "#define BESIDE 3\n")
    tree.write("blob/unity.cpp", f'#include "{tree.dir}/src/part.cpp"\nextern "C" int unity() {{ return part(); }}\n')
    summary = tree.build("c++ -fPIC -c blob/unity.cpp -o a.o; c++ -shared a.o -o libx.so")
    assert "1 lazy" in summary, summary
    assert call(tree.deploy(), "part", "unity") == {"part": 3, "unity": 3}


def test_a_blob_that_reads_a_path_of_this_machine_is_eager_and_its_neighbours_are_not(tree: Tree) -> None:
    tree.write("inc/by_macro.h", "#define VALUE 4\n")
    tree.write("blob/a.cpp", '#ifdef HEADER\n#include HEADER\n#endif\nextern "C" int a() { return VALUE; }\n')
    tree.write("blob/b.cpp", 'extern "C" int b() { return 5; }\n')
    summary = tree.build("""
        for b in a b; do c++ -fPIC "-DHEADER=\\"$PWD/inc/by_macro.h\\"" -c blob/$b.cpp -o $b.o; done
        c++ -shared a.o b.o -o libx.so
    """)
    assert "1 lazy" in summary, summary
    said = "blob/a.cpp reads a file by a path that only this machine has"
    assert f"{said}: {tree.dir}/inc/by_macro.h" in summary, summary
    assert call(tree.deploy(), "a", "b") == {"a": 4, "b": 5}


def test_a_path_that_leads_out_of_a_linked_directory_is_followed_as_by_the_kernel(tree: Tree) -> None:
    for place, value in (("deep/inc", 3), ("inc", 4), ("deep/own", 5), ("own", 6)):
        tree.write(f"{place}/v.h", f"#define V {value}\n")
    tree.write("deep/er/blob/a.cpp", '#include "../../inc/v.h"\nextern "C" int a() { return V; }\n')
    tree.write("blob/b.cpp", '#include "../inc/v.h"\nextern "C" int b() { return V; }\n')
    tree.write("blob/c.cpp", '#include <v.h>\nextern "C" int c() { return V; }\n')
    (tree.dir / "lib").mkdir()
    (tree.dir / "lib" / "link").symlink_to("../deep/er/blob")
    tree.build(
        "c++ -fPIC -c lib/link/a.cpp -o a.o; c++ -fPIC -c blob/b.cpp -o b.o\n"
        "c++ -fPIC -I$PWD/lib/link/../../own -c blob/c.cpp -o c.o; c++ -shared a.o b.o c.o -o libx.so"
    )
    expected = {"a": 3, "b": 4, "c": 5}
    assert call(tree.dir / "libx.so", *expected) == expected
    assert call(tree.deploy(), *expected) == expected


def test_a_directory_that_is_gone_and_made_again_by_others_is_not_searched(tree: Tree) -> None:
    there = tree.dir.parent / "pip-build-env"
    for place in ("include", "of variable", "for host compiler"):
        (there / place).mkdir(parents=True)
    tree.write("blob/a.cpp", '#include <cstddef>\nextern "C" int a() { return 6; }\n')
    options = f"-I{there}/include -Xpreprocessor '-I{there}/for host compiler' -L{there}/include"
    script = f"c++ -fPIC {options} -c blob/a.cpp -o a.o; c++ -shared a.o -o libx.so"
    summary = tree.build(script, CPATH=f"{there}/of variable")
    assert "1 lazy" in summary, summary
    library = tree.deploy()
    assert str(there) not in tree.lazyck("inspect", "--all", library).stdout
    for directory in there.iterdir():
        (directory / "cstddef").write_text("#error of another user\n")
    unlimited = {abi.TEST_UNRESTRICTED: "1"}
    assert call(library, "a", **unlimited) == {"a": 6}


def test_a_blob_whose_options_name_places_of_this_machine_is_eager(tree: Tree) -> None:
    tools = tree.dir / "tools"
    tools.mkdir()
    tree.write("blob/a.cpp", 'extern "C" int a() { return 7; }\n')
    summary = tree.build("c++ -fPIC -isysroot $PWD/tools -c blob/a.cpp -o a.o; c++ -shared a.o -o libx.so")
    said = "blob/a.cpp has an option or variable for the compile that names a place of this machine"
    assert f"{said}: {tools}" in summary, summary


@pytest.mark.skipif(not landlock_version(), reason="this kernel has no Landlock")
def test_a_blob_whose_compiler_needs_what_a_first_call_could_not_read_is_eager(tree: Tree) -> None:
    flags = tree.write("flags", "-O1\n")
    wrapper = tree.dir.parent / "tools" / "cc"  # not c++, which compiles lazyck's runtime
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/bin/sh\nflags=$(cat {flags}) || exit 1\nexec {shutil.which("cc")} $flags "$@"\n')
    wrapper.chmod(0o755)
    tree.write("blob/a.c", "int a(void) { return 8; }\n")
    tree.write("blob/b.cpp", 'extern "C" int b() { return 9; }\n')
    script = "cc -fPIC -c blob/a.c -o a.o; c++ -fPIC -c blob/b.cpp -o b.o; c++ -shared a.o b.o -o libx.so"
    summary = tree.build(script, PATH=f"{wrapper.parent}:{os.environ['PATH']}")
    said = f"blob/a.c does not preprocess out of the library's bundle: cat: {flags}: Permission denied"
    assert said in summary, summary
    assert "1 lazy" in summary, summary
    assert call(tree.deploy(), "a", "b") == {"a": 8, "b": 9}


SCRIPTS = {
    "script": 'exec REAL $OWN_FLAGS "$@"\n',
    "mute script": 'case "$*" in *"-###"*) exit 1;; esac\nexec REAL $OWN_FLAGS "$@"\n',
    "script for compiles": 'case " $* " in *" -c "*) exec REAL $OWN_FLAGS "$@";; esac\nexec REAL "$@"\n',
    "script for a directory": 'if [ -d blob ]; then exec REAL -DN=8 "$@"; fi\nexec REAL "$@"\n',
}


@pytest.mark.parametrize("what", [*SCRIPTS, "specs"])
def test_a_blob_whose_compiler_takes_more_from_the_environment_than_a_first_call_is_eager(
    tree: Tree, what: str
) -> None:
    tree.write("blob/a.c", "int a(void) { return N; }\n")
    real, tools = shutil.which("gcc"), tree.dir.parent / "tools"
    asked = (subprocess.check_output([str(real), word], text=True).strip() for word in ("-dumpmachine", "-dumpversion"))
    place = tools.joinpath(*asked)
    place.mkdir(parents=True)
    (place / "specs").write_text("*cpp_unique_options:\n+ -DN=8\n\n")
    wrapper = tools / "cc"  # not c++, which compiles lazyck's runtime
    wrapper.write_text("#!/bin/sh\n" + SCRIPTS.get(what, SCRIPTS["script"]).replace("REAL", str(real)))
    wrapper.chmod(0o755)
    compiler = Path(shutil.which("cc") or "") if what == "specs" else wrapper
    if what != "specs":
        env = {"OWN_FLAGS": "-DN=8", "PATH": f"{tools}:{os.environ['PATH']}"}
    else:
        env = {"LIBRARY_PATH": str(tools)}
    summary = tree.build("cc -fPIC -c blob/a.c -o a.o; unset LIBRARY_PATH; c++ -shared a.o -o libx.so", **env)
    said = f"blob/a.c is compiled otherwise outside of the build's environment: {compiler}"
    assert said in summary, summary
    assert call(tree.deploy(), "a") == {"a": 8}


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the assembler text is for x86-64")
def test_a_blob_whose_compiler_found_a_program_on_the_build_s_own_path_is_eager(tree: Tree) -> None:
    tools = tree.dir.parent / "own tools"
    tools.mkdir()
    (tools / "as").write_text(f'#!/bin/sh\nexec {shutil.which("as")} --defsym HERE=8 "$@"\n')
    (tools / "as").chmod(0o755)
    assembler = ".ifdef HERE\\n mov $HERE, %0\\n.else\\n mov $1, %0\\n.endif"
    text = f'int NAME(void) {{ int r; __asm__("{assembler}" : "=r"(r)); return r; }}\n'
    for name in ("a", "b"):
        tree.write(f"blob/{name}.c", text.replace("NAME", name))
    script = f"PATH='{tools}':$PATH gcc -fPIC -c blob/a.c -o a.o; gcc -fPIC -c blob/b.c -o b.o"
    summary = tree.build(f"{script}; gcc -shared a.o b.o -o libx.so")
    said = f"blob/a.c is compiled otherwise outside of the build's environment: {tools}/as"
    assert said in summary and "1 lazy" in summary, summary
    assert call(tree.deploy(), "a", "b") == {"a": 8, "b": 1}


@pytest.mark.parametrize("real", ["cc", "clang-19"])
def test_a_compiler_s_script_that_needs_no_variable_is_part_of_the_key(tree: Tree, real: str) -> None:
    tree.write("blob/a.c", "int a(void) { return N; }\n")
    wrapper = tree.dir.parent / "tools" / "cc"
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/bin/sh\n. {wrapper.parent}/flags\nexec {shutil.which(real)} $flags "$@"\n')
    wrapper.chmod(0o755)
    for n in (3, 4):
        (wrapper.parent / "flags").write_text(f"flags=-DN={n}\n")
        script = "cc -fPIC -c blob/a.c -o a.o; c++ -shared a.o -o libx.so"
        tree.build(script, PATH=f"{wrapper.parent}:{os.environ['PATH']}")
        assert call(tree.dir / "libx.so", "a", **{abi.TEST_UNRESTRICTED: "1"}) == {"a": n}


def test_a_bundle_is_proved_once_and_again_when_something_changed(tree: Tree) -> None:
    log = tree.dir.parent / "calls"
    wrapper = tree.dir.parent / "bin" / "cc"  # not c++, which compiles lazyck's runtime
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/bin/sh\necho "$@" >> "{log}"\nexec {shutil.which("cc")} "$@"\n')
    wrapper.chmod(0o755)
    tree.write("inc/there.h", "#define X 1\n")
    for name in ("a", "b"):
        tree.write(f"blob/{name}.c", f"#include <there.h>\nint {name}(void) {{ return X; }}\n")
    script = """
        for b in a b; do cc -fPIC -Iinc -c blob/$b.c -o $b.o; done
        c++ -shared a.o b.o -o libx.so
    """

    def proofs() -> int:
        log.write_text("")
        tree.build(script, PATH=f"{wrapper.parent}:{os.environ['PATH']}")
        return sum(" -MG " in line for line in log.read_text().splitlines())

    assert (proofs(), proofs()) == (1, 0)
    tree.write("inc/there.h", "#define X 2\n")
    assert (proofs(), proofs()) == (1, 0)
    assert call(tree.deploy(), "a", "b") == {"a": 2, "b": 2}


@pytest.mark.parametrize(("name", "lazy"), [('a"b', 1), ("a\nb", 0), ("a'b c#d$e", 1), ("a\\b", 1), ("ä", 1)])
def test_a_directory_whose_name_needs_escapes_is_as_any_other(
    tmp_path: Path, lazyck: Lazyck, name: str, lazy: int
) -> None:
    tree = Tree(tmp_path / name, lazyck)
    tree.write("inc/k.h", "#pragma once\nenum { N = 6 };\n")
    tree.write("blob/k.cpp", '#include "k.h"\nextern "C" int k() { return N; }\n')
    script = 'c++ -fPIC -I"$PWD/inc" -c "$PWD/blob/k.cpp" -o k.o; c++ -shared k.o -o libx.so'
    assert f"{lazy} lazy with" in tree.build(script)
    assert call(tree.deploy(), "k") == {"k": 6}
