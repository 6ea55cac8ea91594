"""Tests `lazyck inspect`: a summary, blobs in full, and JSON with everything that the manifest
has."""

import json
from collections.abc import Iterator
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import pytest
from support import Lazyck
from support.counting import CountingProgram

from lazyck import abi
from lazyck.formats.manifest import BlobRecord, Manifest, Recipe, UnitRecipes, encode
from lazyck.postbuild.objects.reveal import private_name
from lazyck.postbuild.reasons import Downgrade, Reason, ReasonKind, to_pair

RECIPE = Recipe(
    toolchain="cuda", toolchain_id="nvcc13", home="/opt/cuda", home_env=("CUDA_HOME",), compile=("nvcc", "-c"),
    link=("g++", "-shared"), arch_flags=("-arch=sm_90",), env=(("NVCC_APPEND_FLAGS", "-lineinfo"),),
    programs=("nvcc", "ptxas"), headers="34" * 32, cpu="0f", archs=("80", "90"),
)  # fmt: skip
PRIVATE = f"_Z6hiddenv{abi.PRIVATE_MARK}"
PART = replace(RECIPE, cpu="")
BLOBS = (
    BlobRecord("fwd_a", "libx/tree/fwd_a.cu", 0, "aa" * 32, ("_Z3runi", PRIVATE), units=UnitRecipes("ab" * 32, 1, 2)),
    BlobRecord("fwd_b", "libx/tree/fwd_b.cu", 0, "bb" * 32, ("c_name",)),
    BlobRecord("attn", "libx/tree/attn.cu", 2, "cc" * 32, ("_Z1KILi1EEvPf", "_Z1KILi2EEvPf"), "unit1\t*\twhole"),
    BlobRecord("attn.K-01234567", "libx/tree/attn.cu", 2, "dd" * 32, ("_Z1KILi1EEvPf",), "unit1\t_Z1KILi1EEvPf"),
    BlobRecord("attn.K-89abcdef", "libx/tree/attn.cu", 2, "ee" * 32, ("_Z1KILi2EEvPf",), "unit1\t_Z1KILi2EEvPf"),
)
EAGER = (
    Downgrade("src/a.cpp", (Reason(ReasonKind.DATA, "table"),)),
    Downgrade("src/b.cpp", (Reason(ReasonKind.DATA, "level"),)),
    Downgrade("src/c.cpp", (Reason(ReasonKind.INITIALIZER, "registrar at c.cpp:3"),)),
)
MANIFEST = Manifest(
    library="libx", file_name="libx.so", cache_name="shelf", root="/bundle", archs=("80", "90"),
    recipes=(RECIPE, replace(PART, compile=("lazyck-unit", "host")), replace(PART, compile=("lazyck-unit", "dev"))),
    blobs=BLOBS, eager=tuple(map(to_pair, EAGER)), creator="lazyck test", digest="ef" * 32, machine="x86_64",
    private_names=(private_name("state", "tag"),), private_tag="tag", contents="12" * 32,
)  # fmt: skip


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """Write the manifest of a bundle with one source, and return its path."""
    (tmp_path / "libx/tree").mkdir(parents=True)
    (tmp_path / "libx/tree/fwd_a.cu").write_text("x" * 5000)
    (tmp_path / "libx/manifest").write_bytes(encode(MANIFEST))
    return tmp_path / "libx/manifest"


def leaves(found: Any) -> Iterator[str]:
    """Yield all texts in a JSON value, including its keys."""
    if isinstance(found, dict):
        yield from found
        for value in found.values():
            yield from leaves(value)
    elif isinstance(found, (list, tuple)):
        for value in found:
            yield from leaves(value)
    else:
        yield str(found)


def test_json_has_every_field_of_the_manifest(lazyck: Lazyck, library: Path) -> None:
    for sample in (MANIFEST, RECIPE, BLOBS[0].units):
        assert all(getattr(sample, f.name) for f in fields(sample)), f"give the sample all fields: {sample}"  # type: ignore[arg-type]
    assert all(any(getattr(b, f.name) for b in BLOBS) for f in fields(BlobRecord)), "give a blob the new field"
    found = json.loads(lazyck("inspect", "--json", library).stdout)
    assert {f.name for f in fields(Manifest)} <= found.keys()
    assert {f.name for f in fields(Recipe)} <= found["recipes"][0].keys()
    assert {f.name for f in fields(BlobRecord)} <= found["blobs"][0].keys()
    assert found["blobs"][0]["units"] == asdict(BLOBS[0])["units"]
    texts = set(leaves(found))
    assert set(leaves(asdict(replace(MANIFEST, eager=())))) <= texts
    assert [(e["source"], e["reasons"][0]["kind"], e["reasons"][0]["about"]) for e in found["eager"]] == [
        (e.source, e.reasons[0].kind.name, e.reasons[0].about) for e in EAGER
    ]


def test_json_has_what_the_text_says_besides(lazyck: Lazyck, library: Path) -> None:
    found = json.loads(lazyck("inspect", "--json", library).stdout)
    assert found["summary"]["file"] == {
        "path": str(library), "size": library.stat().st_size,
        "bundle": str(library.parent), "bundle_size": library.stat().st_size + 5000,
    }  # fmt: skip
    counts = ("lazy", "symbols", "sources_by_kernel", "kernels", "eager")
    assert [found["summary"][name] for name in counts] == [2, 3, 1, 2, 3]
    assert found["summary"]["reasons"] == {"DATA": 2, "INITIALIZER": 1}
    assert found["summary"]["toolchains"] == [
        {"toolchain": "cuda", "toolchain_id": "nvcc13", "home": "/opt/cuda", "sources": 3}
    ]
    assert found["summary"]["cache"] == "shelf/v1/libx"
    assert found["blobs"][0]["symbols"] == ["_Z3runi", "_Z6hiddenv"]
    assert found["blobs"][0]["demangled"] == ["run(int)", "hidden()"]
    assert found["eager"][0]["reasons"][0]["text"] == f"{ReasonKind.DATA.says}: table"
    assert found["eager"][0]["reasons"][0]["advice"] == ReasonKind.DATA.advice


def test_a_library_of_3000_blobs_has_a_short_summary(lazyck: Lazyck, library: Path) -> None:
    many = tuple(replace(BLOBS[1], name=f"b{i}", symbols=(f"_Z1f{i}",)) for i in range(3000))
    library.write_bytes(encode(replace(MANIFEST, blobs=(*many, *BLOBS))))
    said = lazyck("inspect", library).stdout.splitlines()
    assert len(said) < 20
    for line in (
        "machine     x86_64",
        "archs       80 90",
        "blobs       3002 lazy with 3003 symbols, 3 eager",
        "kernels     2 of 1 source, each compiled when it is first used",
        f"eager       2 sources, each of which {ReasonKind.DATA.says}",
        f"eager       1 source {ReasonKind.INITIALIZER.says}",
        "toolchain   cuda nvcc13, home /opt/cuda: 3003 sources",
        "made by     lazyck test",
    ):
        assert line in said
    assert next(line for line in said if line.startswith("bundle")).startswith(f"bundle      {library.parent}, ")


def test_blobs_by_name_or_pattern_are_shown_in_full(lazyck: Lazyck, library: Path) -> None:
    said = lazyck("inspect", library, "--blob", "fwd_a").stdout
    for line in (
        "blob fwd_a",
        "  source    libx/tree/fwd_a.cu",
        f"  key       {'aa' * 32}",
        "  compile   nvcc -c",
        "    link    g++ -shared",
        "    archs   -arch=sm_90",
        "    by      cuda nvcc13, home /opt/cuda CUDA_HOME",
        "    env     NVCC_APPEND_FLAGS=-lineinfo",
        "  host      lazyck-unit host",
        "  device    lazyck-unit dev",
        "  symbols   2\n    run(int)\n      _Z3runi\n    hidden()\n      _Z6hiddenv",
    ):
        assert f"{line}\n" in said
    assert "fwd_b" not in said
    both = lazyck("inspect", library, "--blob", "fwd_*", "--blob", "attn.cu").stdout
    assert [line for line in both.splitlines() if not line.startswith(" ")] == [
        "blob fwd_a", "blob fwd_b", "by kernel attn",
    ]  # fmt: skip
    assert "  kernels   2\n    void K<1>(float*)\n      _Z1KILi1EEvPf\n      attn.K-01234567\n" in both
    assert lazyck("inspect", library, "--blob", "attn.K-89abcdef").stdout.startswith("kernel attn.K-89abcdef\n")
    assert lazyck("inspect", library, "--blob", "fwd_a.host").stdout == said, "a part of a blob stands for it"
    named = json.loads(lazyck("inspect", library, "--json", "--blob", "fwd_b").stdout)["blobs"]
    assert [b["name"] for b in named] == ["fwd_b"]
    unknown = lazyck("inspect", library, "--blob", "fwd_c")
    assert unknown.returncode == 1
    assert "did you mean fwd_" in unknown.stderr


def test_all_shows_every_blob_and_source_with_one_start_of_the_demangler(
    lazyck: Lazyck, library: Path, tmp_path: Path
) -> None:
    program = CountingProgram(tmp_path, "c++filt")
    said = lazyck("inspect", library, "--all", env=program.env).stdout
    heads = [line for line in said.splitlines() if line.startswith(("blob ", "by kernel ", "kernel ", "eager src"))]
    assert heads == [
        "blob fwd_a", "blob fwd_b", "by kernel attn",
        f"eager src/a.cpp {ReasonKind.DATA.says}: table", f"eager src/b.cpp {ReasonKind.DATA.says}: level",
        f"eager src/c.cpp {ReasonKind.INITIALIZER.says}: registrar at c.cpp:3",
    ]  # fmt: skip
    assert said.startswith("library     libx, ")
    assert "void K<2>(float*)" in said
    assert program.calls() == 1


def test_explain_eager_says_what_to_change(lazyck: Lazyck, library: Path) -> None:
    said = lazyck("inspect", library, "--explain-eager").stdout
    assert said.startswith(f"2 sources, each of which {ReasonKind.DATA.says}\n  {ReasonKind.DATA.advice[:40]}")
    assert "\n  in src/: a.cpp (table); b.cpp (level)\n\n1 source has code that runs" in said
    library.write_bytes(encode(replace(MANIFEST, eager=())))
    assert lazyck("inspect", library, "--explain-eager").stdout == "no source is eager: there is nothing to change\n"
    assert "--explain-eager" not in lazyck("inspect", library).stdout
