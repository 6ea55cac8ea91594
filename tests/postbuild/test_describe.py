"""Tests names of blobs, where files of a bundle go, and for which archs it is built."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from support.link_contexts import NO_INPUTS, link_context

from lazyck import __version__, abi
from lazyck.errors import CommandError
from lazyck.formats.manifest import Recipe
from lazyck.postbuild.build_options import BuildOptions
from lazyck.postbuild.bundle import FileDigests
from lazyck.postbuild.describe import (
    Description,
    PrivateNames,
    archs_of,
    describe,
    digest_of_keys,
    kernel_name,
    unique_names,
)
from lazyck.postbuild.eager import EagerObject, HostUnit, Program
from lazyck.postbuild.facts import Settled
from lazyck.postbuild.mentions import Mentions
from lazyck.postbuild.objects.reveal import private_name
from lazyck.postbuild.ownership import assign
from lazyck.postbuild.probe.group import Probed
from lazyck.postbuild.reasons import Reason, ReasonKind
from lazyck.toolchains.command import CompileCommand, Invocation, LinkCommand

RECIPE = Recipe("host", "gcc12", "", (), ("c++", "-O2"), ("c++",), ())


def blob(source: str, *options: str) -> tuple[CompileCommand, Recipe]:
    call = Invocation("c++", "host", "/w", ("c++", *options, "-c", source, "-o", "x.o"), 1, ())
    return CompileCommand(call, source, "/w/x.o"), replace(RECIPE, compile=("c++", *options))


def names(*blobs: tuple[CompileCommand, Recipe], prefix: str = "/w") -> list[str]:
    return unique_names(blobs, prefix)


def test_a_blob_is_named_by_its_source_alone_if_that_tells_it_from_others() -> None:
    assert names(blob("/w/a/one.cpp"), blob("/w/b/two.cu")) == ["one", "two"]


def test_sources_of_one_name_are_told_apart_by_their_places_below_the_prefix() -> None:
    found = names(blob("/w/a/one.cpp"), blob("/w/b/one.cpp"), blob("/w/two.cpp"))
    assert len(set(found)) == 3
    assert found[2] == "two"
    assert all(len(name) == len("one-1a2b3c4d") and name.startswith("one-") for name in found[:2])
    assert names(blob("/v/b/one.cpp"), blob("/v/a/one.cpp"), prefix="/v") == [found[1], found[0]]
    assert names(blob("/w/a/one.cpp"), blob("/w/b/one.cpp"), prefix="/") != found[:2]


def test_one_source_compiled_in_several_ways_is_named_by_what_these_differ_in() -> None:
    ways = [blob("/w/one.cpp", "-O2", f"-DBITS={bits}") for bits in (8, 16)]
    found = names(*ways)
    assert len(set(found)) == 2
    assert names(*(blob("/w/one.cpp", "-O3", f"-DBITS={bits}") for bits in (8, 16))) == found
    assert names(*reversed(ways)) == [found[1], found[0]]
    assert names(blob("/w/one.cpp", "-DBITS=8")) == ["one"]


def test_one_source_compiled_twice_alike_has_two_names() -> None:
    first, second = names(blob("/w/one.cpp"), blob("/w/one.cpp"))
    assert second == f"{first}-2"


@pytest.mark.parametrize(
    ("symbol", "lead"), [("_ZN2ns6kernelIiEEvT_", "kernel-"), ("plain", "plain-"), (f"_Z70{'k' * 70}v", f"{'k' * 60}-")]
)
def test_a_kernel_is_named_by_its_function_and_a_digest_of_the_symbol(symbol: str, lead: str) -> None:
    name = kernel_name(symbol)
    assert name.startswith(lead)
    assert len(name) == len(lead) + 8
    assert name != kernel_name(symbol + "x")


# -- a whole library -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Project:
    """A project with two lazy sources and one that is lazy by kernel, below one directory."""

    at: Path
    home: str

    def command(self, source: str, *options: str) -> CompileCommand:
        path = str(self.at / source)
        argv = (f"{self.home}/bin/hipcc", *options, "-c", path, "-o", f"{path}.o")
        return CompileCommand(Invocation("hipcc", "rocm", str(self.at), argv, 1, ()), path, f"{path}.o")

    def probed(self, source: str, symbols: str, *options: str, private: str = "") -> Probed:
        own = self.at / "inc" / ("a.h" if source == "src/a.hip" else "b.h")
        headers = frozenset({str(own), f"{self.home}/include/hip.h"})
        hidden = frozenset(private.split())
        return Probed(tuple(symbols.split()), blob=self.command(source, *options), headers=headers, private=hidden)

    def describe(
        self,
        *,
        soname: str = "libx.so.1",
        machine: str = "x86_64",
        options: tuple[str, ...] = (),
        private: str = "",
        of_objects: str = "",
        line: str = "_Z1kv\t1",
        runtime: str = "",
        made_by: str = "program 1",
        build_options: dict[str, Any] | None = None,
        eager: Sequence[EagerObject] = (),
    ) -> Description:
        lazy = [self.probed("src/a.hip", "fa", *options, private=private), self.probed("src/b.hip", "fb ib", *options)]
        of_unit = self.probed("src/k.hip", "")
        unit = HostUnit(of_unit.blob, "unit0", (line, "_Z1lv\t2"), "* 3", frozenset())
        owned = assign(lazy, {"fa"}, ())
        settled = Settled(owned, tuple(lazy), tuple(eager))
        program = Program(Path(self.home) / "lazyck-unit", made_by)
        driver = Invocation("hipcc", "rocm", str(self.at), (f"{self.home}/bin/hipcc", "-shared"), 1, ())
        of_all = {"homes": (("rocm", self.home),), "archs": ("gfx942",), "root": "/root/of"}
        given = BuildOptions("/t", **{**of_all, **(build_options or {})})
        inputs = replace(NO_INPUTS, soname=soname, machine=machine)
        context = link_context(self.at, LinkCommand(driver, "libx"), inputs, options=given)
        offered = {s: private_name(s, context.tag) for s in of_objects.split()}
        names = PrivateNames(lazy, owned, offered, context.tag, Mentions(()))
        return describe(
            context, settled, {unit: of_unit}, program, names, Path(runtime) if runtime else None, FileDigests()
        )


@pytest.fixture
def project(tmp_path: Path) -> Project:
    home = tmp_path / "rocm"
    texts = {
        "p/src/a.hip": '#include "a.h"\n',
        "p/src/b.hip": '#include "b.h"\n',
        "p/src/k.hip": '#include "b.h"\n',
        "p/inc/a.h": "",
        "p/inc/b.h": "",
        "rocm/include/hip.h": "",
        "rocm/lazyck-unit": "",
        "rocm/bin/hipcc": "#!/bin/sh\necho 'HIP version: 6.0'\necho 'AMD clang version 17.0.0'\n",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (home / "bin" / "hipcc").chmod(0o755)
    return Project(tmp_path / "p", str(home))


OWNER = "libx.so.1"


def digests(described: Description) -> dict[str, str]:
    return {b.name: b.digest for b in described.manifest.blobs}


def test_a_manifest_has_a_row_for_each_blob_and_each_kernel(project: Project) -> None:
    made = project.describe(of_objects="y z").manifest
    k, l_ = (f"k.{kernel_name(symbol)}" for symbol in ("_Z1kv", "_Z1lv"))
    assert [(b.name, b.source, b.symbols, b.kernel) for b in made.blobs] == [
        ("a", "libx/tree/src/a.hip", ("fa",), ""),
        ("b", "libx/tree/src/b.hip", ("fb", "ib"), ""),
        ("k", "libx/tree/src/k.hip", ("_Z1kv", "_Z1lv"), "unit0\t* 3"),
        (k, "libx/tree/src/k.hip", ("_Z1kv",), "unit0\t_Z1kv\t1"),
        (l_, "libx/tree/src/k.hip", ("_Z1lv",), "unit0\t_Z1lv\t2"),
    ]
    assert (made.library, made.file_name, made.root, made.machine) == ("libx", "libx", "/root/of", "x86_64")
    assert made.archs == ("gfx942",)
    assert made.private_names == (private_name("y", made.private_tag), private_name("z", made.private_tag))
    assert made.creator == f"lazyck {__version__}"
    assert made.digest == digest_of_keys(made.blobs, made.recipes)
    assert len(set(digests(project.describe()).values())) == 5
    whole, device = made.recipes
    assert [b.recipe for b in made.blobs] == [0, 0, 1, 1, 1]
    assert device.compile[0] == f"{abi.PH_ROOT}/libx/tree/.lazyck/lazyck-unit"
    assert whole.compile[0] == f"{abi.PH_TOOLCHAIN}/bin/hipcc"


def test_a_bundle_holds_sources_and_headers_of_the_project_and_what_compiles_them(project: Project) -> None:
    described = project.describe()
    header = Path(f"{project.home}/include/hip.h")
    listed = f"{sha256(header.read_bytes()).hexdigest()} {header}"
    assert described.files == {
        **{f"libx/tree/src/{n}.hip": str(project.at / "src" / f"{n}.hip") for n in "abk"},
        **{f"libx/tree/inc/{n}.h": str(project.at / "inc" / f"{n}.h") for n in "ab"},
        "libx/tree/.lazyck/lazyck-unit": f"{project.home}/lazyck-unit",
        "libx/tree/.lazyck/rocm.headers": b"lazyck headers 1\0" + listed.encode() + b"\0",
    }
    assert {r.headers for r in described.manifest.recipes} == {
        sha256(described.files["libx/tree/.lazyck/rocm.headers"]).hexdigest()  # type: ignore[arg-type]
    }
    assert [(p.blob.stem, row.name) for p, row in described.rows] == [("a", "a"), ("b", "b"), ("k", "k")]
    files = project.describe(runtime="/rt/wrappers.o").files
    assert files["libx/tree/.lazyck/wrappers.o"] == "/rt/wrappers.o"


def changed(before: Description, after: Description) -> set[str]:
    old, new = digests(before), digests(after)
    return {name.partition("-")[0] for name in old if old[name] != new[name]}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"soname": "liby.so"}, set()),
        ({"machine": "aarch64"}, {"a", "b", "k", "k.k", "k.l"}),
        ({"options": ("-O1",)}, {"a", "b"}),
        ({"private": "fa"}, {"a", "b"}),  # b has no text that could tell that it does not name it
        ({"of_objects": "other"}, {"a", "b"}),
        ({"line": "_Z1kv\t2"}, {"k.k"}),
        ({"made_by": "program 2"}, {"k", "k.k", "k.l"}),
        ({"build_options": {"name": "other", "archs": ("gfx950",)}}, set()),
    ],
)
def test_what_decides_a_key_changes_the_keys_that_depend_on_it(
    project: Project, changes: dict[str, Any], expected: set[str]
) -> None:
    assert changed(project.describe(), project.describe(**changes)) == expected


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("p/src/a.hip", {"a"}),
        ("p/inc/a.h", {"a"}),
        ("p/inc/b.h", {"b", "k", "k.k", "k.l"}),
        ("p/src/k.hip", {"k", "k.k", "k.l"}),
        ("rocm/include/hip.h", {"a", "b", "k", "k.k", "k.l"}),
    ],
)
def test_a_changed_file_changes_the_keys_of_those_that_read_it(project: Project, file: str, expected: set[str]) -> None:
    before = project.describe()
    path = project.at.parent / file
    path.write_text(path.read_text() + "// changed\n")
    assert changed(before, project.describe()) == expected


def test_a_function_that_the_build_hides_has_its_private_name(project: Project) -> None:
    blobs = project.describe(private="fa").manifest.blobs
    assert blobs[0].symbols == (f"fa{abi.PRIVATE_MARK}",)
    assert blobs[1].symbols == ("fb", "ib")


def test_only_blobs_that_are_whole_in_the_library_are_told_as_eager(project: Project) -> None:
    blob, reason = project.command("src/e.hip"), Reason(ReasonKind.DATA, "x")
    made = EagerObject(blob, (reason,), Path("e.o"), None)
    failed = replace(made, error=CommandError("it", ["c++"], 1, ""))
    unit = replace(made, unit=HostUnit(blob, "u", (), "*", frozenset()))
    described = project.describe(eager=[made, failed, unit], build_options={"project_dir": str(project.at)})
    assert [source for source, _ in described.manifest.eager] == ["src/e.hip"]


def test_the_archs_are_those_of_the_commands_else_of_the_environment_else_the_compilers(project: Project) -> None:
    plain = project.probed("src/a.hip", "fa")
    named = project.probed("src/b.hip", "fb", "--offload-arch=gfx90a", "--offload-arch=gfx942")
    asked = BuildOptions("/t", env_archs=(("cuda", ("80",)), ("rocm", ("gfx1100", "gfx906"))))
    assert archs_of(named.blob, replace(asked, archs=("gfx906",)), {}) == ("gfx90a", "gfx942")
    assert archs_of(plain.blob, replace(asked, archs=("gfx942",)), {}) == ("gfx942",)
    assert archs_of(plain.blob, asked, {}) == ("gfx1100", "gfx906")
    nvcc = project.at / "nvcc"
    nvcc.write_text("#!/bin/sh\necho 'kind=elf,sm=75,file=a kind=ptx,sm=75,file=b' >&2\n")
    nvcc.chmod(0o755)
    call = Invocation("nvcc", "cuda", str(project.at), (str(nvcc), "-c", "x.cu"), 1, ())
    rocm_only = BuildOptions("/t", env_archs=(("rocm", ("gfx906",)),))
    assert archs_of(CompileCommand(call, "x.cu", "x.o"), rocm_only, {}) == ("75", "75-virtual")
