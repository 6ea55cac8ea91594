"""Tests names of blobs, where files of a bundle go, and for which archs it is built."""

from __future__ import annotations

from dataclasses import replace

import pytest

from _lazyck.command import CompileCommand, Invocation
from _lazyck.manifest import Recipe
from _lazyck.postbuild.describe import kernel_name, unique_names

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
