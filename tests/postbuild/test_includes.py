"""Test which files a source is found to include, and which includes are rewritten."""

import pytest

from lazyck.postbuild.cxx.includes import asked_names, depends_on_place, with_relative_includes

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


def test_names_that_are_only_asked_for_are_found() -> None:
    assert asked_names(b'#if __has_include("a.h") && __has_include_next ( <b/c.h> )') == {"a.h", "b/c.h"}
