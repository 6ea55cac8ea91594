"""Test which headers a blob of a group can read, because its key must cover them."""

from __future__ import annotations

from pathlib import Path

import pytest

from _lazyck.command import CompileCommand, Invocation
from _lazyck.postbuild.bundle import Places
from _lazyck.postbuild.describe import Reached
from _lazyck.postbuild.probe.content_key import blob_keys
from _lazyck.postbuild.probe.header_reach import HeaderReach
from _lazyck.postbuild.probe.probe import Probed
from _lazyck.toolchains import by_name

TEXTS = {
    "one.h": "#pragma once\n",
    "two.h": '#include "below.h"\n',
    "below.h": "\n",
    "forced.h": '#include "by_force.h"\n',
    "by_force.h": "\n",
    "mentions_all.cpp": '#include "one.h"\n#include "two.h"\n#include "forced.h"\n',
}


def reached(where: Path, text: str, *forced: str) -> set[str]:
    """Return the headers that a source with this text reaches, beside a source that includes
    all."""
    for name, content in {**TEXTS, "blob.cpp": text}.items():
        (where / name).write_text(content)
    files = frozenset(str(where / name) for name in TEXTS if name.endswith(".h"))
    sources = [str(where / "blob.cpp"), str(where / "mentions_all.cpp")]
    reach = HeaderReach(files, sources, lambda _: False)
    return {Path(f).name for f in reach.of(sources[0], forced)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("int a;\n", set()),
        ('#include "one.h"\n', {"one.h"}),
        ("#include <sub/../two.h>\n", {"two.h", "below.h"}),
        ('%:include "two.h"\n', {"two.h", "below.h"}),
        ('??=include "two.h"\n', {"two.h", "below.h"}),
        ('#inc\\\nlude /* a */ "two.h"\n', {"two.h", "below.h"}),
        ("// #include MACRO\n", set()),
    ],
)
def test_names_of_includes_are_followed(tmp_path: Path, text: str, expected: set[str]) -> None:
    assert reached(tmp_path, text) == expected


@pytest.mark.parametrize(
    "text", ["#include MACRO\n", "# include/**/MACRO(x)\n", "#include_next MACRO\n", "%:import MACRO\n"]
)
def test_a_macro_may_name_any_header(tmp_path: Path, text: str) -> None:
    assert reached(tmp_path, text) == {name for name in TEXTS if name.endswith(".h")}


def test_a_header_that_the_command_reads_first_is_reached_with_what_it_leads_to(tmp_path: Path) -> None:
    assert reached(tmp_path, "int a;\n", "forced.h") == {"forced.h", "by_force.h"}


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ("int a;\n", [], set()),
        ('#include "one.h"\n', [], {"one.h"}),
        ("int a;\n", ["-include", "two.h"], {"two.h", "below.h"}),
        ("int a;\n", ["-include", "one.h", "-include", "forced.h"], {"one.h", "forced.h", "by_force.h"}),
        ("#include MACRO\n", [], {"one.h", "two.h", "below.h", "forced.h", "by_force.h"}),
    ],
)
def test_the_key_of_a_blob_covers_what_its_text_and_its_options_may_include(
    tmp_path: Path, text: str, options: list[str], expected: set[str]
) -> None:
    for name, content in {**TEXTS, "blob.cpp": text}.items():
        (tmp_path / name).write_text(content)
    headers = {name: tmp_path / name for name in TEXTS if name.endswith(".h")}
    texts = {str(tmp_path / name): "" for name in ("blob.cpp", "mentions_all.cpp")}
    blob = str(tmp_path / "blob.cpp")
    items = by_name("host").table.split(options)

    def key() -> str:
        return blob_keys("group", items, [str(h) for h in headers.values()], texts)[blob]

    before, changed = key(), set()
    for name, header in headers.items():
        kept = header.read_text()
        header.write_text(kept + "// changed\n")
        if key() != before:
            changed.add(name)
        header.write_text(kept)
    assert changed == expected
    # The entry's key in the library covers the same headers.
    probed = [
        Probed(
            CompileCommand(Invocation("c++", "host", str(tmp_path), ("c++", *words, source), 1, ()), source, "x.o"),
            (), frozenset(map(str, headers.values())),
        )
        for source, words in ((blob, options), (str(tmp_path / "mentions_all.cpp"), []))
    ]  # fmt: skip
    reached = Reached(probed, {"host": Places("", {}, "lib", str(tmp_path))}).by(probed[0])
    assert {Path(f).name for f in reached} == expected
