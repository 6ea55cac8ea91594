"""Test which symbols become stubs: all that a blob would define, except those that real objects
define."""

from collections.abc import Sequence
from typing import Any

import pytest

from lazyck.postbuild import ownership
from lazyck.postbuild.probe.group import Probed
from lazyck.postbuild.reasons import Reason, ReasonKind

NONE: frozenset[str] = frozenset()


def offer(blob: Any, symbols: tuple[str, ...], weak: frozenset[str] = NONE, merged: frozenset[str] = NONE) -> Probed:
    """Return what a blob, which is known here by a name, would define."""
    return Probed(symbols, weak=weak, merged=merged, blob=blob, headers=NONE)


def assign(offers: Sequence[Probed], **names: Any) -> Any:
    return ownership.assign(offers, **names)


def test_all_that_a_needed_blob_defines_becomes_stubs() -> None:
    owned = assign([offer("a", ("f", "g", "name"))], undefined={"f", "g", "puts"}, defined=set())
    assert owned.lazy == {"a": ("f", "g", "name")}
    assert not owned.spare


def test_what_a_real_object_defines_itself_needs_no_stub() -> None:
    offers = [offer("a", ("f", "g"), merged=frozenset({"g"}))]
    assert assign(offers, undefined={"f", "g"}, defined={"g"}).lazy == {"a": ("f",)}


def test_what_a_blob_defines_only_where_it_is_needed_becomes_a_stub_only_then() -> None:
    offers = [offer("a", ("f", "inlined", "instance"), frozenset({"inlined", "instance"}))]
    owned = assign(offers, undefined={"f", "instance"}, defined=set())
    assert owned.lazy == {"a": ("f", "instance")}


@pytest.mark.parametrize("undefined", [{"f", "g"}, {"f"}, set()])
def test_blobs_that_define_one_function_are_eager(undefined: set[str]) -> None:
    """The linker says so, or takes the first one (`-z muldefs`)."""
    owned = assign([offer("a", ("f",)), offer("b", ("f", "g"))], undefined=undefined, defined=set())
    assert (owned.lazy, owned.unneeded) == ({}, dict.fromkeys("ab", Reason(ReasonKind.RIVALLED, "f")))


def test_a_blob_that_nothing_needs_is_lazy_with_all_its_functions() -> None:
    owned = assign([offer("a", ("f",)), offer("spare", ("x", "y"))], undefined={"f"}, defined=set())
    assert owned.lazy == {"a": ("f",), "spare": ("x", "y")}
    assert owned.spare == ("spare",)


def test_a_blob_that_nothing_needs_and_a_real_object_rivals_is_eager() -> None:
    owned = assign([offer("a", ("f",))], undefined=set(), defined={"f"})
    assert not owned.lazy
    assert owned.unneeded == {"a": Reason(ReasonKind.RIVALLED, "f")}


def test_a_blob_without_symbols_is_eager() -> None:
    assert assign([offer("a", ())], undefined={"f"}, defined=set()).unneeded == {"a": Reason(ReasonKind.NO_FUNCTION)}


def test_a_blob_of_inline_functions_that_nothing_needs_is_eager() -> None:
    owned = assign([offer("a", ("f",), frozenset({"f"}))], undefined=set(), defined=set())
    assert owned.unneeded == {"a": Reason(ReasonKind.UNNEEDED)}


def test_what_gives_way_to_another_definition_goes_to_the_blob_that_insists() -> None:
    offers = [offer("a", ("f", "hook"), merged=frozenset({"hook"})), offer("b", ("g", "hook"))]
    owned = assign(offers, undefined={"f", "g", "hook"}, defined=set())
    assert owned.lazy == {"a": ("f",), "b": ("g", "hook")}


def test_a_weak_definition_of_a_real_object_gives_way_to_a_blob_s_strong_one_alone() -> None:
    offers = [offer("a", ("hook",)), offer("b", ("instance",), merged=frozenset({"instance"}))]
    owned = assign(offers, undefined={"hook"}, defined={"hook", "instance"}, strong=set())
    assert owned.lazy == {"a": ("hook",)}
    assert owned.unneeded == {"b": Reason(ReasonKind.RIVALLED, "instance")}
    assert assign(offers, undefined={"hook"}, defined={"hook"}, strong={"hook"}).unneeded["a"] == Reason(
        ReasonKind.RIVALLED, "hook"
    )


def test_a_blob_of_instantiations_that_nothing_needs_is_lazy_and_exports_them() -> None:
    both = frozenset({"one", "two"})
    offers = [offer("a", ("one", "two"), merged=both), offer("b", ("two", "three"), merged=frozenset({"two", "three"}))]
    owned = assign(offers, undefined=set(), defined=set())
    assert owned.lazy == {"a": ("one", "two"), "b": ("three",)}


def test_a_symbol_that_is_named_twice_is_one_stub() -> None:
    assert assign([offer("a", ("f", "f"))], undefined={"f"}, defined=set()).lazy == {"a": ("f",)}
    assert assign([offer("a", ("f", "f"))], undefined=set(), defined=set()).lazy == {"a": ("f",)}


def test_needed_blobs_are_served_before_earlier_ones_that_nothing_needs() -> None:
    offers = [offer("spare", ("f", "g"), merged=frozenset({"f"})), offer("b", ("f", "h"), merged=frozenset({"f"}))]
    owned = assign(offers, undefined={"h"}, defined=set())
    assert owned.lazy == {"b": ("f", "h"), "spare": ("g",)}
    assert owned.spare == ("spare",)


def test_a_needed_blob_of_which_a_real_object_has_a_function_is_eager() -> None:
    owned = assign([offer("a", ("f", "g"))], undefined={"f", "g"}, defined={"g"}, strong={"g"})
    assert (owned.lazy, owned.unneeded) == ({}, {"a": Reason(ReasonKind.RIVALLED, "g")})


def test_what_gives_way_is_left_to_those_that_need_it() -> None:
    hook = frozenset({"hook"})
    offers = [offer("a", ("f", "hook"), merged=hook), offer("b", ("g", "hook"), merged=hook)]
    owned = assign(offers, undefined={"f", "g"}, defined=set())
    assert owned.lazy == {"a": ("f", "hook"), "b": ("g",)}


def test_a_spare_blob_of_inline_functions_that_are_elsewhere_is_not_needed() -> None:
    offers = [offer("a", ("f",)), offer("b", ("i", "m"), frozenset({"i"}), frozenset({"m"}))]
    assert assign(offers, undefined={"f"}, defined={"m"}).unneeded == {"b": Reason(ReasonKind.RIVALLED, "m")}
    assert offers[1].firm == frozenset()
    assert offers[0].firm == {"f"}
