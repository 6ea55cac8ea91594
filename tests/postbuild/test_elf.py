"""Test the ELF reader with the output of real compilers, assemblers and archivers."""

import struct
import subprocess
from pathlib import Path

import pytest

from lazyck import abi
from lazyck.errors import BuildError, FormatError
from lazyck.machines import MACHINES
from lazyck.postbuild.objects import elf
from lazyck.toolchains.base import machine_of

SOURCE = r"""
#include <string>
extern int elsewhere(int);
extern __attribute__((weak)) void maybe();
__attribute__((visibility("hidden"))) int quiet() { return 1; }
int counter = 0;
thread_local int each;
inline int shared_by_all() { return 2; }
static int own() { return 3; }
std::string name(int x) { if (maybe) maybe(); return std::to_string(elsewhere(x) + shared_by_all() + own()); }
"""


def run(*words: object) -> None:
    subprocess.run([str(w) for w in words], check=True)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    at = tmp_path_factory.mktemp("elf")
    (at / "a.cpp").write_text(SOURCE)
    run("g++", "-fPIC", "-c", at / "a.cpp", "-o", at / "a.o")
    (at / "second_member_with_a_long_name.cpp").write_text("int second() { return 2; }\n")
    run("g++", "-c", at / "second_member_with_a_long_name.cpp", "-o", at / "second_member_with_a_long_name.o")
    return at


def make_deferred(path: Path, source: str) -> None:
    """Write a deferred object as the shim does: an ordinary ELF object with the mark and a record
    section."""

    def string(text: str) -> bytes:
        return struct.pack("<I", len(text)) + text.encode()

    body = b"".join(map(string, ("g++", "host", "/build", source, str(path), "")))
    body += struct.pack("<I", 1) + struct.pack("<I", 1) + string("/usr/bin/g++") + struct.pack("<I", 0)
    record = abi.RECORD_MAGIC + struct.pack("<II", abi.RECORD_VERSION, 16 + len(body)) + b"COMP" + body
    raw, empty = path.with_suffix(".rec"), path.with_suffix(".c")
    raw.write_bytes(record)
    empty.write_text("")
    run("gcc", "-c", empty, "-o", path)
    run("objcopy", "--add-section", f"{abi.RECORD_SECTION}={raw}", path)
    data = bytearray(path.read_bytes())
    data[9:16] = abi.OBJECT_MARK
    path.write_bytes(data)


def test_object_lists_defined_undefined_hidden_and_data(built: Path) -> None:
    got = elf.read_object(built / "a.o")
    assert "_Z4nameB5cxx11i" in got.strong
    assert "_Z13shared_by_allv" in got.defined - got.strong
    assert not any("own" in name for name in got.defined)
    assert "_Z9elsewherei" in got.undefined and "_Z5maybev" in got.undefined
    assert got.hidden >= {"_Z5quietv"} and "_Z4nameB5cxx11i" not in got.hidden
    assert {"counter", "each"} <= got.defined - got.functions and "_Z5quietv" in got.functions
    assert not got.is_deferred and not got.is_lto


def test_object_agrees_with_nm(built: Path) -> None:
    got = elf.read_object(built / "a.o")
    listed = subprocess.run(["nm", "-P", str(built / "a.o")], capture_output=True, text=True, check=True).stdout
    rows = [line.split()[:2] for line in listed.splitlines()]
    assert got.defined == {n for n, t in rows if (t.isupper() and t != "U") or t in "u"} - {
        n for n, t in rows if t in "wv"
    }
    assert got.undefined == {n for n, t in rows if t in ("U", "w", "v")}


@pytest.mark.parametrize("flags", [["rc"], ["rcT"]], ids=["ordinary", "thin"])
def test_archive_members_are_read(built: Path, tmp_path: Path, flags: list[str]) -> None:
    (built / "note.txt").write_text("odd")
    archive = built / f"lib{flags[0]}.a"
    archive.unlink(missing_ok=True)
    run("ar", flags[0], archive, built / "a.o", built / "note.txt", built / "second_member_with_a_long_name.o")
    assert elf.kind(archive) == "archive"
    members = elf.read_archive(archive)
    assert [Path(name).name for name, _ in members] == ["a.o", "second_member_with_a_long_name.o"]
    assert members[1][1].defined == {"_Z6secondv"}


def test_shared_library_has_soname_needed_and_exports(built: Path) -> None:
    run("g++", "-shared", "-Wl,-soname,liba.so.1", built / "a.o", "-o", built / "liba.so")
    got = elf.read_shared(built / "liba.so")
    assert elf.kind(built / "liba.so") == "shared"
    assert got.soname == "liba.so.1"
    assert any(n.startswith("libstdc++") for n in got.needed)
    assert "_Z4nameB5cxx11i" in got.defined and "_Z5quietv" not in got.defined
    assert "_Z9elsewherei" in got.undefined


def test_lto_objects_are_recognised(built: Path) -> None:
    run("g++", "-flto", "-c", built / "a.cpp", "-o", built / "lto.o")
    assert elf.read_object(built / "lto.o").is_lto
    (built / "bitcode.o").write_bytes(b"BC\xc0\xde" + bytes(60))
    assert elf.kind(built / "bitcode.o") == "bitcode"
    assert elf.read_object(built / "bitcode.o").is_lto


def test_deferred_objects_give_their_records_back(built: Path) -> None:
    for name in ("one", "two"):
        make_deferred(built / f"{name}.o", f"/src/{name}.cu")
    assert elf.read_object(built / "one.o").is_deferred
    assert [c.source for c in elf.deferred_records(built / "one.o")[0]] == ["/src/one.cu"]
    archive = built / "libdeferred.a"
    archive.unlink(missing_ok=True)
    run("ar", "rc", archive, built / "one.o", built / "a.o", built / "two.o")
    assert [c.source for c in elf.deferred_records(archive)[0]] == ["/src/one.cu", "/src/two.cu"]
    assert elf.deferred_records(built / "a.o") == ([], frozenset())


def test_more_sections_than_an_elf_header_can_count(tmp_path: Path) -> None:
    count = 66_000
    lines = [f'.section .s{i},"ax"\n.globl f{i}\n.type f{i},@function\nf{i}: ret\n' for i in range(count)]
    (tmp_path / "many.s").write_text("".join(lines))
    run("as", tmp_path / "many.s", "-o", tmp_path / "many.o")
    image = elf.open_image(tmp_path / "many.o")
    names = {s.name: image.sections[s.section].name for s in image.symbols() if s.binding == "GLOBAL"}
    assert len(names) == count
    assert all(section == ".s" + name[1:] for name, section in names.items())


def test_relocations_name_their_symbols(built: Path) -> None:
    image = elf.open_image(built / "a.o")
    symbols = image.symbols()
    found = {symbols[s].name for i in range(len(image.sections)) for _, s, _ in image.relocations(i)}
    assert "_Z9elsewherei" in found


def test_section_content_or_none(built: Path) -> None:
    assert b"GCC" in (elf.read_section(built / "a.o", ".comment") or b"")
    assert elf.read_section(built / "a.o", ".nothing") is None


def test_anything_else_is_a_clear_error(tmp_path: Path) -> None:
    script = tmp_path / "libx.so"
    script.write_text("INPUT(-lm)\n")
    assert elf.kind(script) == "other"
    with pytest.raises(FormatError, match="not a 64-bit"):
        elf.read_object(script)
    with pytest.raises(BuildError, match="cannot read"):
        elf.read_object(tmp_path / "missing.o")
    damaged = tmp_path / "damaged.o"
    damaged.write_bytes(b"\x7fELF\x02\x01" + b"\xff" * 100)
    with pytest.raises(FormatError, match="damaged"):
        elf.read_object(damaged)


def test_machines_have_the_numbers_that_elf_h_gives_them() -> None:
    words = ["g++", "-E", "-dM", "-include", "elf.h", "-x", "c++", "/dev/null"]
    lines = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
    defined = {w[1]: w[2] for line in lines if len(w := line.split()) > 2}
    other_words = {"i386": "386", "riscv64": "RISCV", "s390x": "S390", "loongarch64": "LOONGARCH"}
    known = {m.name: m.number for m in MACHINES.values()} | {name: number for number, name, *_ in abi.OTHER_MACHINES}
    numbers = {name: defined.get(f"EM_{other_words.get(name, name).upper()}") for name in known}
    numbers["loongarch64"] = numbers["loongarch64"] or "258"  # an elf.h of before 2021 lacks it
    assert numbers == {name: str(number) for name, number in known.items()}
    distances = {"x86_64": "R_X86_64_PC32", "aarch64": "R_AARCH64_PREL32", "riscv64": "R_RISCV_32_PCREL"}
    assert {m.name: str(m.distance) for m in MACHINES.values()} == {m: defined[name] for m, name in distances.items()}
    assert MACHINES["riscv64"].elf_flags == int(defined["EF_RISCV_FLOAT_ABI_DOUBLE"], 0)


def test_a_triple_may_spell_its_machine_in_two_ways() -> None:
    triples = (
        "amd64-pc-linux",
        "x86_64-linux-gnu",
        "arm64-linux",
        "aarch64-linux-gnu",
        "riscv64-linux-gnu",
        "i386-linux",
    )
    machines = ["x86_64", "x86_64", "aarch64", "aarch64", "riscv64", "i386"]
    assert [machine_of(t) for t in triples] == machines


def test_local_and_unnamed_and_indirect_symbols(tmp_path: Path) -> None:
    (tmp_path / "x.s").write_text(
        ".text\n.globl indirect\n.type indirect,@gnu_indirect_function\nindirect: ret\n"
        ".globl odd\n.type odd,@notype\nodd: ret\nown: ret\n.globl thread\n.type thread,@tls_object\n"
        '.section .tbss,"awT",@nobits\nthread: .zero 4\n.comm common,4,4\n.globl far\n'
    )
    run("as", tmp_path / "x.s", "-o", tmp_path / "x.o")
    found = elf.read_object(tmp_path / "x.o")
    assert found.defined == found.strong == {"indirect", "odd", "thread", "common"}
    assert found.functions == {"indirect"}
    types = {s.name: s.type for s in elf.open_image(tmp_path / "x.o").symbols()}
    assert (types["odd"], types["indirect"], types["thread"]) == ("NOTYPE", "IFUNC", "TLS")
    run("g++", "-shared", tmp_path / "x.o", "-o", tmp_path / "x.so")
    shared = elf.read_shared(tmp_path / "x.so")
    assert not {"", "own"} & shared.defined.keys()
    assert {"indirect", "odd", "common"} <= shared.defined.keys()
    assert "" not in shared.undefined


def test_a_version_that_no_new_link_takes_is_nothing_that_a_link_finds(tmp_path: Path) -> None:
    text = 'int old() { return 1; }\n__asm__(".symver old, f@OLD");\nint g() { return 2; }\nint new_h() { return 3; }\n'
    text += 'int old_h() { return 4; }\n__asm__(".symver old_h, h@OLD\\n.symver new_h, h@@NEW");\n'
    (tmp_path / "a.c").write_text(text)
    (tmp_path / "map").write_text("OLD { local: old; };\nNEW { global: g; } OLD;\n")
    words = ["gcc", "-shared", "-fPIC", "a.c", "-o", "liba.so", "-Wl,--version-script=map"]
    subprocess.run(words, cwd=tmp_path, check=True)
    found = elf.read_shared(tmp_path / "liba.so")
    assert {"f", "g", "h"} <= found.defined.keys()
    assert "f" not in found.linkable and {"g", "h"} <= found.linkable
