"""Tests what blobs are shown of the library's objects, and the archives that are written, with the
tools that read them."""

import subprocess
from pathlib import Path

import pytest

from lazyck.postbuild.objects import elf
from lazyck.postbuild.objects.reveal import is_artificial, is_header_state, offer

SOURCE = """
int quiet(int x) { return x + 1; }
int silent() { return 2; }
inline int level = 3;
template <typename T> struct Box { static int count; };
template <typename T> int Box<T>::count = 4;
struct Base { virtual int f() { return 5; } };
__attribute__((visibility("default"))) int open(int x) {
  Base b;
  Base* p = &b;
  return quiet(x) + level + Box<int>::count + p->f();
}
"""


def run(*words: object) -> str:
    return subprocess.run([str(w) for w in words], check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    at = tmp_path_factory.mktemp("reveal")
    (at / "a.cpp").write_text(SOURCE)
    (at / "plain.c").write_text("int plain(void) { return 1; }\n")
    (at / "a_second_member_with_a_long_name.c").write_text("int other(void) { return 12; }\n")
    run("g++", "-std=c++17", "-fPIC", "-fvisibility=hidden", "-c", at / "a.cpp", "-o", at / "a.o")
    for name in ("plain", "a_second_member_with_a_long_name"):
        run("gcc", "-fPIC", "-c", at / f"{name}.c", "-o", at / f"{name}.o")
    run("ar", "rcs", at / "all.a", at / "plain.o", at / "a.o", at / "a_second_member_with_a_long_name.o")
    return at


def test_a_private_name_is_a_further_exported_name_and_the_plain_one_stays_hidden(built: Path, tmp_path: Path) -> None:
    shown = tmp_path / "shown.o"
    names = {"_Z5quieti": "lazyck.1", "level": "lazyck.2", "nowhere": "lazyck.3"}
    assert offer(built / "a.o", shown, names)
    rows, before = ({s.name: s for s in elf.open_image(at).symbols()} for at in (shown, built / "a.o"))
    assert {name: rows[name] for name in before} == before
    plain, private = rows["_Z5quieti"], rows["lazyck.1"]
    assert private[2:6] == plain[2:6]
    assert (private.binding, private.visibility, plain.visibility) == ("GLOBAL", "default", "hidden")
    assert (rows["lazyck.2"].binding, rows["lazyck.2"].type) == ("WEAK", "OBJECT")
    assert "lazyck.3" not in rows
    run("g++", "-shared", shown, "-o", tmp_path / "x.so")
    assert elf.read_shared(tmp_path / "x.so").defined.keys() == {"lazyck.1", "lazyck.2", "_Z4openi"}


def test_an_object_that_offers_nothing_is_not_copied(built: Path, tmp_path: Path) -> None:
    assert not offer(built / "plain.o", tmp_path / "shown.o", {"_Z5quieti": "x"})
    assert not (tmp_path / "shown.o").exists()


def test_what_is_unique_in_its_process_has_an_ordinary_weak_private_name(tmp_path: Path) -> None:
    (tmp_path / "u.cpp").write_text("inline int level = 3; int* f() { return &level; }\n")
    run("g++", "-std=c++17", "-fPIC", "-c", tmp_path / "u.cpp", "-o", tmp_path / "u.o")
    assert offer(tmp_path / "u.o", tmp_path / "shown.o", {"level": "lazyck.1"})
    rows = {s.name: s.binding for s in elf.open_image(tmp_path / "shown.o").symbols()}
    assert (rows["level"], rows["lazyck.1"]) == ("UNIQUE", "WEAK")


@pytest.mark.parametrize("is_excluded", [False, True])
def test_members_of_an_archive_offer_too_and_of_an_excluded_one_nothing_else_is_seen(
    built: Path, tmp_path: Path, is_excluded: bool
) -> None:
    shown = tmp_path / "shown.a"
    assert offer(built / "all.a", shown, {"_Z5quieti": "lazyck.1"}, is_excluded=is_excluded)
    assert run("ar", "t", shown).split() == ["plain.o", "a.o", "a_second_member_with_a_long_name.o"]
    run("g++", "-shared", "-Wl,-u,_Z4openi,-u,other", shown, "-o", tmp_path / "x.so")  # by the table of symbols
    seen = {"lazyck.1"} if is_excluded else {"lazyck.1", "_Z4openi", "other"}
    assert elf.read_shared(tmp_path / "x.so").defined.keys() == seen


def test_an_archive_that_is_written_is_one_for_every_tool(built: Path, tmp_path: Path) -> None:
    content = [("plain.o", (built / "plain.o").read_bytes()), ("odd", (built / "a.o").read_bytes() + b"x")]
    elf.write_archive(tmp_path / "x.a", [(f"dir/{name}", data) for name, data in content])
    assert run("ar", "t", tmp_path / "x.a").split() == ["plain.o", "odd"]
    assert list(elf.members(tmp_path / "x.a")) == content
    index = run("nm", "-s", tmp_path / "x.a").partition("Archive index:\n")[2].partition("\n\n")[0].splitlines()
    assert "plain in plain.o" in index
    assert "_Z4openi in odd" in index


def test_type_information_is_no_state() -> None:
    assert all(
        map(is_artificial, ("_ZTV1A", "_ZTI1A", "_ZTS1A", "_ZTT1A", "_ZTCN1A1BE", "DW.ref.__gxx_personality_v0"))
    )
    assert not is_artificial("_ZN1A1fE")

    def symbol(name: str = "level", binding: str = "WEAK", kind: str = "OBJECT") -> elf.Symbol:
        return elf.Symbol(name, binding, kind, 1, 0, 4, "hidden")

    assert is_header_state(symbol())
    assert is_header_state(symbol(binding="UNIQUE", kind="TLS"))
    assert not is_header_state(symbol(binding="GLOBAL"))
    assert not is_header_state(symbol(kind="FUNC"))
    assert not is_header_state(symbol(name="_ZTV1A"))
