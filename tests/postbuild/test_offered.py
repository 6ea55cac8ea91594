"""Tests what is read of a linked library, and that damaged ones are refused."""

import struct
import subprocess
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from lazyck.errors import FormatError
from lazyck.postbuild.objects.offered import read_offered


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    at = tmp_path_factory.mktemp("offered")
    source = """#include <stdlib.h>
    int f(void) { return 1; }
    int hidden(void) { return 2; }
    int old(void) { return atoi("3"); }
    __asm__(".symver old, g@V1");
    int fresh(void) { return 4; }
    __asm__(".symver fresh, g@@V2");
    __attribute__((constructor)) static void begin(void) {}
    """
    (at / "x.c").write_text(source)
    (at / "map").write_text("V1 { global: f; g; local: *; }; V2 { global: g; } V1;\n")
    words = "-fPIC -shared x.c -o libx.so -Wl,--version-script=map -Wl,-soname,libx.so.1 -Wl,-z,nodelete -Wl,-z,now"
    subprocess.run(["gcc", *words.split(), "-Wl,-rpath,/somewhere"], cwd=at, check=True)
    return at / "libx.so"


def test_versions_and_entries_of_a_library_are_read(library: Path) -> None:
    found = read_offered(library)
    assert found.exports.keys() == {"f@@V1", "g@V1", "g@@V2"}
    assert found.versions == {"V1", "V2"}
    assert "atoi" in found.taken and not found.taken & {"f", "g"}
    assert found.needed == ("libc.so.6",) and found.entries["SONAME"] == "libx.so.1"
    assert "/somewhere" in (found.entries.get("RUNPATH"), found.entries.get("RPATH"))
    assert "INIT_ARRAY" in found.code
    assert found.flags == {"NODELETE", "BIND_NOW"}


@pytest.mark.parametrize("field, value", [("sh_info", 0xFFFFFFFF), ("sh_link", 0), ("sh_offset", 1 << 40)])
@pytest.mark.parametrize("section", [".gnu.version_d", ".gnu.version_r", ".dynamic"])
def test_a_damaged_library_is_refused_at_once(
    library: Path, tmp_path: Path, section: str, field: str, value: int
) -> None:
    data = bytearray(library.read_bytes())
    with library.open("rb") as f:
        elf = ELFFile(f)
        at = elf["e_shoff"] + elf.get_section_index(section) * elf["e_shentsize"]
    place, form = {"sh_offset": (24, "<Q"), "sh_link": (40, "<I"), "sh_info": (44, "<I")}[field]
    struct.pack_into(form, data, at + place, value)
    damaged = tmp_path / "libx.so"
    damaged.write_bytes(data)
    if (section, field) == (".dynamic", "sh_info"):
        assert read_offered(damaged) == read_offered(library)  # it means nothing there
    else:
        with pytest.raises(FormatError, match="damaged ELF file"):
            read_offered(damaged)
