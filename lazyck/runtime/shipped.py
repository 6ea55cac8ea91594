"""Objects of the runtime and of `lazyck-unit` that the wheel for one machine contains, for
compilers that they fit.

Compiling them is what a user waits for before the first library. Whether the objects of another
compiler fit is tested, not assumed. The user's own compiler must report equal numbers for
everything in which two C++ libraries can differ (`abi/abi.cpp`). It must also link the objects to a
program, and that program must run. If any of this fails, the objects are compiled.
`scripts/wheels.py` makes such wheels.
"""

import json
import os
import platform
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from lazyck import proc
from lazyck.errors import BuildError, LazyckError
from lazyck.toolchains.base import machine_for, machine_of

if TYPE_CHECKING:  # pyelftools is imported where it is used, because most commands do not need it
    from elftools.elf.elffile import ELFFile
    from elftools.elf.sections import SymbolTableSection

DIRECTORY = Path(__file__).parent.parent / "shipped"  # one directory for each machine
TOOL = ("runtime.o", "digests.o", "tool.o")  # the objects of `lazyck-rt`
# What the stubs of a library define has another meaning in a program: nothing there uses it.
_OF_LIBRARIES = ("manifest", "manifest_end", "slots", "slot_count", "wrapped", "registering", "run_on")
TOOL_LINK_FLAGS = ("-pthread", "-ldl", "-Wl,--gc-sections", *(f"-Wl,--defsym=lazyck_{s}=main" for s in _OF_LIBRARIES))
# `lazyck-rt` itself, for machines without a compiler to link it. It brings the C++ library along.
PROGRAM = "lazyck-rt"
PROGRAM_LINK_FLAGS = (*TOOL_LINK_FLAGS, "-static-libstdc++", "-static-libgcc")
_OBJECTS = {PROGRAM: TOOL, "lazyck-unit": ("lazyck-unit.o",)}  # of each program that the objects must make
_SOURCE = Path(__file__).parent / "abi" / "abi.cpp"
_ABOUT = "about.json"


@dataclass(frozen=True)
class Abi:
    """Numbers that describe a compiler and its C++ library. `same` must be equal for users of the
    objects, and `least` must not be less."""

    same: tuple[int, ...]
    least: tuple[int, ...]

    def serves(self, made: "Abi") -> bool:
        """Return whether objects that `made` describes can be used."""
        return self.same == made.same and self.least[0] >= made.least[0] and self.least[1:] >= made.least[1:]


def abi_of(compiler: Sequence[str]) -> Abi:
    """Return the numbers of a compiler, an argv prefix. Raises `LazyckError`."""
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile
    from elftools.elf.sections import SymbolTableSection

    with tempfile.TemporaryDirectory(prefix="lazyck-abi-") as work:
        made = Path(work) / "abi.o"
        proc.check("compiling abi.cpp", [*compiler, "-std=c++17", "-O0", "-g0", "-c", str(_SOURCE), "-o", str(made)])
        try:
            with made.open("rb") as f:
                elf = ELFFile(f)
                table = elf.get_section_by_name(".symtab")
                assert isinstance(table, SymbolTableSection)
                return Abi(*(_numbers(elf, table, f"lazyck_abi_{name}") for name in ("same", "least")))
        except (ELFError, AssertionError, IndexError, OSError) as e:
            raise BuildError(f"{compiler[0]}: its object of abi.cpp cannot be read: {e}") from e


def _numbers(elf: "ELFFile", table: "SymbolTableSection", name: str) -> tuple[int, ...]:
    symbol = (table.get_symbol_by_name(name) or [])[0]
    begin = symbol["st_value"]
    data = elf.get_section(symbol["st_shndx"]).data()[begin : begin + symbol["st_size"]]
    order: Literal["little", "big"] = "little" if elf.little_endian else "big"
    return tuple(int.from_bytes(data[i : i + 8], order, signed=True) for i in range(0, len(data), 8))


def write(directory: Path, compiler: Sequence[str], objects: Mapping[str, tuple[str, Path]]) -> Abi:
    """Put objects that `compiler` made, by name with key and file, below `directory` for `find`.
    Returns the numbers that they need. Raises `LazyckError`, `OSError`."""
    abi = abi_of(compiler)
    place = directory / machine_for(compiler)
    place.mkdir(parents=True)
    for name, (_, path) in objects.items():
        shutil.copyfile(path, place / name)
    about = {"abi": asdict(abi), "keys": {name: key for name, (key, _) in sorted(objects.items())}}
    (place / _ABOUT).write_text(json.dumps(about, indent=1) + "\n")
    return abi


def find(compiler: Sequence[str], name: str, key: str) -> Path | None:
    """Return the object of that name and key if this wheel has it and it fits `compiler`."""
    place = DIRECTORY / machine_for(compiler)
    if not place.is_dir():
        return None
    keys = _fitting(tuple(compiler), place)
    return place / name if keys.get(name) == key else None


def find_program(key: str) -> Path | None:
    """Return the program `lazyck-rt` of that key for this machine if this wheel contains it."""
    place = DIRECTORY / machine_of(platform.machine())
    try:
        is_it = json.loads((place / _ABOUT).read_bytes())["keys"].get(PROGRAM) == key
    except (OSError, ValueError, KeyError):
        return None
    return place / PROGRAM if is_it else None


@lru_cache(maxsize=16)
def _fitting(compiler: tuple[str, ...], place: Path) -> dict[str, str]:
    """Return the keys of the objects in `place` by name if they fit `compiler`, else none."""
    try:
        about = json.loads((place / _ABOUT).read_bytes())
        made = Abi(*(tuple(about["abi"][part]) for part in ("same", "least")))
        if abi_of(compiler).serves(made) and _makes_a_program(compiler, place):
            return dict(about["keys"])
    except (LazyckError, OSError, ValueError, KeyError, TypeError):
        pass
    return {}


def _makes_a_program(compiler: tuple[str, ...], place: Path) -> bool:
    """Return whether the programs link and, if this machine can run them, say how to use them
    (which they throw as an exception)."""
    runs = machine_for(compiler) == machine_of(platform.machine())
    with tempfile.TemporaryDirectory(prefix="lazyck-abi-") as work:
        for name, objects in _OBJECTS.items():
            program = os.path.join(work, name)
            words = [*compiler, *(str(place / o) for o in objects), "-o", program, *TOOL_LINK_FLAGS]
            if proc.run(words).status != 0:
                return False
            if runs and not proc.run([program], timeout=20).stderr.startswith(f"usage: {name}"):
                return False
    return True
