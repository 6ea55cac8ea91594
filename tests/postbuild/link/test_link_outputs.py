"""Test files that a link writes besides the library: they serve the project's build and name its
own files."""

import shutil
import subprocess
from pathlib import Path

import pytest
from support import Lazyck
from support.link_project import SHARED, Project, body

from lazyck.postbuild.link.outputs import adapt_rules

LINKERS = [n for n in ("bfd", "gold", "lld", "mold") if shutil.which(f"ld.{n}")]


@pytest.mark.parametrize("linker", LINKERS)
@pytest.mark.parametrize(
    "words", ["-Wl,--dependency-file=link.d,-Map=out.map", "-Xlinker --dependency-file -Xlinker link.d"]
)
def test_the_rules_that_a_linker_writes_name_the_files_of_the_project(
    lazyck: Lazyck, tmp_path: Path, linker: str, words: str
) -> None:
    where = tmp_path / "a place"
    where.mkdir()
    project = Project(lazyck, where).write({1: body(1, "helper(x)"), 2: body(2, "x + 1")})
    project.file(
        "extra.cpp", '#include "api.hpp"\n__attribute__((visibility("hidden"))) int helper(int x) { return 2 * x; }\n'
    )
    link = f"mv extra.o e.obj; ar rcs libextra.a e.obj; {SHARED} libextra.a -fuse-ld={linker} {words}"
    # A file that an earlier link left is not an input of this one.
    project.file("link.d", "of before\n")
    project.file("out.map", "of before\n")
    for _ in range(2):
        project.build(link)
        assert "2 lazy with 2 symbols" in project.report, project.report
        rules = (where / "link.d").read_text()
        assert rules.startswith("libx.so:"), rules
        assert "dispatch.o" in rules and "libextra.a" in rules, rules
        assert not any(word in rules for word in ("of before", "stubs.o", "shown-", str(where / "tmp"))), rules
        made = subprocess.run(["make", "-rnf", "link.d", "libx.so"], cwd=where, capture_output=True, text=True)
        assert made.returncode == 0, made.stderr
    if "Map" in words:
        assert "dispatch.o" in (where / "out.map").read_text()
    assert project.call(1, 3) == "6"
    # A repeated link elsewhere writes only the library.
    for name in ("link.d", "out.map"):
        (where / name).unlink(missing_ok=True)
    for command in (("build", "quick"), ("check",)):
        done = lazyck(*command, "--tmp-dir", where / "tmp", cwd=where)
        assert done.returncode == 0, done.stdout + done.stderr
    assert not (where / "link.d").exists() and not (where / "out.map").exists()


def test_the_copy_with_a_suffix_that_a_link_asks_for_is_beside_the_library(lazyck: Lazyck, tmp_path: Path) -> None:
    project = Project(lazyck, tmp_path).write({1: body(1, "x + 1")})
    project.build(f"{SHARED} -fuse-ld=bfd -Wl,--force-exe-suffix")
    assert "1 lazy with 1 symbol" in project.report, project.report
    assert (tmp_path / "libx.so.exe").read_bytes() == (tmp_path / "libx.so").read_bytes()


def test_names_with_special_characters_survive(tmp_path: Path) -> None:
    rules = tmp_path / "link.d"
    rules.write_text(
        "/t mp/libx.so: \\\n  /t\\ mp/stubs.o \\\n  /t\\ mp/objects/c \\\n  a\\#1.o\n\n/t\\ mp/stubs.o:\n\na\\#1.o:\n"
    )
    adapt_rules(rules, Path("/t mp/libx.so"), "out/my $.so", {"/t mp/objects/c": "lib c.a"}, ["/t mp"])
    assert rules.read_text() == "out/my\\ $$.so: \\\n  lib\\ c.a \\\n  a\\#1.o\n\n\na\\#1.o:\n"
