"""Test that what compiling showed about blobs is kept by content, so that an unchanged blob need
not be compiled again."""

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.counting import CountingCompiler
from support.link_contexts import link_context

from lazyck.postbuild.eager import HostUnits, compile_eagerly
from lazyck.postbuild.probe import content_key
from lazyck.postbuild.probe.probe import ProbeResult, probe
from lazyck.postbuild.probe_cache import ProbeCache
from lazyck.toolchains import HOST
from lazyck.toolchains.command import CompileCommand, Invocation

BLOBS = {
    "plain": "#include <own.h>\nint plain(Width w) { return w.value; }\n",
    "doubt": "#include <own.h>\ntemplate <typename T> struct Box { int get(Width) { return 1; } };\n"
    "template struct Box<int>;\n",
    "starts": '#include <own.h>\n#include <string>\nstatic std::string name = std::string("x") + "y";\n'
    "int starts(Width) { return int(name.size()); }\n",
    "data": "#include <own.h>\nint table[3];\nint data(Width) { return 0; }\n",
}


class Bench:
    """Holds blobs and a compiler that counts its starts by purpose."""

    def __init__(self, at: Path) -> None:
        self.at, self.compiler = at, CountingCompiler(at)
        self.cache = ProbeCache(at / "store")
        (at / "late").mkdir()
        (at / "own.h").write_text("#pragma once\nstruct Width { int value; };\n")
        for name, text in BLOBS.items():
            (at / f"{name}.cpp").write_text(text)

    def command(self, name: str, *flags: str) -> CompileCommand:
        source = str(self.at / f"{name}.cpp")
        output = source + ".o"
        argv = (str(self.compiler.path), f"-I{self.at}/late", f"-I{self.at}", *flags, "-O1", "-c", source, "-o", output)
        return CompileCommand(Invocation("c++", "host", str(self.at), argv, 1, ()), source, output)

    def link(self, *flags: str, names: tuple[str, ...] = tuple(BLOBS), work: str = "work") -> ProbeResult:
        """Do what a link does with the blobs: probe them and compile the eager ones."""
        at = self.at / work
        shutil.rmtree(at, ignore_errors=True)
        found = probe([self.command(n, *flags) for n in names], at, self.cache, jobs=2)
        context = link_context(at, cache=self.cache)
        made = compile_eagerly(context, found.eager, at / "eager", found.keys, HostUnits(self.cache, None, context.env))
        assert all(m.error is None and m.object.stat().st_size for m in made)
        return found

    def compiles(self) -> int:
        """Return the number of compiles since the last call."""
        found = self.compiler.compiles()
        self.compiler.forget()
        return found


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def said(found: ProbeResult) -> list[object]:
    return [(p.blob.stem, p.symbols, p.compiled, p.weak, p.needs, p.headers) for p in found.probed] + [
        (b.stem, reason) for b, reason in found.eager.items()
    ]


def test_a_second_link_of_the_same_blobs_compiles_nothing(bench: Bench) -> None:
    first = bench.link()
    assert [b.stem for b in first.eager] == ["starts", "data"]
    assert bench.compiles() == 4  # one each: the probe, the blob in doubt, the initializer, the data
    assert said(bench.link()) == said(first)
    assert bench.compiles() == 0


def test_a_link_that_takes_other_blobs_too_compiles_only_these(bench: Bench) -> None:
    bench.link(names=("doubt", "starts"))
    bench.compiles()
    bench.link()
    assert bench.compiles() == 2  # one each: the probe of the plain blob, the data


@pytest.mark.parametrize("change", ["header", "earlier header", "source", "flags", "compiler", "other type"])
def test_what_changed_is_compiled_again(bench: Bench, change: str) -> None:
    bench.link()
    bench.compiles()
    flags = ["-DX"] if change == "flags" else []
    if change == "header":
        (bench.at / "own.h").write_text("#pragma once\nstruct Width { long value; };\n")
    elif change == "earlier header":
        (bench.at / "late" / "own.h").write_text("#pragma once\nstruct Width { long value; };\n")
    elif change == "source":
        for name, text in BLOBS.items():
            (bench.at / f"{name}.cpp").write_text(text + "// changed\n")
    elif change == "compiler":
        bench.compiler.release("another one")
    elif change == "other type":
        (bench.at / "own.h").write_text("#pragma once\ntypedef struct W { int value; } Width;\n")
    found = bench.link(*flags)
    assert bench.compiles() == 4
    if change == "other type":
        assert {p.blob.stem: p.symbols for p in found.probed}["plain"] == ("_Z5plain1W",)


def test_a_change_in_one_blob_leaves_the_others_alone(bench: Bench) -> None:
    bench.link()
    bench.compiles()
    (bench.at / "starts.cpp").write_text(BLOBS["starts"] + "// changed\n")
    bench.link()
    assert bench.compiles() == 1


def test_damaged_and_lost_files_are_made_again(bench: Bench) -> None:
    first = bench.link()
    for path in (bench.at / "store" / "answers").iterdir():
        path.write_bytes(path.read_bytes()[:-5])
    for path in (bench.at / "store" / "objects").iterdir():
        path.unlink()
    bench.compiles()
    assert said(bench.link()) == said(first)
    assert bench.compiles() == 4


def test_links_side_by_side_give_the_same_answers(bench: Bench) -> None:
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda i: bench.link(work=f"work{i}"), range(4)))
    assert all(said(f) == said(found[0]) for f in found)
    bench.compiles()
    bench.link()
    assert bench.compiles() == 0


def test_objects_that_no_link_takes_any_more_go(bench: Bench) -> None:
    bench.link()
    old, *others = sorted((bench.at / "store" / "objects").iterdir())
    os.utime(old, (1, 1))
    bench.cache.tidy()
    assert sorted((bench.at / "store" / "objects").iterdir()) == others


@pytest.mark.parametrize("place", ["embeds.cpp", "embeds.h"])
def test_an_object_with_a_file_that_the_assembler_reads_is_made_again(bench: Bench, place: str) -> None:
    (bench.at / "embeds.cpp").write_text('#include "embeds.h"\nint table[3];\n')
    (bench.at / "embeds.h").write_text("#pragma once\n")
    with (bench.at / place).open("a") as f:
        f.write('__asm__(".data\\n.incbin \\"data.bin\\"\\n.text\\n");\n')
    for word in (b"first", b"other"):
        (bench.at / "data.bin").write_bytes(word)
        bench.link(names=("embeds",))
        (made,) = (bench.at / "work" / "eager").iterdir()
        assert word in made.read_bytes()


def test_a_file_that_an_option_names_is_part_of_the_key(bench: Bench) -> None:
    listed = bench.at / "listed.txt"
    blob = bench.command("plain", f"-fsanitize-ignorelist={listed}")
    keys = []
    for text in ("fun:one", "fun:two"):
        listed.write_text(text)
        keys.append(content_key.group_key(HOST, blob, [], os.environ))
    assert keys[0] != keys[1]
    assert all(keys)
