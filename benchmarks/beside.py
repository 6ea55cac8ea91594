"""Compare two ways to compile a HIP blob whole: in clang's order, and host and device code at once.

    python benchmarks/beside.py --work DIR --hip DIR [--rounds N] [--only NAME]...

The sources and the contents of `--hip` are those of benchmarks/kernels.py. Each source is compiled
both ways in turns. The ratios are those of the medians. The sections of code and constants of both
objects are compared.
"""

import argparse
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from common import number
from elftools.elf.elffile import ELFFile
from kernels import Case, Cost, hip_cases, run

from lazyck.units.program import build_program

HEADS = ("source", "in clang's order, wall s", "at the same time, of the wall", "of the CPU", "code and constants")
OBJECT = "blob.o"
# The sections that differ between two compiles: the tables of names, and the name that marks each
# compile.
DIFFERS = (".symtab", ".strtab", ".shstrtab", ".llvm_addrsig", ".dynsym", ".dynstr", ".gnu.hash", ".hash", ".note")


def contents(made: Path) -> dict[str, bytes]:
    """Return the sections of an object and of the code objects in it, without those in
    `DIFFERS`."""
    data = made.read_bytes()
    found: dict[str, bytes] = {}
    at = 0
    while at >= 0:
        part = made.with_suffix(".part")
        part.write_bytes(data[at:])
        with part.open("rb") as f:
            for i, section in enumerate(ELFFile(f).iter_sections()):
                if section["sh_type"] != "SHT_NOBITS" and section.name not in (*DIFFERS, ".hip_fatbin"):
                    found[f"{at != 0} {len(found)} {i} {section.name}"] = section.data()
        at = data.find(b"\x7fELF", at + 4)
    return found


def measure(case: Case, program: Path, out: Path, rounds: int) -> str:
    """Measure one case; return its row of the table."""
    compile_all = (*case.command, "-c", case.source, "-o", str(out / OBJECT))
    beside = (str(program), "hip-object", "-", case.source, str(out / "beside.o"), "--", *compile_all)
    costs: dict[str, list[Cost]] = {"after": [], "beside": []}
    ways: dict[str, Sequence[str]] = {"after": compile_all, "beside": beside}
    for _ in range(rounds):
        for name, argv in ways.items():
            costs[name].append(run(argv, case.directory))
    after, at_once = contents(out / OBJECT), contents(out / "beside.o")
    differing = sorted({name for name in after.keys() | at_once.keys() if after.get(name) != at_once.get(name)})
    wall = {name: statistics.median(c.wall for c in all_of) for name, all_of in costs.items()}
    cpu = {name: statistics.median(c.cpu for c in all_of) for name, all_of in costs.items()}
    cells = [case.name, number(wall["after"]), f"{wall['beside'] / wall['after']:.2f}"]
    cells += [f"{cpu['beside'] / cpu['after']:.2f}", f"differ: {differing[:3]}" if differing else "identical"]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Measure all cases; exit with status 1 if an object differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="directory for sources and what is made")
    parser.add_argument("--hip", type=Path, required=True, metavar="DIR", help="has HIP's headers in DIR/include")
    parser.add_argument("--rounds", type=int, default=3, help="how often, in turns [3]")
    parser.add_argument("--only", action="append", default=[], help="cases whose name contains this; repeatable")
    options = parser.parse_args()
    work = options.work.resolve()
    program = build_program(work / "programs", ("c++",))
    print(f"| {' | '.join(HEADS)} |\n{'|---' * len(HEADS)}|", flush=True)
    differ = False
    with tempfile.TemporaryDirectory(dir=work) as out:
        for case in hip_cases(work, options.hip.resolve()):
            if not options.only or any(o in case.name for o in options.only):
                row = measure(case, program, Path(out), options.rounds)
                differ |= "differ" in row
                print(row, flush=True)
    sys.exit(differ)


if __name__ == "__main__":
    main()
