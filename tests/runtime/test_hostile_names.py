"""Test that names and lines out of a hostile manifest stay inside the cache, the terminal and their
own argument."""

import json
import os
import re
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from support import Lazyck
from support.lazylib import CXX, LazyLibrary, build_lazy_library
from support.small_library import BLOBS, HEADER, MAIN, SYMBOLS

from lazyck import abi
from lazyck.formats.manifest import BlobRecord, Manifest, Recipe, encode
from lazyck.visible import visible

NAMES = [
    "../../../../escaped",
    "/absolute",
    "..",
    ".",
    "",
    "-o",
    "--help",
    "@response",
    "\x1b]0;title\x07\x1b[2Jcleared",
    "\x9b31mred",
    "turned\u202eround",
    "carriage\rreturn",
    "tab\tbed",
    "not utf-8 \udcff\udc9b",
    "$(touch pwned)`touch pwned`",
    "quote'\"\\",
    "long" * 500,
    '{"json": 1}',
]
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def manifest_of(names: list[str], **changes: object) -> Manifest:
    compile_step = (CXX, "-c", abi.PH_SOURCE, "-o", abi.PH_OUTPUT)
    recipe = Recipe("host", "../id\x1b", "", (), compile_step, (CXX, "-shared", abi.PH_INPUT, "-o", abi.PH_OUTPUT), ())
    blobs = tuple(BlobRecord(n, f"src/{i}.cpp", 0, "0123456789abcdef", (f"f{i}",)) for i, n in enumerate(names))
    base = Manifest("../lib\n", "../../so\x1b", "", "", (), (recipe,), blobs, (("e\x1bager", "be\ncause"),), "me\x1b")
    return replace(base, **changes)  # type: ignore[arg-type]


@pytest.fixture
def manifest_file(tmp_path: Path) -> Path:
    bundle = tmp_path / "bundle"
    (bundle / "lib" / "src").mkdir(parents=True)
    (bundle / "src").mkdir()
    for i in range(len(NAMES)):
        (bundle / "src" / f"{i}.cpp").write_text(f'extern "C" int f{i}() {{ return {i}; }}\n')
    (bundle / "lib" / "manifest").write_bytes(encode(manifest_of(NAMES)))
    return bundle / "lib" / "manifest"


def rt(tool: Path, *words: object, cwd: Path, **env: str) -> subprocess.CompletedProcess[bytes]:
    full = {**os.environ, **env}
    return subprocess.run([tool, *map(str, words)], cwd=cwd, env=full, capture_output=True, timeout=120)


def test_every_name_gets_a_plain_file_inside_the_cache(rt_tool: Path, manifest_file: Path, tmp_path: Path) -> None:
    cache = tmp_path / "a/b/c/d/e/cache"
    work = tmp_path / "work"
    work.mkdir()
    done = rt(rt_tool, "compile", "--from", manifest_file, cwd=work, LAZYCK_CACHE_DIR=str(cache), LAZYCK_JOBS="2")
    assert done.returncode == 0, done.stderr
    entries = [p for p in cache.rglob("*.so")]
    assert len(entries) == len(NAMES)
    for path in entries:
        assert re.fullmatch(r"[A-Za-z0-9_+~][A-Za-z0-9._+~-]*", path.name), path
        assert path.parent.parent.parent == cache / "v1"
    assert not list(work.iterdir())
    assert [p.name for p in (tmp_path / "a").rglob("*") if p.is_file() and cache not in p.parents] == []
    status = rt(rt_tool, "status", "--from", manifest_file, cwd=work, LAZYCK_CACHE_DIR=str(cache)).stdout
    rows = [json.loads(line) for line in status.decode("utf-8", "surrogateescape").splitlines()]
    assert [r["name"] for r in rows] == NAMES
    assert all(r["cached"] for r in rows)


def test_messages_are_one_visible_line_each(rt_tool: Path, manifest_file: Path, tmp_path: Path) -> None:
    for source in (manifest_file.parent.parent / "src").iterdir():
        source.write_text('#error "\x1b[31m in the code"\n')
    done = rt(rt_tool, "compile", "--from", manifest_file, cwd=tmp_path, LAZYCK_CACHE_DIR=str(tmp_path / "c"))
    assert done.returncode == 2  # the compiler refuses each of them
    text = done.stderr.decode()
    assert not CONTROLS.search(text), CONTROLS.search(text)
    assert sum(line.startswith("[lazyck] error: could not compile ") for line in text.splitlines()) == len(NAMES)
    assert r"\x1b]0;title\x07" in text
    for log in (tmp_path / "c").rglob("*.log"):
        commands = [line for line in log.read_bytes().splitlines() if line.startswith((b"$ ", b"[to reproduce"))]
        assert commands
        assert not any(CONTROLS.search(c.decode()) for c in commands)


@pytest.mark.parametrize("name", ["-o", "--help", "--", "-x"])
def test_blob_whose_name_looks_like_an_option_can_be_named(rt_tool: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "m").write_bytes(encode(manifest_of([name])))
    done = rt(rt_tool, "path", "--from", tmp_path / "m", "--", name, cwd=tmp_path)
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 1), done.stderr


@pytest.mark.parametrize("digest", ["../../../../x", "", "..", "/etc/passwd"])
def test_digest_is_no_path(rt_tool: Path, tmp_path: Path, digest: str) -> None:
    blob = BlobRecord("a", "a.cpp", 0, digest, ("f",))
    (tmp_path / "m").write_bytes(encode(manifest_of([], blobs=(blob,))))
    path = rt(rt_tool, "path", "--from", tmp_path / "m", cwd=tmp_path, LAZYCK_CACHE_DIR=str(tmp_path)).stdout.decode()
    assert re.fullmatch(rf"{tmp_path}/v1/[^/.][^/]*/[^/.][^/]*/a-[^/]*\.so\n", path)


@pytest.mark.parametrize("source", ["../outside.cpp", "src/../../outside.cpp"])
def test_source_outside_of_the_bundle_is_refused(rt_tool: Path, tmp_path: Path, source: str) -> None:
    (tmp_path / "outside.cpp").write_text('extern "C" int f() { return 1; }\n')
    (tmp_path / "bundle/lib").mkdir(parents=True)
    file = tmp_path / "bundle/lib/manifest"
    file.write_bytes(encode(manifest_of([], blobs=(BlobRecord("a", source, 0, "00", ("f",)),))))
    done = rt(rt_tool, "compile", "--from", file, cwd=tmp_path, LAZYCK_CACHE_DIR=str(tmp_path / "c"))
    assert b"leads out of the bundle" in done.stderr
    assert not list((tmp_path / "c").rglob("*.so"))


@pytest.mark.parametrize("source", ["-fplugin=evil.so", "@words"])
def test_source_that_looks_like_an_option_is_a_source(rt_tool: Path, tmp_path: Path, source: str) -> None:
    bundle = tmp_path / "bundle"
    (bundle / "lib").mkdir(parents=True)
    (bundle / f"{source}.cpp").write_text('extern "C" int f() { return 1; }\n')
    file = bundle / "lib/manifest"
    file.write_bytes(encode(manifest_of([], blobs=(BlobRecord("a", f"{source}.cpp", 0, "00", ("f",)),))))
    done = rt(rt_tool, "compile", "--from", file, cwd=tmp_path, LAZYCK_CACHE_DIR=str(tmp_path / "c"))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["../up", "a/b", "..", "/x"])
def test_name_of_the_cache_is_no_path(rt_tool: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "m").write_bytes(encode(manifest_of(["a"], cache_name=name)))
    env = {"LAZYCK_CACHE_DIR": "", "HOME": str(tmp_path), "XDG_CACHE_HOME": ""}
    done = rt(rt_tool, "path", "--from", tmp_path / "m", cwd=tmp_path, **env)
    assert done.returncode == 1
    assert b"is not a plain directory name; set LAZYCK_CACHE_DIR" in done.stderr


def test_command_to_repeat_works_when_pasted(tmp_path: Path, objects_dir: Path) -> None:
    odd = "a b\x1b\\'\t\udcff"
    lib = build_lazy_library(
        tmp_path, objects_dir, {**BLOBS, "bad": "int bad() { return oops; }\n"}, MAIN, header=HEADER,
        symbols={**SYMBOLS, "bad": ("_Z3badv",)}, flags=[f"-DODD={shlex.quote('x')}", "-I" + odd],
    )  # fmt: skip
    program = lib.program(
        '#include "demo.h"\n#include "error.hpp"\n#include <cstdio>\nint bad();\n'
        "int main() { try { return bad(); } catch (const lazyck::CompileError& e) { std::puts(e.command()); } }"
    )
    line = lib.call(program).stdout
    assert r"a b\x1b\\\'\x09\xff" in line
    before = lib.calls.read_bytes()
    again = subprocess.run(["bash", "-c", line], capture_output=True, text=True)
    assert again.returncode != 0
    assert "oops" in again.stderr
    assert os.fsencode("-I" + odd) in lib.calls.read_bytes()[len(before) :]


def test_python_shows_names_as_text(lazyck: Lazyck, manifest_file: Path, tmp_path: Path) -> None:
    shown = lazyck("inspect", "--all", manifest_file)
    assert shown.returncode == 0, shown.stderr
    assert not CONTROLS.search(shown.stdout)
    blobs = [line for line in shown.stdout.splitlines() if line.startswith("blob ")]
    assert len(blobs) == len(NAMES)
    assert json.loads(lazyck("inspect", "--json", manifest_file).stdout)["blobs"][8]["name"] == NAMES[8]
    env = {"LAZYCK_CACHE_DIR": str(tmp_path / "cache")}
    names = [n for n in NAMES if n]
    manifest_file.write_bytes(encode(manifest_of(names)))
    listed = lazyck("prebuild", "list", "--manifest", manifest_file, env=env)
    assert listed.returncode == 0, listed.stderr
    assert not CONTROLS.search(listed.stdout)
    assert [line.rpartition("\t")[0] for line in listed.stdout.splitlines()] == [visible(n) for n in names]
    unknown = lazyck("prebuild", "list", "--manifest", manifest_file, "no\x1bsuch", env=env)
    assert r"no\x1bsuch" in unknown.stderr


@pytest.mark.parametrize("name", ["a\nb", ""])
def test_name_that_is_not_one_line_is_refused_by_prebuild(lazyck: Lazyck, tmp_path: Path, name: str) -> None:
    (tmp_path / "m").write_bytes(encode(manifest_of([name])))
    done = lazyck("prebuild", "list", "--manifest", tmp_path / "m")
    assert done.returncode == 1
    assert "is empty or has a line break" in done.stderr
    assert f"blob {visible(name)}\n" in lazyck("inspect", "--all", tmp_path / "m").stdout


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ü 漢", "plain ü 漢"),
        ("\x1b[0m", r"\x1b[0m"),
        ("\x7f\x80\x9f", r"\x7f\xc2\x80\xc2\x9f"),
        ("\u202e\u2066", r"\xe2\x80\xae\xe2\x81\xa6"),
        ("\udc80\udcff", r"\x80\xff"),
        ("\ud800", r"\xed\xa0\x80"),
        ("a\nb\tc\rd", r"a\x0ab\x09c\x0dd"),
    ],
)
def test_what_is_no_text_is_shown_as_bytes(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_verbose_library_shows_names_as_text(tmp_path: Path, objects_dir: Path) -> None:
    lib: LazyLibrary = build_lazy_library(
        tmp_path, objects_dir, {"a\x1b[31m": BLOBS["add"]}, MAIN.replace("sub", "add"), header=HEADER,
        symbols={"a\x1b[31m": ("_Z3addii",)},
    )  # fmt: skip
    program = lib.program('#include "demo.h"\nint main() { return use(4) != 8; }')
    for _ in range(2):
        done = lib.call(program, env={"LAZYCK_LOG": "debug"})
        assert done.returncode == 0, done.stderr
        assert r"a\x1b[31m for" in done.stderr
        assert "\x1b" not in done.stderr


def test_list_that_spells_out_gigabytes_is_refused(rt_tool: Path, tmp_path: Path) -> None:
    recipe = replace(manifest_of(["a"]).recipes[0], compile=("x" * 100_000,) * 100_000)
    file = tmp_path / "lib" / "manifest"
    file.parent.mkdir()
    (tmp_path / "src").mkdir()
    (tmp_path / "src/0.cpp").write_text("")
    file.write_bytes(encode(manifest_of(["a"], recipes=(recipe,))))
    words = ["compile", "--from", str(file)]
    limited = ["sh", "-c", 'ulimit -v 1000000; exec "$0" "$@"', str(rt_tool), *words]
    env = {**os.environ, "LAZYCK_CACHE_DIR": str(tmp_path / "c")}
    done = subprocess.run(limited, env=env, capture_output=True, text=True, timeout=60)
    assert "a list is longer than any command" in done.stderr
