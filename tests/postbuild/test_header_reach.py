"""Test which headers a blob of a group can read, because its key must cover them."""

from __future__ import annotations

from pathlib import Path

import pytest

from _lazyck.postbuild.probe.header_reach import HeaderReach

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
