"""Test which files a source is found to include, and which includes are rewritten."""

from pathlib import Path

import pytest

from lazyck.postbuild.cxx.includes import asked_by, depends_on_place, included_names, with_relative_includes

WHERE = {"/build/a/x.h": "lib/tree/a/x.h"}
PLACE = "lib/tree/b/y.cpp"


@pytest.mark.parametrize("lead", ["#include ", " # include\t", "#import ", "#include /* why */ "])
@pytest.mark.parametrize("name", ['"/build/a/x.h"', "</build/a/x.h>", '"/build/b/../a/x.h"'])
def test_absolute_includes_of_the_bundle_become_relative(lead: str, name: str) -> None:
    assert with_relative_includes(f"{lead}{name}\nint x;".encode(), PLACE, WHERE).decode() == (
        f'{lead}"../a/x.h"\nint x;'
    )


@pytest.mark.parametrize(
    "line", ['#include "/build/other.h"', '#include_next "/build/a/x.h"', 'char s[] = "#include </build/a/x.h>";']
)
def test_other_text_stays(line: str) -> None:
    assert with_relative_includes(line.encode(), PLACE, WHERE).decode() == line


def test_what_a_file_includes_depends_on_its_place_only_by_quotes_and_include_next() -> None:
    assert depends_on_place(b'int x;\n# include "x.h"') and depends_on_place(b"#include_next <x.h>")
    assert not depends_on_place(b'#include <x.h>\n// see #include "x.h"')


def test_names_that_are_only_asked_for_are_found(tmp_path: Path) -> None:
    plain, by_macro, defining = (str(tmp_path / name) for name in ("plain.h", "by_macro.h", "defining.h"))
    Path(plain).write_text('#if __has_include("a.h") && __has_include_next ( <b/c.h> ) && __has_embed("d.bin")')
    Path(by_macro).write_text("#ifdef __has_include\n#if __has_include(NAME)\n#endif\n#endif\n")
    Path(defining).write_text('# define NAME "d.h"\n#define X(y) <e/f.h>\n#define N 1 < 2\n')
    assert asked_by([plain, defining], ["g.h"]) == {"a.h", "b/c.h", "d.bin"}
    assert asked_by([plain, by_macro, defining], ["g.h"]) == {"a.h", "b/c.h", "d.bin", "d.h", "e/f.h", "g.h"}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('#include "a.h"\n#  import <b/c.h>\n#include_next "d.h"\n', {"a.h", "b/c.h", "d.h"}),
        ('%:include "a.h"\n??=include <b.h>\n', {"a.h", "b.h"}),
        ('#include MACRO\n# include/**/"a.h"\n', {"a.h"}),
        ("#includes MACRO\n", set()),
        ('#inc\\\nlude "a.h"\n', {"a.h"}),
        ("int a;\n", set()),
    ],
)
def test_what_a_text_includes(text: str, names: set[str]) -> None:
    assert included_names(text) == frozenset(names)
