"""Which symbols become stubs: what real objects leave undefined, and what they do not know at all."""

from __future__ import annotations

from lazyck.postbuild.ownership import assign


def test_only_what_real_objects_leave_undefined_becomes_a_stub_of_a_needed_blob() -> None:
    owned = assign([("a", ("f", "g", "name"))], undefined={"f", "g", "puts"}, defined=set())
    assert owned.lazy == {"a": ("f", "g")}
    assert not owned.spare


def test_what_a_real_object_defines_itself_needs_no_stub() -> None:
    owned = assign([("a", ("f", "g"))], undefined={"f", "g"}, defined={"g"})
    assert owned.lazy == {"a": ("f",)}


def test_first_blob_in_link_order_has_a_symbol_and_the_second_is_reported() -> None:
    owned = assign([("a", ("f",)), ("b", ("f", "g"))], undefined={"f", "g"}, defined=set())
    assert owned.lazy == {"a": ("f",), "b": ("g",)}
    assert owned.doubles == (("f", "b"),)


def test_a_blob_that_nothing_needs_is_lazy_with_all_its_functions() -> None:
    owned = assign([("a", ("f",)), ("spare", ("x", "y"))], undefined={"f"}, defined=set())
    assert owned.lazy == {"a": ("f",), "spare": ("x", "y")}
    assert owned.spare == ("spare",)


def test_a_blob_that_nothing_needs_and_a_real_object_rivals_is_eager() -> None:
    owned = assign([("a", ("f",))], undefined=set(), defined={"f"})
    assert not owned.lazy
    assert owned.unneeded == ("a",)


def test_a_blob_without_symbols_is_eager() -> None:
    assert assign([("a", ())], undefined={"f"}, defined=set()).unneeded == ("a",)
