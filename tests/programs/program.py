"""A generated program as a value, and the tree of files that it stands for.

A `Program` names the traits that its sources have. `plant` turns it into a `Tree`, and `write`
that into sources, `build.sh` and `run.sh`.
"""

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from programs import code, headers, linking
from programs.rows import Row, now_and_later

COMPILERS = {"g++": "gcc", "clang++-19": "clang-19"}  # for C++ and for C
OLD = 1_600_000_000  # what files are dated: seconds since 1970
ROWS: Mapping[str, Row] = {**headers.ROWS, **code.ROWS, **linking.ROWS}
LOADS: Mapping[str, Row] = linking.LOADS
CALLS = 'for (int i = 0, v; (v = entry(i, 7)) != -99; i++) { printf("%d\\n", v); fflush(0); }'


@dataclass(frozen=True, order=True)
class Trait:
    """A trait of the blob with the number `blob`. Its name is ASPECT/WORD."""

    name: str
    blob: int = 0


@dataclass(frozen=True)
class Program:
    """Describes a library of `blobs` files, a dispatcher and a program that calls it. `change` is
    what happens between two builds; it is empty if there is one build."""

    compiler: str = "g++"
    blobs: int = 1
    traits: tuple[Trait, ...] = ()
    load: str = "load/needed"
    change: str = ""

    def names(self) -> tuple[str, ...]:
        """Return what is special about the program, sorted."""
        more = {self.load, self.change, f"compiler/{self.compiler}"} - {"load/needed", "", "compiler/g++"}
        return tuple(sorted({t.name for t in self.traits} | more))


@dataclass
class Unit:
    """A source of a blob: the text above its function, what the function adds up, and flags. `text`
    is all of the source if it has no such function."""

    file: str
    number: int
    head: list[str] = field(default_factory=list)
    terms: list[str] = field(default_factory=list)
    flags: str = ""
    text: str = ""

    def render(self) -> str:
        if self.text:
            return self.text
        total = " + ".join([f"x * 3 + {self.number} + LATER", *self.terms])
        head = ["#ifndef LATER\n#define LATER 0\n#endif", *self.head]
        return "\n".join([*head, f'extern "C" int f{self.number}(int x) {{ return {total}; }}', ""])


@dataclass
class Tree:
    """The files and commands of a program. `later` are files as the change leaves them."""

    name: str
    program: Program
    blobs: list[Unit] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    later: dict[str, str] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    later_links: dict[str, str] = field(default_factory=dict)
    flags: str = ""
    words: str = ""
    keeps_dates: bool = False  # whether the change keeps the dates of files

    @property
    def library(self) -> str:
        return f"lib{self.name}.so"

    def lines(self, name: str) -> str:
        """Return what the rows say in one field, each in a line."""
        return "".join(f"{text}\n" for row in self.rows if (text := getattr(row, name)))

    def joined(self, name: str) -> str:
        return "".join(f" {text}" for row in self.rows if (text := getattr(row, name)))


def _edit_nothing(tree: Tree) -> None:
    tree.later, tree.later_links = {}, {}


def _edit_sources(tree: Tree) -> None:
    _edit_nothing(tree)
    for unit in tree.blobs:
        unit.terms.append("5")


def _change_flags(tree: Tree) -> None:
    _edit_nothing(tree)
    tree.flags += " -DLATER=4"


def _change_link(tree: Tree) -> None:
    _edit_nothing(tree)
    tree.words += " -Wl,-Bsymbolic"


def _keep_dates(tree: Tree) -> None:
    tree.keeps_dates = True


CHANGES: Mapping[str, Callable[[Tree], None]] = {
    "changes/files": lambda tree: None,
    "changes/files-of-one-date": _keep_dates,
    "changes/sources": _edit_sources,
    "changes/flags": _change_flags,
    "changes/link": _change_link,
    "changes/nothing": _edit_nothing,
}


def plant(program: Program, name: str) -> Tree:
    """Return the tree of a program."""
    tree = Tree(name, program, [Unit(f"f{i}.cpp", i) for i in range(program.blobs)])
    for i, trait in enumerate(program.traits):
        unit = tree.blobs[trait.blob % program.blobs]
        _add(tree, unit, ROWS[trait.name].numbered(str(i)) if trait.name in ROWS else _option(unit, trait.name), str(i))
    _add(tree, tree.blobs[0], LOADS[program.load].numbered(""), "")
    return tree


def _option(unit: Unit, name: str) -> Row:
    """Return the row of a trait that a compiler or a linker lists. A compiler's is for all files if
    its blob is the first, and else for that blob alone."""
    aspect, _, word = name.partition("/")
    if aspect == "linker-options":
        return Row(words=shlex.quote("-Wl," + word.replace(" ", ",")))
    return Row(all_flags=shlex.quote(word)) if unit.number == 0 else Row(flags=shlex.quote(word))


def _add(tree: Tree, unit: Unit, row: Row, n: str) -> None:
    tree.rows.append(row)
    if row.both:
        tree.files[f"both{n}.h"] = f"#ifndef BOTH{n}\n#define BOTH{n}\n{row.both}\n#endif\n"
        unit.head.append(f'#include "../both{n}.h"')
    unit.head += [row.head] if row.head else []
    unit.terms += [row.term] if row.term else []
    unit.flags += f" {row.flags}" if row.flags else ""
    for path, text in row.files.items():
        tree.files[path], later = now_and_later(text, n)
        if later != tree.files[path]:
            tree.later[path] = later
    tree.later |= {path: now_and_later(text, n)[1] for path, text in row.later.items()}
    for path, (first, second) in row.links.items():
        tree.links[path], tree.later_links[path] = first, second
    for file, (text, flags) in row.blobs.items():
        tree.blobs.append(Unit(file, -1, flags=f" {flags}", text=text))


def host_source(tree: Tree) -> str:
    functions = [f"f{u.number}" for u in tree.blobs if not u.text]
    values = [*(f"{name}(x)" for name in functions), *(row.value for row in tree.rows if row.value)]
    cases = "".join(f"    case {i}: return {value};\n" for i, value in enumerate(values))
    declared = "".join(f"int {name}(int);\n" for name in functions)
    seen = "".join(f'#include "{path}"\n' for path in tree.files if path.startswith("both"))
    own = '__attribute__((visibility("default"))) int entry(int which, int x);'
    head = f'{seen}extern "C" {{\n{declared}{own}\n}}\n{tree.lines("host")}'
    return f"{head}int entry(int which, int x) {{\n  switch (which) {{\n{cases}  }}\n  return -99;\n}}\n"


def build_script(tree: Tree, *, is_again: bool = False) -> str:
    """Return the script that builds the program into `out`. With `is_again`, a program beside the
    library stays as it was built before: no change is to its source."""
    compiler, main = tree.program.compiler, f"main_{tree.name}"
    keeps_main = is_again and tree.program.load != "load/executable"
    fresh = f"mkdir new; mv out/{main} new; rm -rf out; mv new out" if keeps_main else "rm -rf out; mkdir out"
    lines = [f"CXX={compiler} CC={COMPILERS[compiler]} LIB={tree.library}", "set -e", fresh]
    lines += tree.lines("before").splitlines()
    common = f"-fPIC -O1 -w{tree.flags}{tree.joined('all_flags')}"
    for unit in tree.blobs:
        driver = "$CC" if unit.file.endswith((".c", ".S")) else "$CXX"
        made = f"out/{unit.file.partition('.')[0]}.o"
        lines.append(f"{driver} {common}{unit.flags} -c blob/{unit.file} -o {made}")
    lines.append(f"$CXX {common} -c lib.cpp -o out/lib.o")
    lines += tree.lines("after").splitlines()
    objects = ([row.objects for row in tree.rows if row.objects] or ["out/*.o"])[0]
    words = f"{tree.joined('words')}{tree.words}"
    if tree.program.load == "load/executable":
        lines.append(f"$CXX -w main.cpp -o out/{main} {objects}{words}")
    else:
        lines.append(f"$CXX -shared -o out/$LIB {objects}{words}")
        is_linked = "/dl" not in tree.program.load and tree.program.load != "load/preloaded"
        needed = f" -l{tree.name}" if is_linked else ""
        if not keeps_main:
            lines.append("MAIN=$(ls main.o 2> /dev/null || echo main.c)")
            lines.append(f"gcc -w $MAIN -o out/{main} -Lout{needed}{tree.joined('main_words')} -Wl,-rpath,'$ORIGIN'")
    return "\n".join([*lines, *tree.lines("last").splitlines()]) + "\n"


def run_script(tree: Tree) -> str:
    """Return the script that runs what lies in the directory `$1`."""
    preload = f'LD_PRELOAD="$1"/{tree.joined("preload").strip()} ' if tree.joined("preload") else ""
    return f'LIB={tree.library}\n{preload}exec "$1/main_{tree.name}" "$1/{tree.library}"\n'


def _main(tree: Tree) -> dict[str, str]:
    """Return the program's source. It is one of C, which costs half as much, if it is beside the
    library."""
    text = tree.lines("main").replace("CALLS", CALLS)
    if tree.program.load == "load/executable":
        return {"main.cpp": text}
    return {"main.c": "#define _GNU_SOURCE\n" + text.replace('extern "C" ', "")}


def write(tree: Tree, place: Path) -> None:
    """Write the tree's files below `place`, all with one date."""
    sources = {f"blob/{u.file}": u.render() for u in tree.blobs}
    sources |= {"lib.cpp": host_source(tree), **_main(tree)}
    _put(place, {**sources, **tree.files, "build.sh": build_script(tree), "run.sh": run_script(tree)}, OLD)
    _link(place, tree.links)


def change(tree: Tree, how: str, places: Sequence[Path]) -> bool:
    """Carry out the change `how` on the files below each of `places`, which `write` has written.
    Return whether a file or a command is another one now."""
    before, script = {u.file: u.render() for u in tree.blobs}, build_script(tree)
    CHANGES[how](tree)
    sources = {f"blob/{u.file}": u.render() for u in tree.blobs if u.render() != before[u.file]}
    for place in places:
        again = build_script(tree, is_again=True)
        _put(place, {**sources, **tree.later, "build.sh": again}, OLD if tree.keeps_dates else OLD + 100)
        _link(place, tree.later_links)
    return bool(sources or tree.later or tree.later_links or build_script(tree) != script)


def _put(place: Path, files: Mapping[str, str], date: int) -> None:
    for name, text in files.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, (date, date))


def _link(place: Path, links: Mapping[str, str]) -> None:
    for name, target in links.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.symlink_to(target)
