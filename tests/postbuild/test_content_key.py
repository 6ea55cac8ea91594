"""Tests the keys by content: everything that a compile reads is in the key, and nothing else."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from lazyck.postbuild.bundle import FileDigests
from lazyck.postbuild.probe.content_key import blob_keys, files_key, group_key
from lazyck.postbuild.probe.preprocess import place_of
from lazyck.toolchains import by_name
from lazyck.toolchains.command import CompileCommand, Invocation

HOST = by_name("host")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "a.cpp").write_text('#include "a.h"\nint a;\n')
    (tmp_path / "b.cpp").write_text('#include "b.h"\nint b;\n')
    (tmp_path / "a.h").write_text("int of_a();\n")
    (tmp_path / "b.h").write_text("int of_b();\n")
    return tmp_path


def keys(tree: Path, shared: str = "group", texts: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the keys of the two sources by their names."""
    texts = {"a.cpp": "int a;", "b.cpp": "int b;"} | dict(texts or {})
    headers = {str(tree / name): frozenset({str(tree / f"{name[0]}.h")}) for name in texts}
    found = blob_keys(shared, headers, {str(tree / name): text for name, text in texts.items()})
    return {Path(source).name: key for source, key in found.items()}


def changed(before: dict[str, str], after: dict[str, str]) -> set[str]:
    return {name for name in before if before[name] != after.get(name)}


def test_what_a_blob_does_not_read_leaves_its_key_alone(tree: Path) -> None:
    before = keys(tree)
    (tree / "b.h").write_text("long of_b();\n")
    assert changed(before, keys(tree)) == {"b.cpp"}


def test_a_source_and_its_text_and_the_group_are_in_the_key(tree: Path) -> None:
    before = keys(tree)
    assert len(set(before.values())) == 2
    assert changed(before, keys(tree, shared="other")) == {"a.cpp", "b.cpp"}
    assert changed(before, keys(tree, texts={"a.cpp": "long a;"})) == {"a.cpp"}
    (tree / "b.cpp").write_text('#include "b.h"\nlong b;\n')
    assert changed(before, keys(tree)) == {"b.cpp"}


def test_two_sources_of_equal_contents_have_two_keys(tree: Path) -> None:
    (tree / "b.cpp").write_text((tree / "a.cpp").read_text())
    found = keys(tree, texts={"b.cpp": "int a;"})
    assert found["a.cpp"] != found["b.cpp"]


def test_empty_lines_of_a_text_are_not_in_the_key_and_the_ends_of_lines_are(tree: Path) -> None:
    before = keys(tree, texts={"a.cpp": "int a;\nint c;"})
    assert before == keys(tree, texts={"a.cpp": "\nint a;\n\nint c;\n"})
    assert changed(before, keys(tree, texts={"a.cpp": "int a;int c;"})) == {"a.cpp"}


def test_blanks_of_a_text_are_in_the_key_since_they_may_stand_in_a_string(tree: Path) -> None:
    before = keys(tree, texts={"a.cpp": 'char s[] = "x y";'})
    assert changed(before, keys(tree, texts={"a.cpp": 'char s[] = "x  y";'})) == {"a.cpp"}


def test_a_blob_that_makes_the_assembler_read_a_file_has_no_key(tree: Path) -> None:
    assert set(keys(tree, texts={"a.cpp": 'asm(".incbin \\"x\\"");'})) == {"b.cpp"}


def test_a_blob_whose_header_makes_the_assembler_read_a_file_has_no_key(tree: Path) -> None:
    (tree / "a.h").write_text('asm(".incbin \\"x\\"");')
    assert set(keys(tree)) == {"b.cpp"}


def test_paths_and_contents_of_files_are_in_their_key_and_their_order_is_not(tree: Path) -> None:
    a, b = str(tree / "a.h"), str(tree / "b.h")
    key = files_key([a, b], FileDigests())
    assert key == files_key([b, a], FileDigests())
    assert len({key, files_key([a], FileDigests()), files_key([b], FileDigests())}) == 3
    (tree / "b.h").rename(tree / "c.h")
    assert key != files_key([a, str(tree / "c.h")], FileDigests())


# -- what the blobs of a group share ---------------------------------------------------------------


@pytest.fixture
def compiler(tmp_path: Path) -> Path:
    """A compiler that says its version, and is never run for anything else."""
    program = tmp_path / "g++"
    program.write_text("#!/bin/sh\necho 'g++ 13.2.0' $VARIANT\n")
    program.chmod(0o755)
    return program


def group(compiler: Path, *options: str, parts: tuple[str, ...] = ("part",), variant: str = "") -> str:
    argv = (str(compiler), *options, "-c", "a.cpp", "-o", "a.o")
    call = Invocation(str(compiler), "host", str(compiler.parent), argv, 1, ())
    return group_key(HOST, CompileCommand(call, "a.cpp", "a.o"), parts, {"VARIANT": variant})


def test_the_compiler_and_the_parts_are_in_a_groups_key(compiler: Path) -> None:
    before = group(compiler)
    assert before
    assert before == group(compiler)
    assert before != group(compiler, parts=("other",))
    assert before != group(compiler, variant="by another environment")
    compiler.write_text(compiler.read_text() + "# another build of this version\n")
    assert before != group(compiler)


@pytest.mark.parametrize("option", ["-fprofile-list={}", "-imacros {}"])
def test_a_file_that_an_option_names_is_in_a_groups_key(compiler: Path, option: str) -> None:
    (compiler.parent / "named").write_text("one\n")
    words = option.format("named").split()
    before = group(compiler, *words)
    (compiler.parent / "named").write_text("two\n")
    assert before != group(compiler, *words)


def test_a_group_whose_compiler_cannot_be_asked_has_no_key(compiler: Path) -> None:
    compiler.unlink()
    assert group(compiler) == ""


def test_the_place_of_a_variable_is_the_line_of_its_name_or_of_the_macro_that_names_it(tmp_path: Path) -> None:
    source = tmp_path / "x.cpp"
    source.write_text("int not_plain;\nint plain[3] = {f()};\n  REGISTER(other)\nint plain2, plain;\n")
    for name, place in (
        ("plain", "x.cpp:2"),
        ("ns::(anonymous namespace)::plain", "x.cpp:2"),
        ("plain[abi:new]", "x.cpp:2"),
        ("_REGISTER_17", "x.cpp:3, REGISTER"),
        ("elsewhere", "x.cpp"),
    ):
        assert place_of(name, str(source)) == place, name
