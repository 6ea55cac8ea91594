"""Tests which links go to the post-build: those that take a deferred object in any way."""

# ruff: noqa: F401, F811
import shlex
import sys
from pathlib import Path

import pytest
from support.shim_project import Project, built_shim, fake, host, make_project

from lazyck.formats.record import decode_records
from lazyck.toolchains.command import LinkCommand


@pytest.fixture
def inputs(fake: Project) -> Project:
    fake.ok("c++", "-c", "blob/k.cpp", "-o", "k.o")
    fake.write("src/real.cpp", "int real() { return 1; }\n")
    shell = """
        set -e
        PATH=/usr/bin:/bin
        g++ -c src/real.cpp -o real.o
        mkdir -p lib other both 'with space'
        ar rcs lib/libk.a real.o k.o
        ar rcsT thin.a real.o k.o
        ar rcs other/libreal.a real.o
        cp lib/libk.a both/libk.a
        g++ -shared real.o -o both/libk.so
        ld -r real.o k.o -o joined.o
        strip -o 'with space/stripped.o' k.o
        cp k.o a_long_member_name_of_an_archive.o
        ar rcs long.a real.o a_long_member_name_of_an_archive.o
        echo "real.o 'with space/stripped.o'" > objects.rsp
    """
    fake.ok("sh", "-c", shell)
    return fake


def record_of(said: str) -> LinkCommand:
    """Return the link record that the fake Python was started with."""
    word, _, path = said.strip().partition(" ")
    assert word == "POST"
    (record,) = decode_records(Path(path).read_bytes(), path)
    assert isinstance(record, LinkCommand)
    return record


@pytest.mark.parametrize(
    "line",
    [
        "c++ -shared k.o -o lib.so",
        "g++ -shared -o lib.so real.o k.o -lm",
        "clang++ -shared real.o joined.o -o lib.so",
        "c++ -shared 'with space/stripped.o' -o lib.so",
        "c++ -shared @objects.rsp -o lib.so",
        "c++ -shared real.o lib/libk.a -o lib.so",
        "c++ -shared real.o thin.a -o lib.so",
        "c++ -shared real.o long.a -o lib.so",
        "c++ -shared real.o -Wl,--whole-archive,lib/libk.a,--no-whole-archive -o lib.so",
        "c++ -shared real.o -Xlinker lib/libk.a -o lib.so",
        "c++ -shared real.o -Lother -Llib -lk -o lib.so",
        "c++ -shared real.o -L lib -l k -o lib.so",
        "c++ -shared real.o -Llib -l:libk.a -o lib.so",
        "c++ -static real.o -Lboth -lk -o lib.so",
        "hipcc -shared -fgpu-rdc k.o -o lib.so",
        "hipcc k.o -o lib.so --hip-link --offload-arch=gfx942",
        "nvcc -shared k.o -olib.so -o lib.so",
        "nvcc -shared --linker-options=lib/libk.a real.o --output-file lib.so",
        "c++ src/m.cpp k.o -o lib.so",
    ],
)
def test_a_link_with_a_deferred_input_goes_to_the_post_build(inputs: Project, line: str) -> None:
    argv = shlex.split(line)
    link = record_of(inputs.ok(*argv))
    assert link.output == str(inputs.dir / "lib.so")
    assert (link.call.tool, link.call.cwd, link.call.prefix) == (argv[0], str(inputs.dir), 1)
    assert link.call.argv[0].endswith(f"fake/bin/{argv[0]}")
    if "@" not in line:
        assert link.call.argv[1:] == tuple(argv[1:])
    assert (inputs.last.action, inputs.last.reason) == ("link", "deferred-input")


def test_a_link_without_an_output_makes_a_out(inputs: Project) -> None:
    assert record_of(inputs.ok("c++", "k.o")).output == str(inputs.dir / "a.out")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("c++ -shared real.o -o lib.so", "link-without-blobs"),
        ("c++ -shared real.o other/libreal.a -o lib.so", "link-without-blobs"),
        ("c++ -shared real.o -Lboth -lk -o lib.so", "link-without-blobs"),
        ("c++ -shared real.o missing.o -o lib.so", "link-without-blobs"),
        ("c++ -r k.o real.o -o j.o", "relocatable-link"),
        ("nvcc -dlink k.o -o d.o", "device-link"),
        ("c++ -shared garbage.o garbage.a src -o lib.so", "link-without-blobs"),
    ],
)
def test_other_links_run_the_real_driver(inputs: Project, line: str, reason: str) -> None:
    (inputs.dir / "garbage.o").write_bytes(b"\x7fELF" + bytes(range(256)) * 4)
    (inputs.dir / "garbage.a").write_bytes(b"!<arch>\n" + b"x" * 70)
    assert inputs.ok(*shlex.split(line)).startswith("REAL")
    assert inputs.last.reason == reason


def test_damaged_objects_and_archives_are_left_to_the_linker(inputs: Project) -> None:
    archive = (inputs.dir / "other/libreal.a").read_bytes()
    for size in range(0, len(archive), 97):
        (inputs.dir / "cut.a").write_bytes(archive[:size])
        (inputs.dir / "cut.o").write_bytes((inputs.dir / "real.o").read_bytes()[:size])
        assert inputs.ok("c++", "-shared", "cut.a", "cut.o").startswith("REAL")


def test_the_post_build_starts_without_the_shims_in_its_way(inputs: Project, tmp_path: Path) -> None:
    (tmp_path / "python").write_text('#!/bin/sh\necho "$PATH|$CXX|$1|$2"\n')
    path, cxx, flag, c = inputs.ok("c++", "k.o").strip().split("|")
    assert "lazyck tmp" not in path and cxx == "" and (flag, c) == ("-I", "-c")


def test_the_post_build_hears_of_the_end_of_its_children_even_if_the_build_tool_ignores_them(
    inputs: Project, tmp_path: Path
) -> None:
    (tmp_path / "python").write_text(f"#!{sys.executable}\nimport signal; print(signal.getsignal(signal.SIGCHLD))\n")
    ignored = inputs.ok("env", "--ignore-signal=CHLD", "c++", "k.o")
    assert ignored == inputs.ok("c++", "k.o")
