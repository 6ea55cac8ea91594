"""Tests the stubs' assembler text by what an assembler makes of it: each stub, its slot, and the
manifest."""

import platform
import struct
import subprocess
from pathlib import Path

import pytest

from lazyck import abi
from lazyck.errors import BuildError
from lazyck.postbuild.link.stubs import render_deferred, render_note, render_stubs
from lazyck.postbuild.objects import elf
from lazyck.postbuild.objects.reveal import plain_name, private_name

HIDDEN = f"hidden{abi.PRIVATE_MARK}"
ODD = 'an "odd" \\name'
SYMBOLS = ("one", ODD, "other_one", HIDDEN)


def assembled(where: Path, text: str) -> elf.ElfImage:
    if platform.machine() != "x86_64":
        pytest.skip("needs an assembler for x86_64")
    (where / "x.s").write_text(text)
    subprocess.run(["as", "x.s", "-o", "x.o"], cwd=where, check=True)
    return elf.open_image(where / "x.o")


@pytest.fixture
def manifest(tmp_path: Path) -> str:
    path = tmp_path / "the manifest"
    path.write_bytes(b"bytes of the manifest")
    return str(path)


@pytest.fixture
def image(tmp_path: Path, manifest: str) -> elf.ElfImage:
    return assembled(
        tmp_path, render_stubs(SYMBOLS, manifest, "x86_64", {"other_one": "one"}, tag="tag", device_symbols=3)
    )


def place(image: elf.ElfImage, name: str) -> tuple[elf.Symbol, bytes]:
    """Return a symbol and the bytes that it stands for."""
    symbol = next(s for s in image.symbols() if s.name == name)
    return symbol, image.content(image.sections[symbol.section])[symbol.value : symbol.value + symbol.size]


def target(image: elf.ElfImage, section: int, at: int) -> tuple[str, int]:
    """Return where the relocation at a place leads: a symbol or section, and the addend."""
    index, addend = next((i, addend) for offset, i, addend in image.relocations(section) if offset == at)
    symbol = image.symbols()[index]
    return symbol.name or image.sections[symbol.section].name, addend


def test_each_stub_jumps_through_its_own_slot(image: elf.ElfImage) -> None:
    for slot, name in enumerate(SYMBOLS):
        if name == "other_one":
            continue
        stub, code = place(image, plain_name(name))
        assert (stub.binding, stub.type, stub.visibility == "default") == ("GLOBAL", "FUNC", name != HIDDEN)
        assert stub.value % 16 == 0
        assert code[:6] == b"\xf3\x0f\x1e\xfa\xff\x25"  # endbr64; jmp *slot(%rip)
        assert len(code) == 10
        assert target(image, stub.section, stub.value + 6) == (abi.SYMBOL_SLOTS, 8 * slot - 4)


def test_an_alias_is_another_name_of_a_stub(image: elf.ElfImage) -> None:
    one, alias = place(image, "one")[0], place(image, "other_one")[0]
    assert (alias.section, alias.value, alias.binding) == (one.section, one.value, "GLOBAL")


def test_a_private_stub_has_its_plain_name_too_which_no_other_library_sees(image: elf.ElfImage) -> None:
    private, plain = place(image, private_name("hidden", "tag"))[0], place(image, "hidden")[0]
    assert (plain.section, plain.value, plain.visibility) == (private.section, private.value, "hidden")
    assert (private.visibility, private.type) == ("default", "FUNC")


def test_each_slot_begins_at_its_own_slow_path_which_tells_its_number(image: elf.ElfImage) -> None:
    slots, content = place(image, abi.SYMBOL_SLOTS)
    assert (slots.hidden, slots.value % 64, len(content)) == (True, 0, 8 * (len(SYMBOLS) + 3))
    code = place(image, "one")[0].section
    for slot in range(len(SYMBOLS)):
        name, at = target(image, slots.section, 8 * slot)
        assert name == image.sections[code].name
        row = image.content(image.sections[code])[at : at + 16]
        assert row[:9] == b"\xf3\x0f\x1e\xfa\x68" + struct.pack("<I", slot)  # endbr64; push number
        assert row[9] == 0xE9
        assert target(image, code, at + 10) == (abi.SYMBOL_TRAMPOLINE, -4)
    assert len({target(image, slots.section, 8 * slot)[1] for slot in range(len(SYMBOLS))}) == len(SYMBOLS)
    assert len(list(image.relocations(slots.section))) == len(SYMBOLS)  # nothing stands for device code
    assert place(image, abi.SYMBOL_TRAMPOLINE)[0].hidden


def test_the_count_and_the_manifest_are_there_for_the_library_alone(image: elf.ElfImage) -> None:
    count, content = place(image, abi.SYMBOL_SLOT_COUNT)
    assert (count.hidden, content) == (True, struct.pack("<I", len(SYMBOLS) + 3))
    embedded, content = place(image, abi.SYMBOL_MANIFEST)
    assert (embedded.hidden, embedded.value, content) == (True, 0, b"bytes of the manifest")
    end = place(image, abi.SYMBOL_MANIFEST_END)[0]
    assert (end.hidden, end.section, end.value) == (True, embedded.section, len(content))
    assert image.sections[embedded.section].name == abi.MANIFEST_SECTION


def test_the_code_is_protected_and_the_stack_is_not_executable(image: elf.ElfImage) -> None:
    note = next(s for s in image.sections if s.name == ".note.gnu.property")
    assert image.content(note) == struct.pack("<3I4s4I", 4, 16, 5, b"GNU\0", 0xC0000002, 4, 3, 0)
    stack = next(s for s in image.sections if s.name == ".note.GNU-stack")
    assert stack.flags == 0


def test_a_library_without_blobs_carries_its_manifest_where_nothing_loads_it(tmp_path: Path, manifest: str) -> None:
    image = assembled(tmp_path, render_note(manifest, "x86_64"))
    section = next(s for s in image.sections if s.name == abi.MANIFEST_SECTION)
    assert (section.flags, image.content(section)) == (0, b"bytes of the manifest")
    names = {s.name for s in image.sections}
    assert {".init_array", ".note.gnu.property", ".note.GNU-stack"} <= names


def test_without_device_code_there_is_a_slot_for_each_symbol_alone(tmp_path: Path, manifest: str) -> None:
    image = assembled(tmp_path, render_stubs(["one", "two"], manifest, "x86_64"))
    assert place(image, abi.SYMBOL_SLOT_COUNT)[1] == struct.pack("<I", 2)
    assert len(place(image, abi.SYMBOL_SLOTS)[1]) == 16


def test_what_deferred_objects_ask_for_is_defined_within_the_link(tmp_path: Path) -> None:
    symbol, _ = place(assembled(tmp_path, render_deferred()), abi.DEFERRED_SYMBOL)
    assert (symbol.binding, symbol.hidden, symbol.section > 0) == ("GLOBAL", True, True)


def test_aarch64_stubs_load_their_slot_in_order_and_tell_their_number() -> None:
    text = render_stubs([f"f{i}" for i in range(65538)], "m", "aarch64")
    lines = text.split("\n")
    at = lines.index('"f1":')
    slot = f"{abi.SYMBOL_SLOTS}+8"
    assert lines[at - 2 : at + 7] == [
        ' .globl "f1"', ' .type "f1",@function', '"f1":', " hint 34", f" adrp x16,{slot}", f" add x16,x16,:lo12:{slot}",
        " ldar x16,[x16]", " br x16", ' .size "f1",20',
    ]  # fmt: skip
    rows = lines[lines.index(".Llazyck_slow:") + 2 :]
    assert rows[4 * 65537 : 4 * 65538] == [
        " hint 34", " mov w17,65537&0xffff", " movk w17,65537>>16,lsl 16", f" b {abi.SYMBOL_TRAMPOLINE}",
    ]  # fmt: skip
    assert " .long 0xc0000000,4,3,0" in lines


def test_names_that_no_assembler_line_holds_and_machines_without_stubs_are_refused() -> None:
    for name in ("a\nb", "a\0b"):
        with pytest.raises(BuildError, match="cannot be written"):
            render_stubs([name], "m", "x86_64")
    with pytest.raises(BuildError, match="no stubs for machine 'vax'") as e:
        render_stubs(["a"], "m", "vax")
    assert "aarch64, riscv64, x86_64" in e.value.hint
