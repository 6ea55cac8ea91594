"""Tests that compile_commands.json is written and read."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support import Lazyck
from support.failing_project import SOURCES

COMPILE = "c++ -fPIC -I. -c dispatch.cpp -o dispatch.o; c++ -fPIC -I. -MD -c blob/v1.cpp -o v1.o; "
LINK = "c++ -shared dispatch.o v1.o -o libx.so"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    where = tmp_path / "project"
    for name, text in SOURCES.items():
        (where / name).parent.mkdir(parents=True, exist_ok=True)
        (where / name).write_text(text)
    return where


def build(lazyck: Lazyck, project: Path, script: str, *options: str | Path) -> subprocess.CompletedProcess[str]:
    words = ["build", "full", "--toolchain", "host", "--tmp-dir", "tmp", *options, "--", "sh", "-ec", script]
    return lazyck(*words, cwd=project)


def exported(project: Path) -> list[dict[str, Any]]:
    found = json.loads((project / "tmp" / "compile_commands.json").read_text())
    assert isinstance(found, list)
    return found


def write(project: Path, entries: Any) -> Path:
    path = project / "compile_commands.json"
    path.write_text(entries if isinstance(entries, str) else json.dumps(entries))
    return path


def entry(**more: Any) -> dict[str, Any]:
    words = ["c++", "-fPIC", "-I.", "-c", "blob/v1.cpp", "-o", "out/v1.o"]
    return {"directory": ".", "file": "blob/v1.cpp", "arguments": words, **more}


# -- export ----------------------------------------------------------------------------------------


def test_every_compile_is_listed_with_the_real_compiler(lazyck: Lazyck, project: Path) -> None:
    (project / "args").write_text("-DX='a b' -c")
    script = (
        COMPILE + LINK + "; c++ --version >/dev/null; c++ -E dispatch.cpp -I. >/dev/null; c++ @args main.cpp other.cpp"
    )
    for name in ("main.cpp", "other.cpp"):
        (project / name).write_text("\n")
    assert build(lazyck, project, script).returncode == 0
    found = {e["file"]: e for e in exported(project)}
    compiler = shutil.which("c++")
    assert {Path(f).name for f in found} == {"dispatch.cpp", "v1.cpp", "main.cpp", "other.cpp"}
    assert found[str(project / "blob/v1.cpp")] == {
        "directory": str(project),
        "file": str(project / "blob/v1.cpp"),
        "arguments": [compiler, "-fPIC", "-I.", "-MD", "-c", "blob/v1.cpp", "-o", "v1.o"],
        "output": str(project / "v1.o"),
    }
    several = found[str(project / "main.cpp")]
    assert several["arguments"] == [compiler, "-DX=a b", "-c", "main.cpp", "other.cpp"] and "output" not in several


def test_incremental_builds_add_to_the_list(lazyck: Lazyck, project: Path) -> None:
    assert build(lazyck, project, COMPILE + LINK).returncode == 0
    assert build(lazyck, project, "c++ -O3 -fPIC -I. -c dispatch.cpp -o dispatch.o").returncode == 0
    found = {Path(e["file"]).name: e["arguments"] for e in exported(project)}
    assert found.keys() == {"dispatch.cpp", "v1.cpp"} and "-O3" in found["dispatch.cpp"]
    (project / "blob/v1.cpp").unlink()
    (project / "tmp/compile_commands.json").rename(project / "tmp/kept")
    (project / "tmp/kept").rename(project / "tmp/compile_commands.json")
    build(lazyck, project, "true")
    assert [Path(e["file"]).name for e in exported(project)] == ["dispatch.cpp"]
    (project / "tmp/compile_commands.json").write_text("not JSON")
    assert build(lazyck, project, "c++ -I. -c dispatch.cpp -o dispatch.o").returncode == 0
    assert len(exported(project)) == 1


@pytest.mark.skipif(not shutil.which("clang-check-19"), reason="needs clang-check")
def test_clang_s_tools_take_the_list(lazyck: Lazyck, project: Path) -> None:
    assert build(lazyck, project, COMPILE + LINK).returncode == 0
    argv = ["clang-check-19", "-p", str(project / "tmp"), str(project / "blob/v1.cpp"), str(project / "dispatch.cpp")]
    done = subprocess.run(argv, cwd="/", capture_output=True, text=True)
    assert done.returncode == 0 and not [line for line in done.stderr.splitlines() if "Processing" not in line]


# -- import ----------------------------------------------------------------------------------------


def test_blobs_are_deferred_from_a_file_and_the_command_only_links(lazyck: Lazyck, project: Path) -> None:
    entries = [
        entry(),
        {
            "directory": "blob/..",
            "file": "blob/v2.cpp",
            "command": "c++ -fPIC '-I.' -c blob/v2.cpp",
            "output": "out/deep/v2.o",
        },
        entry(file="dispatch.cpp", arguments=["c++", "-fPIC", "-I.", "-c", "dispatch.cpp", "-o", "dispatch.o"]),
    ]
    (project / "blob/v2.cpp").write_text("int second() { return 2; }\n")
    file = write(project, entries)
    script = (
        "/usr/bin/c++ -fPIC -I. -c dispatch.cpp -o dispatch.o; c++ -shared dispatch.o out/v1.o out/deep/v2.o -o libx.so"
    )
    done = build(lazyck, project, script, "--compile-commands", file)
    assert done.returncode == 0, done.stderr
    assert f"2 blobs deferred from {file}" in done.stderr
    assert "libx: 2 blobs deferred, 2 lazy" in done.stderr
    code = "import ctypes; print(ctypes.CDLL('./libx.so').run(21))"
    assert subprocess.run([sys.executable, "-c", code], cwd=project, capture_output=True, text=True).stdout == "42\n"
    assert {Path(e["file"]).name for e in exported(project)} == {"v1.cpp", "v2.cpp"}


def test_what_it_exported_it_imports(lazyck: Lazyck, project: Path) -> None:
    assert build(lazyck, project, COMPILE + LINK).returncode == 0
    for name in ("v1.o", "libx.so"):
        (project / name).unlink()
    done = build(lazyck, project, LINK, "--compile-commands", project / "tmp/compile_commands.json")
    assert done.returncode == 0, done.stderr
    assert "1 blob deferred, 1 lazy" in done.stderr


def test_blobs_that_cannot_be_deferred_are_named_with_the_reason(lazyck: Lazyck, project: Path) -> None:
    gone = entry(file="blob/gone.cpp", arguments=["c++", "-c", "blob/gone.cpp", "-o", "g.o"])
    split = entry(arguments=["c++", "-gsplit-dwarf", "-c", "blob/v1.cpp", "-o", "s.o"])
    done = build(lazyck, project, "true", "--compile-commands", write(project, [entry(), gone, split]))
    assert "1 blob deferred from" in done.stderr
    assert "1 of its blobs not deferred, split-debug: v1.cpp" in done.stderr
    assert "1 of its blobs not deferred, source-unreadable: gone.cpp" in done.stderr
    assert not (project / "s.o").exists()


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ("[{", ["not JSON", "CMAKE_EXPORT_COMPILE_COMMANDS"]),
        ("{}", ["not a list"]),
        ([7], ["entry 1", "not an object"]),
        ([{"directory": ".", "file": "x"}], ["entry 1", "no 'command'"]),
        ([{"file": "x", "command": "c++"}], ["entry 1", "no 'directory'"]),
        ([entry(), entry(arguments="c++ -c")], ["entry 2", "`arguments`"]),
        ([entry(arguments=[])], ["entry 1"]),
        ([{"directory": ".", "file": "x", "command": "c++ 'x"}], ["entry 1", "quotation"]),
        ([], ["no source of its 0 entries", "--blobs"]),
        (
            [entry(file="dispatch.cpp", arguments=["c++", "-c", "dispatch.cpp", "-o", "d.o"])],
            ["no source of its 1 entry matches"],
        ),
        ([entry(arguments=["icpx", "-c", "blob/v1.cpp", "-o", "v.o"])], ["blob/v1.cpp", "'icpx'"]),
        ([entry(arguments=["/none/g++", "-c", "blob/v1.cpp", "-o", "v.o"])], ["'/none/g++'"]),
        ([entry(directory="dispatch.cpp/x")], ["dispatch.cpp/x"]),
        ([entry(arguments=["c++", "-c", "blob/v1.cpp", "-o", "gen.sh/v.o"])], ["gen.sh/v.o"]),
    ],
)
def test_a_file_that_does_not_serve_is_an_error_that_says_why(
    lazyck: Lazyck, project: Path, entries: Any, words: list[str]
) -> None:
    done = build(lazyck, project, "touch ran", "--compile-commands", write(project, entries))
    assert done.returncode in (1, 2) and not (project / "ran").exists()
    for word in (*words, "lazyck: error"):
        assert word in done.stderr, done.stderr
    assert "Traceback" not in done.stderr


# -- blobs that are compiled after all -------------------------------------------------------------


def test_blobs_that_the_real_compiler_compiled_are_named(lazyck: Lazyck, project: Path) -> None:
    for name in ("v2", "v3", "v4"):
        (project / f"blob/{name}.cpp").write_text(f"int {name}() {{ return 1; }}\n")
    script = COMPILE + LINK + "; c++ -gsplit-dwarf -c blob/v2.cpp -o v2.o; c++ -c blob/v3.cpp blob/v4.cpp; "
    script += "c++ -E blob/v2.cpp -o v2.i; c++ -shared -fPIC blob/v3.cpp -o libv3.so"
    done = build(lazyck, project, script)
    assert done.returncode == 0, done.stderr
    assert "2 blobs compiled by the real compiler, several-sources: v3.cpp" in done.stderr
    assert "several-sources: the call compiles several sources: compile each by itself" in done.stderr
    assert "1 blob compiled by the real compiler, split-debug: v2.cpp" in done.stderr
    assert "1 blob compiled by the real compiler, compile-and-link: v3.cpp" in done.stderr
    assert "preprocess" not in done.stderr
    alone = build(lazyck, project, "c++ -gsplit-dwarf -c blob/v2.cpp -o v2.o", "--require-lazy", "--tmp-dir", "t")
    assert "the one blob that was compiled is not lazy" in alone.stderr and "split-debug" in alone.stderr
    assert "--require-lazy makes that an error\n  hint: see above" in alone.stderr
    assert alone.stderr.count("hint: ") == 1 and "configur" not in alone.stderr
    assert os.path.exists(project / "v2.o")
