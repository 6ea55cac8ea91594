"""Tests what blobs are shown of the library's objects, and the archives that are written, with the
tools that read them."""

import subprocess
from pathlib import Path

import pytest

from lazyck.postbuild.objects import elf
from lazyck.postbuild.objects.reveal import is_artificial, is_header_state, reveal

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
STATE = {"level", "_ZN3BoxIiE5countE"}


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


def seen(image: elf.ElfImage) -> dict[str, str]:
    return {s.name: s.visibility for s in image.symbols() if s.binding != "LOCAL" and s.section}


def test_named_symbols_and_the_state_of_headers_become_protected(built: Path, tmp_path: Path) -> None:
    shown = tmp_path / "shown.o"
    assert reveal(built / "a.o", shown, {"_Z5quieti"}, {})
    found = seen(elf.open_image(shown))
    before = seen(elf.open_image(built / "a.o"))
    assert before.keys() == found.keys()
    assert {name for name in found if found[name] != before[name]} == {"_Z5quieti"} | STATE
    assert {found[name] for name in {"_Z5quieti"} | STATE} == {"protected"}
    assert found["_Z6silentv"] == "hidden"
    assert found["_Z4openi"] == "default"
    unique = {s.name: s.binding for s in elf.open_image(shown).symbols()}
    assert {unique[name] for name in STATE} == {"WEAK"}


def test_an_alias_is_a_further_exported_name_and_the_object_still_links(built: Path, tmp_path: Path) -> None:
    shown = tmp_path / "shown.o"
    aliases = {"_Z5quieti": "_Z5quieti.lazyck.1a2b3c4d", "nowhere": "x"}
    assert reveal(built / "a.o", shown, {"_Z5quieti"}, aliases)
    rows = {s.name: s for s in elf.open_image(shown).symbols()}
    plain, alias = rows["_Z5quieti"], rows["_Z5quieti.lazyck.1a2b3c4d"]
    assert (alias.section, alias.value, alias.size, alias.type) == (plain.section, plain.value, plain.size, plain.type)
    assert (alias.binding, alias.visibility, plain.visibility) == ("GLOBAL", "default", "protected")
    assert "x" not in rows
    run("g++", "-shared", shown, "-o", tmp_path / "x.so")
    exported = elf.read_shared(tmp_path / "x.so").defined
    assert {"_Z5quieti", "_Z5quieti.lazyck.1a2b3c4d", "_Z4openi"} | STATE <= exported.keys()
    assert "_Z6silentv" not in exported


def test_an_object_that_hides_nothing_of_it_is_not_copied(built: Path, tmp_path: Path) -> None:
    assert not reveal(built / "plain.o", tmp_path / "shown.o", {"plain", "_Z5quieti"}, {"plain": "x"})
    assert not (tmp_path / "shown.o").exists()


@pytest.mark.parametrize("aliases", [{}, {"_Z5quieti": "an_alias"}])
def test_members_of_an_archive_are_shown_too(built: Path, tmp_path: Path, aliases: dict[str, str]) -> None:
    shown = tmp_path / "shown.a"
    assert reveal(built / "all.a", shown, {"_Z5quieti"}, aliases)
    assert run("ar", "t", shown).split() == ["plain.o", "a.o", "a_second_member_with_a_long_name.o"]
    images = [elf.ElfImage(data, name) for name, data in elf.members(shown)]
    assert seen(images[1])["_Z5quieti"] == "protected"
    assert seen(images[0]) == {"plain": "default"}
    assert ("an_alias" in seen(images[1])) == bool(aliases)
    run("g++", "-shared", "-Wl,-u,_Z4openi,-u,other", shown, "-o", tmp_path / "x.so")  # by the table of symbols
    assert {"_Z5quieti", "_Z4openi", "other"} <= elf.read_shared(tmp_path / "x.so").defined.keys()


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
