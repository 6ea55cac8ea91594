"""Tests `lazyck check` on real libraries: each is made ahead of time by its own compilers and
compared."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from support import REPOSITORY
from support.command_server import CommandServer

from lazyck.check.ahead import Sample, spread
from lazyck.commands.check import parse_sample
from lazyck.errors import UsageError
from lazyck.postbuild.objects.offered import read_offered

FILES = {
    "api.hpp": "#pragma once\ntemplate <int N> int twice(int x);\nint in_archive(int x);\nint weakly(int x);\n",
    "dispatch.cpp": '#include "api.hpp"\nextern "C" int run(int x) '
    "{ return twice<1>(x) + in_archive(x) + weakly(x); }\n",
    "blob/v1.cpp": '#include "api.hpp"\ntemplate <> int twice<1>(int x) { return x * 2; }\n'
    "static int counter;\nint count() { return ++counter; }\n",
    "blob/v2.cpp": '#include "api.hpp"\n__attribute__((weak)) int weakly(int x) { return x; }\n'
    '__attribute__((visibility("hidden"))) int hidden(int x) { return x; }\n',
    "blob/member.cpp": '#include "api.hpp"\nint in_archive(int x) { return x + 3; }\n',
    "blob/data.cpp": "int table[4] = {1, 2, 3, 4};\n",
    "exports": 'V1 { global: extern "C++" { *; }; run; table; };\n',
    "build.sh": "set -e\nfor f in dispatch blob/v1 blob/v2 blob/member blob/data; do\n"
    "  ${CXX:-c++} -O1 -fPIC $FLAGS -I. -c $f.cpp -o $(basename $f).o\ndone\nrm -f libm1.a\nar rcs libm1.a member.o\n"
    "ld -r -o both.o v1.o v2.o\n"
    "${CXX:-c++} $FLAGS -shared -o libx.so dispatch.o both.o -L. -lm1 data.o -Wl,-Map=libx.map "
    "-Wl,--version-script,exports\n",
}


class Built:
    """A copy of the project after a lazy build."""

    server: CommandServer

    def __init__(self, where: Path, *options: str, files: dict[str, str] | None = None, **env: str) -> None:
        self.where = where
        for name, text in {**FILES, **(files or {})}.items():
            (where / name).parent.mkdir(parents=True, exist_ok=True)
            (where / name).write_text(text)
        words = ["build", "full", "--toolchain", "host", *options, "--", "sh", "build.sh"]
        self.done = self.lazyck(*words, **env)

    def lazyck(self, *words: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
        full = {**os.environ, "PYTHONPATH": str(REPOSITORY), **env}
        return self.server.run([*map(str, words)], self.where, full, "", timeout=600)

    @property
    def kept(self) -> Path:
        (directory,) = (self.where / ".lazyck-build" / "libs").iterdir()
        return directory

    def check(self, *options: str | Path) -> dict[str, Any]:
        """Return what `lazyck check --json` says of the library, with only those differences that
        make it fail."""
        done = self.lazyck("check", "--tmp-dir", ".lazyck-build", "--json", *options)
        assert done.stdout, done.stderr
        (found,) = json.loads(done.stdout)
        assert done.returncode == (0 if found["same"] else 1)
        found["differences"] = [d for d in found["differences"] if d["fails"]]
        return found  # type: ignore[no-any-return]


@pytest.fixture(scope="module", autouse=True)
def served(command_server: CommandServer) -> None:
    Built.server = command_server


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    made = Built(tmp_path_factory.mktemp("built"))
    assert made.done.returncode == 0, made.done.stderr
    return made


def test_a_library_whose_build_directory_is_gone(tmp_path: Path) -> None:
    """Setup scripts that run CMake in a temporary directory make such libraries."""
    script = (
        "set -e\ntop=$PWD; work=$top/work/here; mkdir -p $work; cd $work\n"
        'c++ -fPIC -I../.. -c "$top/blob/v1.cpp" -o v1.o\n'
        'c++ -shared v1.o -o "$top/libx.so"\ncd "$top"; rm -rf work\n'
    )
    made = Built(tmp_path, files={"build.sh": script})
    assert made.done.returncode == 0, made.done.stderr
    found = made.check()
    assert found["same"] and found["compiled"] == 1
    assert not (tmp_path / "work").exists()


@pytest.mark.parametrize("other", ["", "-L. -lother"])
def test_what_an_inline_function_of_a_blob_is_to_a_library_that_has_it_too(tmp_path: Path, other: str) -> None:
    """Since C++20, each file that assigns strings has the code of the assignment. Other files take
    it from libstdc++, as lazyck's runtime does, or from another library that exports it and that
    the link names, as torch does."""
    text = "#include <string>\nvoid NAME(std::string &to, const std::string &from) { to = from; }\n"
    needs = "void in_other(std::string &, const std::string &);\nvoid *other = (void *)in_other;\n" if other else ""
    files = {
        "blob/v20.cpp": text.replace("NAME", "in_20"),
        "rest.cpp": text.replace("NAME", "in_17") + needs,
        "other.cpp": text.replace("NAME", "in_other"),
        "build.sh": "set -e\nc++ -std=c++20 -fPIC -c blob/v20.cpp -o v20.o\n"
        "c++ -std=c++17 -fPIC -c rest.cpp -o rest.o\n"
        f"c++ -std=c++20 -shared -fPIC other.cpp -o libother.so\nc++ -shared v20.o rest.o {other} -o libx.so\n",
    }
    made = Built(tmp_path, "--blobs", "*/blob/*", files=files)
    assert made.done.returncode == 0, made.done.stderr
    found = made.check("--verbose")
    assert found["same"], found["differences"]
    ahead = next((made.kept / "ahead").rglob("libx.so"))
    lazily = read_offered(made.kept / "libx.so")
    shared = read_offered(ahead).exports.keys() & lazily.undefined
    assert shared if other else shared & lazily.taken
    assert not other or shared - lazily.taken, "the linker took none from the library that is named"


@pytest.fixture
def swapped(built: Built) -> Callable[[str], list[tuple[str, str, str]]]:
    """Return a function that puts another library in place of the lazy one and returns the
    differences that the check finds. A shell script makes the other library from the project's."""

    def check(change: str) -> list[tuple[str, str, str]]:
        linked, before = built.kept / "libx.so", (built.kept / "libx.so").read_bytes()
        try:
            subprocess.run(["sh", "-ec", change], cwd=built.where, check=True)
            shutil.copy(built.where / "swapped.so", linked)
            return sorted((d["kind"], d["demangled"], Path(d["source"]).name) for d in built.check()["differences"])
        finally:
            linked.write_bytes(before)

    return check


COMPILE = "mkdir -p real; for f in dispatch blob/v1 blob/v2 blob/member blob/data; do c++ -O1 -fPIC -I. -c $f.cpp -o "
COMPILE += "real/$(basename $f).o; done; "
LINK = "c++ -shared -o swapped.so real/*.o -Wl,--version-script,exports"


def test_a_lazy_library_is_the_same_also_out_of_archives_and_merged_objects(built: Built) -> None:
    before = (built.where / "libx.map").stat().st_mtime_ns
    found = built.check()
    assert found["differences"] == []
    assert (found["blobs"], found["compiled"], found["left_out"], found["failed"]) == (4, 4, 0, [])
    assert found["symbols"] == {"stub": 4, "real": 1, "local": 1}
    assert not (built.kept / "ahead").exists()
    assert (built.where / "libx.map").stat().st_mtime_ns == before, "the build's own files stay as they are"


def test_a_function_that_is_missing_is_lost(swapped: Callable[[str], list[tuple[str, str, str]]]) -> None:
    found = swapped(f"{COMPILE}echo 'extern \"C\" int run(int x) {{ return x; }}' > real/d.cpp; "
                    f"c++ -fPIC -c real/d.cpp -o real/dispatch.o; rm real/v2.o; {LINK}")  # fmt: skip
    assert found == [("lost", "weakly(int)", "v2.cpp")]


def test_data_of_another_size_and_a_function_for_itself(swapped: Callable[[str], list[tuple[str, str, str]]]) -> None:
    found = swapped(
        f"{COMPILE}echo 'int table[8];' | c++ -fPIC -x c++ -c - -o real/data.o; "
        f"c++ -fPIC -fvisibility=hidden -I. -c blob/v1.cpp -o real/v1.o; {LINK}"
    )
    assert found == [("internal", "count()", "v1.cpp"), ("size", "table", "data.cpp")]


def test_versions_visibility_and_the_dynamic_section(swapped: Callable[[str], list[tuple[str, str, str]]]) -> None:
    found = swapped(
        f"{COMPILE}c++ -fPIC -fvisibility=protected -I. -c blob/member.cpp -o real/member.o; "
        "sed 's/run;//; $a V2 { global: run; };' exports > real/exports; "
        + LINK.replace("exports", "real/exports")
        + " -Wl,-z,now -Wl,-rpath,/nowhere"
    )
    assert [(kind, name) for kind, name, _ in found] == [
        ("entry", "DT_RUNPATH"),
        ("flag", "BIND_NOW"),
        ("version", "run"),
        ("version", "run"),
        ("version-name", "V2"),
        ("visibility", "in_archive(int)"),
    ]


def test_a_sample_compiles_as_many_blobs_as_it_says(built: Built) -> None:
    for sample in ("2", "1000s"):
        found = built.check("--sample", sample, "libx.so")
        assert found["differences"] == []
        assert found["compiled"] + found["left_out"] == 4
    assert found["compiled"] == 4
    assert "holds" not in built.lazyck("check", "--tmp-dir", ".lazyck-build", "liby.so").stdout
    assert built.lazyck("check", "--tmp-dir", ".lazyck-build", "liby.so").returncode == 1


def test_a_sample_is_spread_evenly() -> None:
    assert sorted(spread(1000, None)) == list(range(1000))
    for wanted in (2, 8, 100):
        places = sorted([*spread(1000, wanted), 1000])
        assert max(b - a for a, b in pairwise(places)) <= 2.1 * 1000 / wanted + 24
    assert spread(0, None) == []
    assert spread(1, 5) == [0]


def test_how_a_sample_is_written() -> None:
    assert parse_sample("") == Sample()
    assert parse_sample("40").blobs == 40
    assert (parse_sample("90s").seconds, parse_sample("10m").seconds) == (90, 600)
    for wrong in ("0", "-1", "1h", "s", "ten"):
        with pytest.raises(UsageError):
            parse_sample(wrong)


def test_the_build_itself_checks_and_a_blob_that_does_not_compile_is_named(tmp_path: Path) -> None:
    files = {"blob/v2.cpp": FILES["blob/v2.cpp"] + "int broken() { return no_such_name; }\n"}
    built = Built(tmp_path, "--check", files=files)
    said = built.done.stderr
    assert "libx.so: compiling 4 blobs, " in said
    assert "it does not compile ahead of time" in said
    assert "blob/v2.cpp" in said
    assert "no_such_name" in said
    assert "3 of 4 blobs compiled ahead of time" in said
    assert built.done.returncode == (1 if "DIFFERENT" in said else 0)


def test_verbose_keeps_what_was_made_and_what_cannot_be_linked_is_said(tmp_path: Path) -> None:
    built = Built(tmp_path)
    assert built.done.returncode == 0, built.done.stderr
    for copy in (built.kept / "objects").glob("*dispatch.o"):
        copy.write_text("no object")
    done = built.lazyck("check", "--tmp-dir", ".lazyck-build", "--verbose")
    assert done.returncode == 1
    assert "nothing was compared: it does not link ahead of time" in done.stderr
    assert (built.kept / "ahead" / "0.o").is_file()


def test_what_a_library_without_its_record_says(tmp_path: Path, built: Built) -> None:
    kept = built.kept / "ahead.json"
    text = kept.read_text()
    try:
        for damaged in (None, "{", '{"version": 0}', '{"version": 1}'):
            kept.unlink(missing_ok=True) if damaged is None else kept.write_text(damaged)
            done = built.lazyck("check", "--tmp-dir", ".lazyck-build")
            assert done.returncode == 1
            assert "ahead.json" in done.stderr
            assert "hint: run `lazyck build full` again" in done.stderr
    finally:
        kept.write_text(text)
    done = built.lazyck("check", "--tmp-dir", tmp_path)
    assert "not a tmp dir of lazyck" in done.stderr


@pytest.mark.parametrize("way", ["lto", "clang", "hidden"])
def test_other_ways_to_compile(tmp_path: Path, way: str) -> None:
    clang = shutil.which("clang++") or shutil.which("clang++-19")
    if way == "clang" and not clang:
        pytest.skip("needs clang++")
    # `ld -r` does not take several LTO objects of g++.
    script = FILES["build.sh"].replace("ld -r -o both.o v1.o v2.o\n", "").replace("both.o", "v1.o v2.o")
    env = {"lto": {"FLAGS": "-flto=1"}, "clang": {"CXX": clang or ""}, "hidden": {"FLAGS": "-fvisibility=hidden"}}[way]
    run = FILES["dispatch.cpp"].replace('extern "C"', 'extern "C" __attribute__((visibility("default")))')
    built = Built(tmp_path, files={"build.sh": script, "dispatch.cpp": run}, **env)
    assert built.done.returncode == 0, built.done.stderr
    differences = built.check()["differences"]
    # With -fvisibility=hidden, symbols that g++ leaves visible are protected in the lazy library.
    assert {d["kind"] for d in differences} <= ({"visibility"} if way == "hidden" else set())


def test_a_program_is_compared_too(tmp_path: Path) -> None:
    script = (
        FILES["build.sh"].replace("-shared -o libx.so", "-o prog").replace("-Wl,--version-script,exports", "-rdynamic")
    )
    main = FILES["dispatch.cpp"] + '#include <cstdio>\nint main() { std::printf("%d", run(3)); }\n'
    built = Built(tmp_path, files={"build.sh": script, "dispatch.cpp": main})
    assert built.done.returncode == 0, built.done.stderr
    assert built.check("prog")["differences"] == []
    assert subprocess.run([tmp_path / "prog"], capture_output=True, text=True).stdout == "15"


def test_versions_are_read_as_nm_shows_them(tmp_path: Path) -> None:
    (tmp_path / "v.c").write_text(
        'int f1(void) { return 1; }\nint f2(void) { return 2; }\nint plain(void) { return 3; }\nint data[7];\n'
        '__asm__(".symver f1,f@V1");\n__asm__(".symver f2,f@@V2");\n__attribute__((weak)) int w(void) { return 4; }\n'
    )  # fmt: skip
    (tmp_path / "map").write_text("V1 { global: f; data; local: f1; f2; };\nV2 { global: f; } V1;\n")
    library = tmp_path / "libv.so"
    link = ["cc", "-shared", "-fPIC", "v.c", "-o", "libv.so", "-Wl,--version-script=map", "-Wl,-z,now", "-Wl,-rpath,/r"]
    subprocess.run([*link, "-Wl,-soname,libv.so.1"], cwd=tmp_path, check=True)
    shown = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True)
    offered = read_offered(library)
    assert offered.exports.keys() == {line.split()[2] for line in shown.stdout.splitlines()} - {"V1", "V2"}
    assert {"f@V1", "f@@V2", "plain", "data@@V1"} <= offered.exports.keys()
    assert (offered.exports["data@@V1"].size, offered.exports["data@@V1"].type) == (28, "OBJECT")
    assert offered.exports["w"].binding == "WEAK"
    assert offered.entries["SONAME"] == "libv.so.1"
    assert offered.entries.get("RUNPATH", offered.entries.get("RPATH")) == "/r"
    assert "BIND_NOW" in offered.flags
    assert offered.versions == {"V1", "V2"}
    assert "INIT_ARRAY" in offered.code
    assert "f1" in offered.names
