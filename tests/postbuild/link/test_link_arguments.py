"""Tests the words of the final link, and what its objects and archives are read for."""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.link_contexts import link_context

from lazyck import abi
from lazyck.errors import FormatError
from lazyck.postbuild.build_options import BuildOptions
from lazyck.postbuild.facts import Demands
from lazyck.postbuild.link.arguments import AheadLink, PortableArguments, ahead_link, link_words, load_ahead, save_ahead
from lazyck.postbuild.link.relink import RUNTIME
from lazyck.postbuild.objects import elf
from lazyck.postbuild.objects.inputs import read_inputs
from lazyck.postbuild.objects.symbols import SymbolReader, read_symbols, source_name
from lazyck.postbuild.state import HERE
from lazyck.toolchains import by_name
from lazyck.toolchains.command import CompileCommand, Invocation, LinkCommand

CXX = shutil.which("g++") or "g++"
# The compiler's directory stands for a shim home.
SHIMS = os.path.dirname(CXX)
OPTIONS = BuildOptions("/t", shim_homes=((SHIMS, "/real/home/bin"),))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    at = tmp_path_factory.mktemp("words")
    sources = {
        "a": 'extern int far(void); __attribute__((visibility("hidden"))) int quiet(void) { return 1; }\n'
        "int a(void) { return far() + quiet(); }\n",
        "m": "extern int of_m(void); __attribute__((weak)) int m(void) { return of_m(); }\n",
        "n": "int n(void) { return 2; }\n",
        "s": "int s(void) { return 3; }\n",
    }
    for name, text in sources.items():
        (at / f"{name}.c").write_text(text)
        subprocess.run(["gcc", "-fPIC", "-c", f"{name}.c"], cwd=at, check=True)
    subprocess.run(["ar", "rcs", "libparts.a", "m.o", "n.o"], cwd=at, check=True)
    subprocess.run(["ar", "rcsT", "libthin.a", "m.o", "n.o"], cwd=at, check=True)
    subprocess.run(["gcc", "-shared", "-Wl,-soname,libs.so.1", "s.o", "-o", "libs.so"], cwd=at, check=True)
    (at / "script.map").write_text("{ global: *; };\n")
    return at


def linking(at: Path, *words: str, tool: str = "c++") -> LinkCommand:
    return LinkCommand(Invocation(tool, "host", str(at), (CXX, *words), 1, ()), str(at / "libx.so"))


def words_of(
    at: Path, into: Path, *words: str, demands: Demands | None, tool: str = "c++", eager: Sequence[str] = ()
) -> tuple[list[str], dict[str, str]]:
    link = linking(at, *words, tool=tool)
    blob = CompileCommand(link.call, "blob.cpp", "blob.o")
    inputs = replace(read_inputs(link, by_name("host").table), brought={blob: 2})
    context = link_context(into, link, inputs, options=OPTIONS)
    return link_words(context, {2: eager}, demands, ("cudaLaunchKernel",))


def copy_of(at: Path, name: str, shown: str = "") -> str:
    tag = hashlib.sha256(str(at / name).encode()).hexdigest()[:8]
    return f"{HERE}/objects/{shown}{tag}-{name}"


def test_a_lazy_library_is_linked_by_the_project_s_own_words(built: Path, tmp_path: Path) -> None:
    (tmp_path / "eager").mkdir()
    (tmp_path / "eager" / "e.o").write_bytes((built / "n.o").read_bytes())
    given = ("-shared", "-O2", "a.o", "-L.", "-L", "sub", "-Wl,--version-script=script.map", "libs.so", "-lm")
    demands = Demands(pulled=frozenset({"q", "p"}), offered={"quiet": "lazyck.1"})
    words, originals = words_of(built, tmp_path, *given, "-o", "libx.so", demands=demands, eager=["e.o"])
    eager, a, script = (
        copy_of(tmp_path / "eager", "e.o"),
        copy_of(built, "a.o", "shown-"),
        copy_of(built, "script.map", "shown-"),
    )
    assert words[: words.index("-o")] == [
        "/real/home/bin/g++", "-shared", "-O2", f"{HERE}/stubs.o", RUNTIME, eager, a, f"-L{built}", "-L",
        f"{built}/sub", "-Xlinker", f"--version-script={script}", f"{built}/libs.so",
        "-Xlinker", "--push-state", "-Xlinker", "--no-as-needed", "-Xlinker", "-lm", "-Xlinker", "--pop-state",
    ]  # fmt: skip
    tail = words[words.index("-o") :]
    assert tail == [
        "-o", f"{HERE}/libx.so", "-ldl", "-lpthread",
        "-Xlinker", "-u", "-Xlinker", "p", "-Xlinker", "-u", "-Xlinker", "q", "-Xlinker", "--wrap=cudaLaunchKernel",
    ]  # fmt: skip
    assert originals[a] == "a.o"
    assert originals[script] == "script.map"
    rows = {s.name: s for s in elf.open_image(tmp_path / "objects" / Path(a).name).symbols()}
    assert (rows["quiet"].visibility, rows["lazyck.1"].visibility) == ("hidden", "default")
    opened = (tmp_path / "objects" / Path(script).name).read_text()
    assert opened == "{ global: lazyck.*; *; };\n"


def ahead_of(at: Path, into: Path, *words: str, holding: dict[str, tuple[str, ...]], **fields: Any) -> AheadLink:
    """Return the ahead-of-time link of `words`, where files hold blobs of these names."""
    call = Invocation("c++", "host", str(at), (CXX, "-c"), 1, (("CPATH", "inc"),))
    records = {
        str(at / file): tuple(CompileCommand(call, str(at / f"{b}.cpp"), str(at / f"{b}.o")) for b in blobs)
        for file, blobs in holding.items()
    }
    link = linking(at, *words)
    inputs = replace(read_inputs(link, by_name("host").table), records=records, **fields)
    return ahead_link(link_context(into, link, inputs, options=OPTIONS), {"why.o": "it is eager"}, ("libs.so.1",))


def test_the_ahead_of_time_link_has_an_object_for_each_blob_where_its_file_stood(built: Path, tmp_path: Path) -> None:
    # n.o has nothing but two blobs, s.o has one besides its own code, and libparts.a has one.
    given = (
        "-shared",
        "a.o",
        "n.o",
        "s.o",
        "-lparts",
        "-L.",
        f"-Wl,-z,now,{built}/s.o",
        "n.o",
        "libs.so",
        "libparts.a",
    )
    holding = {"n.o": ("one", "two"), "s.o": ("three",), "libparts.a": ("four",)}
    made = ahead_of(
        built, tmp_path, *given, "-Wl,-Map,x.map", "-o", "libx.so", holding=holding, deferred=frozenset((2, 8))
    )
    a, s = copy_of(built, "a.o"), copy_of(built, "s.o")
    n, of_s, parts = [f"{HERE}/ahead/0.o", f"{HERE}/ahead/1.o"], f"{HERE}/ahead/2.o", f"{HERE}/ahead/0.a"
    as_part = ["-Xlinker", "-z", "-Xlinker", "now", "-Xlinker", s, "-Xlinker", of_s]
    assert list(made.words) == [
        "/real/home/bin/g++", "-shared", a, *n, s, of_s, parts, f"-L{built}", *as_part, *n, f"{built}/libs.so", parts,
        "-o", f"{HERE}/ahead/libx.so",
    ]  # fmt: skip
    assert [Path(r.source).stem for r in made.records] == ["one", "two", "three"]
    assert made.archives == (Path(copy_of(built, "libparts.a")).name,)
    assert (tmp_path / "objects" / made.archives[0]).read_bytes() == (built / "libparts.a").read_bytes()
    assert (made.shared, made.libraries) == (True, (str(built / "libs.so"),))
    assert (made.eager, made.kept) == ({"why.o": "it is eager"}, ("libs.so.1",))


def test_what_stays_of_deferred_files_stands_before_the_inputs_of_an_ahead_of_time_link(
    built: Path, tmp_path: Path
) -> None:
    made = ahead_of(built, tmp_path, "a.o", holding={}, stays=("x.o",))
    assert made.words[1:3] == (f"{HERE}/deferred.o", copy_of(built, "a.o"))
    assert not made.shared


def test_an_ahead_of_time_link_is_read_as_it_was_written(built: Path, tmp_path: Path) -> None:
    made = ahead_of(built, tmp_path, "-shared", "n.o", "libs.so", holding={"n.o": ("one",)})
    save_ahead(made, tmp_path)
    assert load_ahead(tmp_path) == made
    file = tmp_path / "ahead.json"
    for spoiled in (b"", b"[]", file.read_bytes().replace(b'"version": ', b'"version": 9'), b'{"version": 5}'):
        file.write_bytes(spoiled)
        with pytest.raises(FormatError, match=r"ahead\.json") as caught:
            load_ahead(tmp_path)
        assert "lazyck build full" in caught.value.hint
    file.unlink()
    with pytest.raises(FormatError, match="is missing"):
        load_ahead(tmp_path)


def test_an_executable_exports_what_blobs_need_and_a_c_driver_gets_the_cpp_library(built: Path, tmp_path: Path) -> None:
    words, _ = words_of(built, tmp_path, "a.o", demands=Demands(), tool="gcc")
    assert words[words.index("-o") :] == [
        "-o", f"{HERE}/libx.so", "-Xlinker", f"--dynamic-list={HERE}/exports", "-lstdc++", "-ldl", "-lpthread",
        "-Xlinker", "--wrap=cudaLaunchKernel",
    ]  # fmt: skip
    assert (tmp_path / "exports").read_text() == f"{{ {abi.PRIVATE_LEAD}*; }};\n"
    words_of(built, tmp_path, "a.o", "-Wl,--wrap=f", demands=Demands(), tool="gcc")
    assert (tmp_path / "exports").read_text() == f"{{ __wrap_f; f; {abi.PRIVATE_LEAD}*; }};\n"


def test_a_soname_of_the_project_stays_and_libraries_that_blobs_need_are_kept(built: Path, tmp_path: Path) -> None:
    given = ("-shared", "-Wl,-soname,own.so", "a.o", f"-Wl,{built}/libs.so")
    words, _ = words_of(built, tmp_path, *given, demands=Demands(kept=(f"{built}/libs.so",)))
    assert "libx.so" not in words
    kept = words.index("--push-state")
    assert words[kept + 1 : kept + 5] == ["-Xlinker", "--no-as-needed", "-Xlinker", f"{built}/libs.so"]
    by_name_, _ = words_of(built, tmp_path, "-shared", "a.o", "libs.so", demands=Demands(kept=(f"{built}/libs.so",)))
    assert f"{built}/libs.so" in by_name_[by_name_.index("--no-as-needed") :]


def test_a_library_that_is_not_lazy_gets_nothing_for_blobs(built: Path, tmp_path: Path) -> None:
    words, _ = words_of(built, tmp_path, "-shared", "a.o", "-lm", demands=None)
    assert RUNTIME not in words
    assert words[words.index("-o") :] == ["-o", f"{HERE}/libx.so", "-Xlinker", "--wrap=cudaLaunchKernel"]
    assert copy_of(built, "a.o") in words  # nothing is shown


def test_inputs_are_kept_as_copies_and_a_thin_archive_as_a_whole_one(built: Path, tmp_path: Path) -> None:
    keeper = PortableArguments(link_context(tmp_path, linking(built), options=OPTIONS))
    word = keeper.copy("libthin.a")
    kept = tmp_path / "objects" / Path(word).name
    assert word == copy_of(built, "libthin.a")
    assert not elf.is_thin(kept)
    assert [name for name, _ in elf.members(kept)] == ["m.o", "n.o"]
    assert keeper.originals == {word: "libthin.a"}
    assert (tmp_path / "objects" / Path(keeper.copy("./a.o")).name).read_bytes() == (built / "a.o").read_bytes()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("-Wl,--as-needed", ["--as-needed"]),
        (f"-Wl,-rpath={SHIMS}/lib", ["-rpath=/real/home/bin/lib"]),
        (f"-Wl,-rpath,{SHIMS}/lib", ["-rpath", "/real/home/bin/lib"]),
        ("-Wl,-rpath=$ORIGIN", ["-rpath=$ORIGIN"]),
        ("-Wl,--retain=", ["--retain="]),
        ("-Wl,-L,sub", ["-L", "{built}/sub"]),
        ("-Wl,--dynamic-list=script.map", ["--dynamic-list={copy}"]),
        ("-Wl,--dynamic-list,script.map", ["--dynamic-list", "{copy}"]),
        ("-Wl,-soname,script.map", ["-soname", "script.map"]),
        ("-Wl,script.map", ["{built}/script.map"]),
        ("-Wl,libs.so", ["{built}/libs.so"]),
        ("-Wl,-Map,script.map,--dependency-file=x.d", []),
    ],
)
def test_words_for_the_linker_name_real_places(built: Path, tmp_path: Path, given: str, expected: list[str]) -> None:
    words, _ = words_of(built, tmp_path, "-shared", given, demands=None)
    fills = {"built": str(built), "copy": copy_of(built, "script.map")}
    own = [word for word in words[2 : words.index("-o")] if word != f"{HERE}/stubs.o"]
    assert own == [word for part in expected for word in ("-Xlinker", part.format(**fills))]


# -- what objects are read for ---------------------------------------------------------------------


def test_an_object_s_definitions_count_and_an_archive_s_only_if_it_is_taken(built: Path) -> None:
    link = linking(built, "-shared", "a.o", "libparts.a", "-Wl,--whole-archive", "libthin.a")
    inputs = read_inputs(link, by_name("host").table)
    found = read_symbols(inputs, SymbolReader(["g++"], str(built), {"PATH": "/usr/bin:/bin"}))
    assert found.objects.defined == found.objects.strong == {"a", "quiet"}
    assert "far" in found.objects.undefined
    assert found.members.defined == {"m", "n"}
    assert found.members.strong == {"n"}
    assert "of_m" in found.members.undefined
    assert {Path(path).name for path in found.files} == {"a.o", "libparts.a", "libthin.a"}
    assert [n.defined for names in found.optional.values() for n in names] == [{"m"}, {"n"}]
    assert found.unread == ""


def test_start_files_of_a_compiler_define_nothing_for_a_library(built: Path, tmp_path: Path) -> None:
    for name in ("crtbeginS.o", "crtend_of_mine.o"):
        (tmp_path / name).write_bytes((built / "a.o").read_bytes())
    inputs = read_inputs(linking(tmp_path, "-shared", "crtbeginS.o", "crtend_of_mine.o"), by_name("host").table)
    files = read_symbols(inputs, SymbolReader(["g++"], str(built), {"PATH": "/usr/bin:/bin"})).files
    assert {Path(path).name: bool(n.defined) for path, n in files.items()} == {
        "crtbeginS.o": False,
        "crtend_of_mine.o": True,
    }
    assert all("far" in n.undefined for n in files.values())


def test_an_lto_object_is_read_by_the_compiler_s_own_nm_or_said_to_be_unread(built: Path, tmp_path: Path) -> None:
    (tmp_path / "x.c").write_text("extern int far(void); int x(void) { return far(); }\n")
    subprocess.run(["gcc", "-flto", "-c", "x.c"], cwd=tmp_path, check=True)
    subprocess.run(["gcc-ar", "rcs", "libx.a", "x.o"], cwd=tmp_path, check=True)
    reader = SymbolReader(["gcc"], str(tmp_path), {"PATH": "/usr/bin:/bin"})
    read = reader.object(str(tmp_path / "x.o"))
    assert read
    assert read.defined == {"x"}
    assert read.undefined == {"far"}
    assert reader.archive(str(tmp_path / "libx.a")) == [read]
    blind = SymbolReader(["/bin/false"], str(tmp_path), {"PATH": "/nowhere"})
    assert blind.object(str(tmp_path / "x.o")) is None
    assert blind.archive(str(tmp_path / "libx.a")) is None
    inputs = read_inputs(linking(tmp_path, "-shared", "x.o"), by_name("host").table)
    assert read_symbols(inputs, blind).unread == str(tmp_path / "x.o")


def test_an_object_is_called_by_its_source(built: Path) -> None:
    assert source_name(str(built / "a.o")) == "a.c"
    assert source_name(str(built / "libparts.a")) == "libparts.a"
