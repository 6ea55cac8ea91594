"""One kernel against its whole file: CPU, wall and peak memory of the two, and their machine code, byte for byte.

    python benchmarks/kernels.py --work DIR [--kernels N] [--rounds N] [--only NAME]... [--all NAME]... [--json FILE]

Sources of llama.cpp, GPTQModel (Marlin), NATTEN and FlashAttention, as their own builds compile them (sm_90; images not
compressed), are compiled whole, as a host unit, and by so many of their kernels alone, in turns. `--all` takes every
kernel of the cases whose name contains NAME. Needs nvcc; all but llama.cpp's want torch's headers, which this Python
must have.
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
from sources import FLASH_ATTN, LLAMA_CPP, Source, fetch

from lazyck import abi
from lazyck.toolchains import by_name
from lazyck.units.build import build_program

ARCH = "90"
GPTQMODEL = Source(
    "gptqmodel==7.7.0",
    "gptqmodel-7.7.0.tar.gz",
    "039874c39fb56ba75b750dd4870968e7fe83b6ca28890a53e94ad3c46be699d0",
)
NATTEN = Source(
    "natten==0.21.7",
    "natten-0.21.7.tar.gz",
    "8417236b74db079b2d23899ec8f77514fb2dc73d4bbd6b346a45b6967fc05ffb",
)
# Bytes with which each block's shared memory begins since sm_90. A kernel's section counts them, if there is one: where
# the kernel has shared memory, or any kernel of the file an array of it without a size.
_RESERVED = 1024
_REGISTER_COUNT = 0x2F
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
    ggml = fetch(LLAMA_CPP, work) / "vendor" / "llama.cpp" / "ggml" / "src" / "ggml-cuda"
    places = [".", "..", "../../include", cuda_headers.headers(work, home)]
    words = ("-std=c++17", "-O3", "-use_fast_math", "-extended-lambda", "-w", *(f"-I{p}" for p in places))
    words += ("-DGGML_CUDA_DMMV_X=32", "-DGGML_CUDA_MMV_Y=1", "-DK_QUANTS_PER_ITERATION=2", "-DNDEBUG")
    for name in (
        "fattn-mma-f16-instance-ncols1_16-ncols2_4",
        "mmq-instance-q4_0",
        "fattn-vec-f16-instance-hs128-f16-f16",
    ):
        yield Case(f"llama.cpp {name}", ggml, f"template-instances/{name}.cu", words)
    for name in ("norm", "cpy", "softmax"):
        yield Case(f"llama.cpp {name}", ggml, f"{name}.cu", words)
    import torch

    include = Path(torch.__file__).parent / "include"
    torch_places = [
        REPOSITORY / "examples" / "torch_cuda" / "include",
        ".",
        include,
        include / "torch" / "csrc" / "api" / "include",
        cuda_headers.headers(work, home),
    ]
    undone = [f"-U__CUDA_NO_{n}__" for n in ("HALF_OPERATORS", "HALF_CONVERSIONS", "HALF2_OPERATORS")]
    of_torch = ("-O3", "--expt-relaxed-constexpr", *undone, "-U__CUDA_NO_BFLOAT16_CONVERSIONS__", "-w")
    of_torch += (*(f"-I{p}" for p in torch_places),)
    marlin = fetch(GPTQMODEL, work) / "gptqmodel_ext" / "marlin"
    words = ("-static-global-template-stub=false", "-std=c++20", *of_torch, "-DENABLE_BF16", "-Xptxas", "-O3,-dlcm=ca")
    yield Case("GPTQModel kernel_bf16_ku8", marlin, "kernel_bf16_ku8.cu", (*words, "-lineinfo"))
    natten = fetch(NATTEN, work)
    if not (natten / "csrc" / "autogen").is_dir():
        argv = [sys.executable, "scripts/autogen_fna.py", "--num-splits", "64", "-o", "csrc"]  # as its setup.py does
        subprocess.run(argv, cwd=natten, check=True)
    places = [natten / "csrc" / "include", natten / "csrc" / "autogen" / "include"]
    places += [natten / "third_party" / "cutlass" / "include"]
    words = ("-std=c++20", *of_torch, "--use_fast_math", "--extended-lambda", "-DNDEBUG", "-DNATTEN_WITH_CUTLASS")
    words += ("-Xcompiler=-fno-strict-aliasing", *(f"-I{p}" for p in places))
    yield Case("NATTEN fna/source_3", natten / "csrc", "autogen/src/cuda/fna/source_3.cu", words)
    flash = fetch(FLASH_ATTN, work) / "csrc" / "flash_attn" / "src"
    words = ("-std=c++17", *of_torch, "--expt-extended-lambda", "--use_fast_math", "-I../../cutlass/include")
    for name in ("fwd_hdim64_fp16", "fwd_hdim128_fp16_causal", "bwd_hdim64_fp16"):
        yield Case(f"flash-attn {name}", flash, f"flash_{name}_sm80.cu", words)


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


@dataclass(frozen=True)
class Code:
    """A kernel's machine code; the numbers of the instructions into which relocations have addresses put; registers,
    constants, and bytes of shared memory."""

    text: bytes
    places: frozenset[int]
    needs: tuple[int, bytes, int]


def code(image: bytes) -> dict[str, Code]:
    """Each kernel's code."""
    (at,), (count, names) = struct.unpack_from("<Q", image, 40), struct.unpack_from("<2H", image, 60)
    heads = [struct.unpack_from("<IIQQQQIIQQ", image, at + 64 * i) for i in range(count)]
    texts: dict[int, str] = {}
    others: dict[str, int] = {}
    for i, h in enumerate(heads):
        begin = heads[names][4] + h[0]
        name = image[begin : image.index(0, begin)].decode()
        others[name] = i
        if name.startswith(".text."):
            texts[i] = name[len(".text.") :]
    places: dict[int, set[int]] = {i: set() for i in texts}
    for h in heads:
        if h[1] in (4, 9) and h[7] in texts:  # SHT_RELA, SHT_REL
            step = 24 if h[1] == 4 else 16
            places[h[7]] |= {struct.unpack_from("<Q", image, h[4] + k)[0] // 16 for k in range(0, h[5], step)}

    def content(i: int) -> bytes:
        return image[heads[i][4] : heads[i][4] + heads[i][5]]

    found = {}
    counts = registers(content(others[".nv.info"])) if ".nv.info" in others else {}
    numbers = symbols(content(others[".symtab"]), content(others[".strtab"]))
    for i, n in texts.items():
        constants = content(others[f".nv.constant2.{n}"]) if f".nv.constant2.{n}" in others else b""
        shared = heads[others[f".nv.shared.{n}"]][5] - _RESERVED if f".nv.shared.{n}" in others else 0
        found[n] = Code(content(i), frozenset(places[i]), (counts.get(numbers.get(n, 0), 0), constants, shared))
    return found


def symbols(table: bytes, names: bytes) -> dict[str, int]:
    """The numbers of an image's symbols."""
    begins = (struct.unpack_from("<I", table, at)[0] for at in range(0, len(table), 24))
    return {names[b : names.index(0, b)].decode(): number for number, b in enumerate(begins)}


def registers(notes: bytes) -> dict[int, int]:
    """How many registers each kernel takes, by its symbol's number: of what `.nv.info` says of all kernels."""
    found = {}
    at = 0
    while at + 4 <= len(notes):
        form, attribute, size = struct.unpack_from("<BBH", notes, at)
        at += 4
        if form == 4:
            if attribute == _REGISTER_COUNT:
                number, count = struct.unpack_from("<II", notes, at)
                found[number] = count
            at += size
    return found


def difference(unit: Code, whole: Code) -> str:
    """ "" for the same bytes; "addresses" where instructions differ in nothing but where strings and variables lie, or
    in where constant bank 4 has these addresses; else "other"."""
    if unit.needs != whole.needs or len(unit.text) != len(whole.text):
        return "other"
    if unit.text == whole.text:
        return ""
    rows = [(unit.text[i : i + 16], whole.text[i : i + 16], i // 16) for i in range(0, len(unit.text), 16)]

    def is_bank_4(row: bytes) -> bool:
        return int.from_bytes(row[4:8], "little") >> 22 == 4

    moves = any(is_bank_4(b) for _, b, _ in rows)
    for mine, theirs, i in rows:
        if mine == theirs or (i in unit.places and i in whole.places):
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
    gencode = ("-gencode", f"arch=compute_{ARCH},code=sm_{ARCH}", "-no-compress")  # large images are, by nvcc itself
    command = (nvcc, *gencode, *case.words, "-c", case.source, "-o")
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
            takes_all = any(name in case.name for name in options.all)
            kernels = lines if takes_all else lines[::step][: options.kernels]
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
    parser.add_argument("--all", action="append", default=[], help="every kernel of such cases; repeatable")
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
