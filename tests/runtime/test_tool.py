"""Test `lazyck-rt`, which drives the runtime's own cache and compiler code: a program finds what
the tool builds."""

import json
import os
import shutil
import struct
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from support import HERE, Machine, on_each_machine
from support.lazylib import CXX, LazyLibrary, build_lazy_library, runtime_objects
from support.small_library import BLOBS, CALL_CAUGHT, HEADER, MAIN, SYMBOLS

from lazyck.formats.manifest import encode
from lazyck.runtime.builder import OBJECTS, SOURCES, build_tool, compile_objects, source_digest


@pytest.fixture
def lib(tmp_path: Path, objects_dir: Path, machine: Machine) -> LazyLibrary:
    return build_lazy_library(tmp_path, objects_dir, BLOBS, MAIN, header=HEADER, symbols=SYMBOLS, machine=machine)


@on_each_machine  # the tool is always this machine's
def test_what_the_tool_compiles_a_program_finds(lib: LazyLibrary, rt_tool: Path) -> None:
    done = lib.call(rt_tool, "compile", "--from", lib.library, "add")
    assert done.returncode == 0, done.stderr
    assert lib.compiles() == 1
    program = lib.program(CALL_CAUGHT)
    found = lib.call(program, env={"LAZYCK_JIT": "off"})
    assert (found.stdout, found.stderr) == ("8\n", "")


@on_each_machine
@pytest.mark.parametrize("by", ["library", "manifest"])
def test_status_lists_blobs_and_paths(lib: LazyLibrary, rt_tool: Path, by: str) -> None:
    source = lib.library if by == "library" else lib.manifest_file
    lib.call(rt_tool, "compile", "--quiet", "--from", source, "sub")
    done = lib.call(rt_tool, "status", "--from", source)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(r["name"], r["arch"], r["cached"]) for r in rows] == [
        ("add", lib.machine.name, False),
        ("sub", lib.machine.name, True),
    ]
    assert [Path(r["path"]) for r in rows if r["cached"]] == lib.entries()
    assert lib.call(rt_tool, "path", "--from", source, "sub").stdout == f"{lib.entries()[0]}\n"
    # Another cache, or a remote one, has the entry under this name and key.
    assert rows[1]["entry"] == str(lib.entries()[0].relative_to(lib.cache / "v1"))
    low, high = struct.unpack("<2Q", lib.entries()[0].read_bytes()[-24:-8])
    assert rows[1]["key"] == f"{high:016x}{low:016x}"


def test_code_for_another_machine_does_not_become_an_entry(lib: LazyLibrary, rt_tool: Path) -> None:
    other = "aarch64" if HERE.name != "aarch64" else "x86_64"
    lib.manifest_file.write_bytes(encode(replace(lib.manifest, machine=other)))
    done = lib.call(rt_tool, "compile", "--from", lib.manifest_file, "add")
    assert done.returncode == 2
    assert (
        f"cannot compile blob 'add' for {other}: it is for {HERE.name}, but the library is for {other}" in done.stderr
    )
    assert not lib.entries()


def test_manifest_of_another_machine_is_refused_by_name(tmp_path: Path, objects_dir: Path, rt_tool: Path) -> None:
    lib = build_lazy_library(
        tmp_path, objects_dir, BLOBS, MAIN, header=HEADER, symbols=SYMBOLS,
        embed=lambda manifest: encode(replace(manifest, machine="loongarch64")),
    )  # fmt: skip
    done = lib.call(lib.program(CALL_CAUGHT))
    assert done.returncode == 3
    assert f"its manifest is for loongarch64, but this process runs on {HERE.name}" in done.stdout
    lib.manifest_file.write_bytes(encode(replace(lib.manifest, machine="z80")))
    done = lib.call(rt_tool, "status", "--from", lib.manifest_file)
    assert (done.returncode, done.stdout) == (1, "")
    assert "machine 'z80', which this lazyck does not know" in done.stderr


def test_blob_list_and_quiet(lib: LazyLibrary, rt_tool: Path) -> None:
    (lib.directory / "list").write_text("add\nsub\n")
    done = lib.call(rt_tool, "compile", "--quiet", "--from", lib.library, "--blob-list", lib.directory / "list")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(lib.entries()) == 2


def test_refused_code_ends_with_status_2_and_does_not_stop_the_rest(lib: LazyLibrary, rt_tool: Path) -> None:
    (lib.directory / "lazyck/src/add.cpp").write_text("oops\n")
    done = lib.call(rt_tool, "compile", "--from", lib.library)
    assert done.returncode == 2
    assert "cannot compile blob 'add'" in done.stderr
    assert len(lib.entries()) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["compile", "--from", "LIB", "nosuch"], "has no blob 'nosuch'"),
        (["compile", "--from", "/nonexistent"], "/nonexistent"),
        (["compile", "--from", "/bin/sh"], "not a lazy library"),
        (["compile", "--from", "/etc/passwd"], "not a lazyck manifest"),
        (["compile", "--from", "LIB", "--arch", "a b$c"], "--arch"),
        (["explode"], "usage:"),
        ([], "usage:"),
    ],
)
def test_mistakes_are_explained(lib: LazyLibrary, rt_tool: Path, words: list[str], message: str) -> None:
    done = lib.call(rt_tool, *[str(lib.library) if w == "LIB" else w for w in words])
    assert done.returncode == 1
    assert message in done.stderr
    assert done.stdout == ""


def test_damaged_manifest_is_refused_not_read(lib: LazyLibrary, rt_tool: Path) -> None:
    good = lib.manifest_file.read_bytes()
    damaged = lib.directory / "damaged"
    for at in range(8, min(len(good), 400), 4):
        damaged.write_bytes(good[:at] + b"\xff\xff\xff\xff" + good[at + 4 :])
        done = lib.call(rt_tool, "status", "--from", damaged)
        assert done.returncode in (0, 1), (at, done)
    for size in (0, 7, 50, len(good) // 2, len(good) - 1):
        damaged.write_bytes(good[:size])
        assert lib.call(rt_tool, "status", "--from", damaged).returncode == 1


def test_names_that_are_not_utf8_survive(tmp_path: Path, objects_dir: Path, rt_tool: Path) -> None:
    name = os.fsdecode(b'b\xff\xc3\xbc\n"x')
    lib = build_lazy_library(tmp_path, objects_dir, {name: BLOBS["add"]}, header=HEADER, symbols={name: ("_Z3addii",)})
    done = lib.call(rt_tool, "status", "--from", lib.library)
    assert json.loads(done.stdout)["name"] == name
    assert lib.call(rt_tool, "compile", "--from", lib.library, name).returncode == 0


def test_only_what_changed_is_compiled_again(tmp_path: Path) -> None:
    src, store = tmp_path / "src", tmp_path / "store"
    of_base = [f"base/{name}" for name in ("hash.cpp", "hash.h", "text.cpp", "text.h")]
    of_machine = [f"machine/{name}" for name in ("sha256.h", "assembler.h", f"stub_{os.uname().machine}.S")]
    for name in (*of_base, *of_machine):
        (src / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(SOURCES / name, src / name)

    first = compile_objects(store, [CXX], src)
    assert sorted(o.stem for o in first) == ["hash", f"stub_{os.uname().machine}", "text"]
    times = {o: o.stat().st_mtime_ns for o in first}
    assert compile_objects(store, [CXX], src) == first
    before = source_digest(src)
    text = (src / "base/hash.cpp").read_text()
    (src / "base/hash.cpp").write_text(text + "\n// changed\n")
    assert source_digest(src) != before
    assert {o.stem for o in set(compile_objects(store, [CXX], src)) - set(first)} == {"hash"}
    (src / "base/hash.h").write_text((SOURCES / "base/hash.h").read_text() + "\n// changed\n")
    assert not set(compile_objects(store, [CXX], src)) & set(first)
    (src / "base/hash.cpp").write_text(text)
    shutil.copy(SOURCES / "base/hash.h", src / "base")
    assert compile_objects(store, [CXX], src) == first
    assert {o: o.stat().st_mtime_ns for o in first} == times
    assert not set(compile_objects(store, [CXX], src, ["-DX"])) & set(first)


def test_many_builds_of_the_tool_at_once_give_one(tmp_path: Path, rt_tool: Path) -> None:
    (tmp_path / OBJECTS).symlink_to(rt_tool.parent.parent / OBJECTS)
    with ThreadPoolExecutor(4) as pool:
        tools = list(pool.map(lambda _: build_tool(tmp_path, [CXX]), range(4)))
    assert set(tools) == {tmp_path / rt_tool.relative_to(rt_tool.parent.parent)}
    assert tools[0].read_bytes() == rt_tool.read_bytes()


def test_library_objects_need_no_more_than_threads_and_dl(objects_dir: Path) -> None:
    objects = runtime_objects(objects_dir, CXX, ())
    done = subprocess.run(["nm", "-u", *objects], capture_output=True, text=True, check=True)
    assert "hip" not in done.stdout
    assert "cuda" not in done.stdout
