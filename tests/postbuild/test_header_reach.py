"""Test which headers a blob of a group can read, because its key must cover them."""

import os
from pathlib import Path

import pytest

from lazyck.postbuild.bundle_paths import BundlePaths
from lazyck.postbuild.cxx.includes import HeaderReach, included_names
from lazyck.postbuild.describe import Reached
from lazyck.postbuild.probe.content_key import blob_keys
from lazyck.postbuild.probe.group import Probed
from lazyck.toolchains import by_name
from lazyck.toolchains.command import CompileCommand, Invocation

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
            headers=frozenset(map(str, headers.values())),
            blob=CompileCommand(Invocation("c++", "host", str(tmp_path), ("c++", *words, source), 1, ()), source, "o"),
        )
        for source, words in ((blob, options), (str(tmp_path / "mentions_all.cpp"), []))
    ]  # fmt: skip
    reached = Reached(probed, {"host": BundlePaths("", {}, "lib", str(tmp_path))}).by(probed[0])
    assert {Path(f).name for f in reached} == expected


def test_a_name_with_a_directory_means_only_what_ends_in_it(tmp_path: Path) -> None:
    for name in ("x/a.h", "y/a.h", "xa.h"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    files = frozenset(str(tmp_path / name) for name in ("x/a.h", "y/a.h", "xa.h"))

    def reached_by(name: str) -> set[str]:
        source = tmp_path / "blob.cpp"
        source.write_text(f'#include "{name}"\n')
        (tmp_path / "all.cpp").write_text('#include "a.h"\n#include "xa.h"\n')
        reach = HeaderReach(files, [str(source), str(tmp_path / "all.cpp")], lambda _: False)
        return {os.path.relpath(f, tmp_path) for f in reach.of(str(source))}

    assert reached_by("a.h") == {"x/a.h", "y/a.h"}
    assert reached_by("x/a.h") == {"x/a.h"}
    assert reached_by("./x//a.h") == {"x/a.h"}
    assert reached_by("nowhere/../y/./a.h") == {"y/a.h"}
    assert reached_by("../../x/../y/a.h") == {"y/a.h"}
    assert reached_by("z/a.h") == set()
    assert reached_by("..") == set()
    assert reached_by(f"{tmp_path}/y/a.h") == {"x/a.h", "y/a.h"}  # it may be a link to any of them
    assert reached_by("xa.h") == {"xa.h"}


@pytest.fixture
def group(tmp_path: Path) -> Path:
    """A group with a header that no text mentions, which leads to another, and a common one."""
    texts = {
        "driver.h": '#include "by_driver.h"\n',
        "by_driver.h": "",
        "common.h": '#include "by_common.h"\n',
        "by_common.h": "",
        "own.h": "",
        "other.h": "",
        "itself.h": '#include "itself.h"\n',
        "blob.cpp": '#include "own.h"\n',
        "second.cpp": '#include "other.h"\n#include "common.h"\n#include "by_driver.h"\n',
        "macro.cpp": '#include MACRO\n#include "own.h"\n',
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def of(group: Path, source: str) -> set[str]:
    files = frozenset(str(p) for p in group.glob("*.h"))
    sources = [str(group / name) for name in ("blob.cpp", "second.cpp")]
    reach = HeaderReach(files, sources, lambda f: f.endswith("/common.h"))
    return {Path(f).name for f in reach.of(str(group / source))}


def test_headers_that_no_text_mentions_or_that_are_common_belong_to_every_blob(group: Path) -> None:
    common = {"driver.h", "by_driver.h", "common.h", "by_common.h", "itself.h"}
    assert of(group, "blob.cpp") == {"own.h"} | common
    assert of(group, "second.cpp") == {"other.h"} | common


def test_a_macro_may_name_every_header(group: Path) -> None:
    assert len(of(group, "macro.cpp")) == 7


def test_a_header_that_changed_is_read_again(group: Path) -> None:
    assert "other.h" not in of(group, "blob.cpp")
    (group / "own.h").write_text('#include "other.h"\n')
    assert "other.h" in of(group, "blob.cpp")


@pytest.mark.parametrize(
    ("text", "names", "is_computed"),
    [
        ('#include "a.h"\n#  import <b/c.h>\n#include_next "d.h"\n', {"a.h", "b/c.h", "d.h"}, False),
        ('#include MACRO\n#include "a.h"\n', {"a.h"}, True),
        ("#include XX\n", set(), True),
        ('/* #include MACRO */\n#include "a.h"\n', {"a.h"}, False),
        ("#includes MACRO\n", set(), False),
        ('#inc\\\nlude "a.h"\n', {"a.h"}, False),
        ("int a;\n", set(), False),
    ],
)
def test_what_a_text_includes(text: str, names: set[str], is_computed: bool) -> None:
    assert included_names(text) == (frozenset(names), is_computed)
