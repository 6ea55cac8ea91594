"""One kernel against its whole file: CPU, wall and peak memory of the two, and their machine code, byte for byte.

    python benchmarks/kernels.py --work DIR [--kernels N] [--rounds N] [--only NAME]... [--all] [--json FILE]

Sources of FlashAttention and llama.cpp, as their own builds compile them (sm_90), are compiled whole, as a host unit,
and by so many of their kernels alone, in turns. `--all` takes every kernel. Needs nvcc; FlashAttention's sources want
torch's headers, which this Python must have.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from common import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "examples"))

import cuda_headers
from sources import FLASH_ATTN, LLAMA_CPP, fetch

from lazyck import abi
from lazyck.toolchains import by_name
from lazyck.units.build import build_program

ARCH = "90"
_IMAGE = bytes.fromhex("7f454c46020101")


@dataclass(frozen=True)
class Case:
    """A source and the words that its build compiles it with."""

    name: str
    directory: Path
    source: str
    words: tuple[str, ...]


@dataclass(frozen=True)
class Cost:
    """CPU and wall seconds, and the peak of the largest process in MB."""

    cpu: float
    wall: float
    peak: float


@dataclass
class Found:
    """What was measured of a case: costs of each round, and of kernels how their machine code compares."""

    name: str
    kernels: int = 0
    whole: list[Cost] = field(default_factory=list)
    host: list[Cost] = field(default_factory=list)
    one: list[Cost] = field(default_factory=list)
    code: dict[str, int] = field(default_factory=dict)
    differing: list[str] = field(default_factory=list)


def cases(work: Path, home: str) -> Iterator[Case]:
    """What is compared."""
    flash = fetch(FLASH_ATTN, work) / "csrc" / "flash_attn" / "src"
    import torch

    include = Path(torch.__file__).parent / "include"
    places = [
        REPOSITORY / "examples" / "torch_cuda" / "include",
        ".",
        "../../cutlass/include",
        include,
        include / "torch" / "csrc" / "api" / "include",
        cuda_headers.headers(work, home),
    ]
    plain = ("-std=c++17", "-O3", "--expt-relaxed-constexpr", "--expt-extended-lambda", "--use_fast_math", "-w")
    undone = tuple(f"-U__CUDA_NO_{n}__" for n in ("HALF_OPERATORS", "HALF_CONVERSIONS", "HALF2_OPERATORS"))
    words = (*plain, *undone, "-U__CUDA_NO_BFLOAT16_CONVERSIONS__", *(f"-I{p}" for p in places))
    for name in ("fwd_hdim64_fp16", "fwd_hdim128_fp16_causal", "bwd_hdim64_fp16"):
        yield Case(f"flash-attn {name}", flash, f"flash_{name}_sm80.cu", words)
    ggml = fetch(LLAMA_CPP, work) / "vendor" / "llama.cpp" / "ggml" / "src" / "ggml-cuda"
    places = [".", "..", "../../include", cuda_headers.headers(work, home)]
    words = ("-std=c++17", "-O3", "-use_fast_math", "-extended-lambda", "-w", *(f"-I{p}" for p in places))
    words += ("-DGGML_CUDA_DMMV_X=32", "-DGGML_CUDA_MMV_Y=1", "-DK_QUANTS_PER_ITERATION=2", "-DNDEBUG")
    for name in (
        "fattn-mma-f16-instance-ncols1_16-ncols2_4",
        "mmq-instance-q4_0",
        "fattn-vec-f16-instance-hs128-f16-f16",
    ):
        yield Case(f"ggml {name}", ggml, f"template-instances/{name}.cu", words)
    for name in ("norm", "cpy", "softmax"):
        yield Case(f"ggml {name}", ggml, f"{name}.cu", words)


def run(argv: Sequence[str | Path], cwd: Path) -> Cost:
    """The cost of a command. Ends the program where it fails."""
    begun = time.monotonic()
    process = subprocess.Popen([*map(str, argv)], cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, used = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(f"{' '.join(map(str, argv))}\n{said[-3000:]}")
    return Cost(used.ru_utime + used.ru_stime, time.monotonic() - begun, used.ru_maxrss / 1024)


def images(path: Path) -> Iterator[bytes]:
    """The images of machine code for NVIDIA's devices in a file."""
    data = path.read_bytes()
    at = data.find(_IMAGE)
    while at >= 0:
        if data[at + 18 : at + 20] == b"\xbe\x00":
            yield data[at:]
        at = data.find(_IMAGE, at + 1)


def code(image: bytes) -> dict[str, tuple[bytes, frozenset[int]]]:
    """Each kernel's machine code, and where in it relocations have addresses put."""
    (at,), (count, names) = struct.unpack_from("<Q", image, 40), struct.unpack_from("<2H", image, 60)
    heads = [struct.unpack_from("<IIQQQQIIQQ", image, at + 64 * i) for i in range(count)]
    texts: dict[int, str] = {}
    for i, h in enumerate(heads):
        begin = heads[names][4] + h[0]
        name = image[begin : image.index(0, begin)].decode()
        if name.startswith(".text."):
            texts[i] = name[len(".text.") :]
    places: dict[int, set[int]] = {i: set() for i in texts}
    for h in heads:
        if h[1] in (4, 9) and h[7] in texts:  # SHT_RELA, SHT_REL
            step = 24 if h[1] == 4 else 16
            places[h[7]] |= {struct.unpack_from("<Q", image, h[4] + k)[0] // 16 for k in range(0, h[5], step)}
    return {n: (image[heads[i][4] : heads[i][4] + heads[i][5]], frozenset(places[i])) for i, n in texts.items()}


def difference(unit: tuple[bytes, frozenset[int]], whole: tuple[bytes, frozenset[int]]) -> str:
    """ "" for the same bytes; "addresses" where instructions differ in nothing but where strings and variables lie, or
    in where constant bank 4 has these addresses; else "other"."""
    if unit[0] == whole[0]:
        return ""
    if len(unit[0]) != len(whole[0]):
        return "other"
    rows = [(unit[0][i : i + 16], whole[0][i : i + 16], i // 16) for i in range(0, len(unit[0]), 16)]

    def is_bank_4(row: bytes) -> bool:
        return int.from_bytes(row[4:8], "little") >> 22 == 4

    moves = any(is_bank_4(b) for _, b, _ in rows)
    for mine, theirs, i in rows:
        if mine == theirs or (i in unit[1] and i in whole[1]):
            continue
        same_rest = mine[:4] == theirs[:4] and mine[8:] == theirs[8:]
        is_move = moves and int.from_bytes(mine[:4], "little") & 0xFFF == 0x802
        if not same_rest or not (is_move or (is_bank_4(mine) and is_bank_4(theirs))):
            return "other"
    return "addresses"


def table(made: Path, objcopy: str = "objcopy") -> list[str]:
    """The lines of a host unit's kernels."""
    copied = made.with_suffix(".table")
    flags = f"{abi.KERNELS_SECTION}=alloc"
    argv = [
        objcopy,
        "-O",
        "binary",
        f"--only-section={abi.KERNELS_SECTION}",
        "--set-section-flags",
        flags,
        made,
        copied,
    ]
    subprocess.run(list(map(str, argv)), check=True)
    lines = [line.partition("\t") for line in copied.read_text(errors="surrogateescape").splitlines()]
    state = "".join(f"\t{rest}" for kind, _, rest in lines if kind == "variable")
    return [rest + state for kind, _, rest in lines if kind == "kernel"]


def measure(case: Case, program: Path, nvcc: str, work: Path, options: argparse.Namespace) -> Found:
    """Compile the case in all ways, in turns."""
    command = (nvcc, "-gencode", f"arch=compute_{ARCH},code=sm_{ARCH}", *case.words, "-c", case.source, "-o")
    out = work / "out"
    out.mkdir(parents=True, exist_ok=True)
    whole, host, unit = out / "whole.o", out / "host.o", out / "unit.so"
    found = Found(case.name)
    kernels: list[str] = []
    for number in range(options.rounds):
        found.whole.append(run([*command, whole], case.directory))
        found.host.append(run([program, "host", "x", case.source, host, "--", *command, "x.o"], case.directory))
        if number == 0:
            lines = table(host)
            found.kernels = len(lines)
            step = max(1, len(lines) // max(1, options.kernels))
            kernels = lines if options.all else lines[::step][: options.kernels]
            expected = {name: text for image in images(whole) for name, text in code(image).items()}
        for line in kernels:
            cost = run([program, "kernel", line, case.source, unit, "--", *command, "x.o"], case.directory)
            found.one.append(cost)
            if number == 0:
                symbol = line.partition("\t")[0]
                mine = {name: text for image in images(unit) for name, text in code(image).items()}
                how = difference(mine[symbol], expected[symbol]) if symbol in mine else "whole"
                found.code[how or "identical"] = found.code.get(how or "identical", 0) + 1
                if how in ("other", "whole"):
                    found.differing.append(f"{symbol}: {how}")
        report(found)
    return found


def report(found: Found) -> None:
    """A row of a table in Markdown."""

    def median(costs: Sequence[Cost], what: str) -> float:
        return statistics.median(getattr(c, what) for c in costs) if costs else 0.0

    whole, host, one = (median(c, "cpu") for c in (found.whole, found.host, found.one))
    ratio = (host / whole, one / whole, (host + one) / whole) if whole else (0.0, 0.0, 0.0)
    print(
        f"| {found.name} | {found.kernels} | {whole:.1f} | {host:.1f} ({ratio[0]:.2f}) | {one:.1f} ({ratio[1]:.2f}) | "
        f"{ratio[2]:.2f} | {median(found.whole, 'peak'):.0f} / {median(found.one, 'peak'):.0f} | {found.code} |",
        flush=True,
    )
    for line in found.differing:
        print(f"    {line[:300]}", flush=True)


def main() -> None:
    """Measure all cases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="directory for sources and what is made")
    parser.add_argument("--kernels", type=int, default=2, help="kernels of each source [2]")
    parser.add_argument("--rounds", type=int, default=1, help="how often, in turns [1]")
    parser.add_argument("--only", action="append", default=[], help="cases whose name contains this; repeatable")
    parser.add_argument("--all", action="store_true", help="every kernel of each source")
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    options = parser.parse_args()
    cuda = by_name("cuda").find(dict(os.environ))
    if cuda is None:
        sys.exit("no nvcc found")
    work = options.work.resolve()
    program = build_program(work / "programs", ("c++",))
    print("| source | kernels | whole, CPU s | host unit | kernel unit | both | peak, MB | machine code |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    chosen = [c for c in cases(work, cuda.home) if not options.only or any(o in c.name for o in options.only)]
    found = [measure(c, program, cuda.compiler[0], work, options) for c in chosen]
    if options.json:
        options.json.write_text(json.dumps([asdict(f) for f in found], indent=1) + "\n")


if __name__ == "__main__":
    main()
