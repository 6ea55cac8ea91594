"""Measure what text keys save between two releases: same kernel text, different source key.

    python benchmarks/text_keys.py --work DIR [--only NAME]... [--sources N] [--kernels N]
        [--torch OLD NEW]

The pairs are releases on PyPI of llama.cpp (in llama-cpp-python) and of FlashAttention. With
`--torch`, two directories with torch's headers, FlashAttention is also compared between the two. At
most `--sources` sources are taken.

For each source the table says whether everything that its compile reads is the same; then its
source key is the same, and nothing is compiled. It says for how many of the first `--kernels`
kernels the text is the same. It gives CPU seconds of these kernels: all of their compiles, and what
text keys save of them. This needs nvcc, and torch's headers for FlashAttention. As a part of
benchmarks/run.py it compares six sources of llama.cpp.
"""

import argparse
import dataclasses
import hashlib
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from common import REPOSITORY, Benchmark
from common import Row as Claim

sys.path.insert(0, str(REPOSITORY / "examples"))

import cuda_headers
from kernels import ARCH, Case, table
from kernels import run as run_command
from sources import Source, fetch

from lazyck.toolchains import by_name
from lazyck.units.program import build_program

LLAMA_CPP = (
    Source(
        "llama-cpp-python==0.3.35",
        "llama_cpp_python-0.3.35.tar.gz",
        "1139dbb54509074b70893fab8554e3b079aa9f4d312058ce4018ef0019e3de12",
    ),
    Source(
        "llama-cpp-python==0.3.36",
        "llama_cpp_python-0.3.36.tar.gz",
        "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e",
    ),
)
FLASH_ATTN = (
    Source(
        "flash-attn==2.8.2",
        "flash_attn-2.8.2.tar.gz",
        "740a5370f406cbe16155cc6d078ec543a97a137501f32cba89198295e6b80e54",
    ),
    Source(
        "flash-attn==2.8.3",
        "flash_attn-2.8.3.tar.gz",
        "1e71dd64a9e0280e0447b8a0c2541bad4bf6ac65bdeaa2f90e51a9e57de0370d",
    ),
)
FLASH_SOURCES = ("flash_fwd_hdim64_fp16_sm80.cu", "flash_bwd_hdim64_fp16_sm80.cu")


@dataclass(frozen=True)
class Pair:
    """Holds one source in two releases."""

    project: str
    before: Case
    after: Case


@dataclass
class Row:
    """Holds what was found of a pair; times are CPU seconds."""

    is_same_source: bool
    kernels: int = 0
    same_text: int = 0
    whole: float = 0
    saved: float = 0


def pairs(work: Path, sources: int, torch: Sequence[Path] | None) -> Iterator[Pair]:
    """Yield the pairs that are compared."""
    cuda = by_name("cuda").find(dict(os.environ))
    if cuda is None:
        sys.exit("no nvcc found")
    more = cuda_headers.headers(work, cuda.home)
    nvcc = (cuda.compiler[0], "-gencode", f"arch=compute_{ARCH},code=sm_{ARCH}", "-w", "-O3", "-std=c++20")
    trees = [fetch(s, work) / "vendor" / "llama.cpp" / "ggml" / "src" / "ggml-cuda" for s in LLAMA_CPP]
    words: tuple[str, ...] = (
        *nvcc,
        "-use_fast_math",
        "-extended-lambda",
        "-I.",
        "-I..",
        "-I../../include",
        f"-I{more}",
        "-DNDEBUG",
    )
    names = sorted({p.name for p in trees[0].glob("*.cu")} & {p.name for p in trees[1].glob("*.cu")})
    for name in names[:: max(1, len(names) // sources)][:sources]:
        yield Pair("llama.cpp", *(Case(name, tree, name, words) for tree in trees))
    words = (*nvcc, "--expt-relaxed-constexpr", "--expt-extended-lambda", "--use_fast_math", "-I../../cutlass/include")
    words += tuple(f"-U__CUDA_NO_{n}__" for n in ("HALF_OPERATORS", "HALF_CONVERSIONS", "HALF2_OPERATORS"))
    words += ("-U__CUDA_NO_BFLOAT16_CONVERSIONS__",)
    if not torch:
        return

    def of_torch(include: Path) -> tuple[str, ...]:
        return tuple(f"-I{p}" for p in (include, include / "torch" / "csrc" / "api" / "include", more))

    trees = [fetch(s, work) / "csrc" / "flash_attn" / "src" for s in FLASH_ATTN]
    old, new = (p.resolve() for p in torch)
    for name in FLASH_SOURCES:
        yield Pair("FlashAttention", *(Case(name, tree, name, (*words, *of_torch(new))) for tree in trees))
        yield Pair("torch", *(Case(name, trees[1], name, (*words, *of_torch(headers))) for headers in (old, new)))


def ask(case: Case, program: Path, line: str, out: Path, answer: bytes) -> tuple[str, float]:
    """Return (digest of the kernel's text, CPU seconds). With the answer `y`, the seconds are only
    those to find the digest."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    unit = out / "unit.so"
    argv = [program, "kernel", line, case.source, unit, "--", *case.command, "-c", case.source, "-o", "x.o"]
    env = {**os.environ, "LAZYCK_UNIT_ASKS": "1"}
    process = subprocess.Popen(
        [*map(str, argv)], cwd=case.directory, env=env, stdin=theirs.fileno(), stderr=subprocess.DEVNULL
    )
    theirs.close()
    text = b""
    while ours.recv(64):
        text = unit.with_name("unit.so.text").read_bytes()
        ours.send(answer)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = status
    if status != 0:
        sys.exit(f"failed: {argv}")
    return hashlib.sha256(text).hexdigest(), used.ru_utime + used.ru_stime


def host_unit(case: Case, program: Path, out: Path) -> tuple[dict[str, str], str]:
    """Return (lines of the table by kernel, digest of the contents of all files that were read)."""
    made = out / "host.o"
    compiles: list[str | Path] = [case.source, made, "--", *case.command, "-c", case.source, "-o", "x.o"]
    run_command([program, "host", "x", *compiles], case.directory)
    lines = {line.partition("\t")[0]: line for line in table(made)}
    files = [f.partition("\t")[2] for f in (out / "host.table").read_text().splitlines() if f.startswith("file\t")]
    contents = sorted(hashlib.sha256((case.directory / f).read_bytes()).hexdigest() for f in files)
    return lines, hashlib.sha256("".join(contents).encode()).hexdigest()


def measure(pair: Pair, program: Path, out: Path, most: int) -> Row:
    """Compare one source of a pair; take at most `most` kernels."""
    before, contents_before = host_unit(pair.before, program, out)
    after, contents_after = host_unit(pair.after, program, out)
    row = Row(contents_before == contents_after)
    for symbol in list(after)[:most]:
        row.kernels += 1
        text, whole = ask(pair.after, program, after[symbol], out, b"n")
        row.whole += whole
        if symbol in before and ask(pair.before, program, before[symbol], out, b"y")[0] == text:
            row.same_text += 1
            row.saved += whole - ask(pair.after, program, after[symbol], out, b"y")[1]
    return row


def sum_of(rows: Sequence[Row]) -> Row:
    """Return the sums of all rows; whether sources are the same is not summed up."""
    total = Row(False)
    for row in rows:
        for field in dataclasses.fields(Row)[1:]:
            setattr(total, field.name, getattr(total, field.name) + getattr(row, field.name))
    return total


def show(name: str, rows: Sequence[Row]) -> None:
    """Print a row of the table in Markdown that sums up `rows`."""
    total = sum_of(rows)
    same = sum(r.is_same_source for r in rows)
    print(
        f"| {name} | {len(rows)} | {same} | {total.same_text} of {total.kernels} | {total.whole:.1f} | "
        f"{total.saved:.1f} ({total.saved / (total.whole or 1):.2f}) |",
        flush=True,
    )


def main() -> None:
    """Measure, and print a row for each source and a sum for each project."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="directory for sources and what is made")
    parser.add_argument("--only", action="append", default=[], help="projects whose name contains this; repeatable")
    parser.add_argument("--sources", type=int, default=12, help="of llama.cpp [12]")
    parser.add_argument("--kernels", type=int, default=4, help="kernels of each source [4]")
    parser.add_argument("--torch", type=Path, nargs=2, metavar="DIR", help="torch's headers, of two versions")
    options = parser.parse_args()
    options.work = options.work.resolve()
    program = build_program(options.work / "programs", ("c++",))
    out = options.work / "text-keys"
    out.mkdir(exist_ok=True)
    heads = ["source", "sources", "the same by source key", "the same by text", "CPU s of these kernels", "saved"]
    print(f"| {' | '.join(heads)} |\n{'|---' * len(heads)}|", flush=True)
    found: dict[str, list[Row]] = {}
    for pair in pairs(options.work, options.sources, options.torch):
        if options.only and not any(o in pair.project for o in options.only):
            continue
        row = measure(pair, program, out, options.kernels)
        show(f"{pair.project} `{pair.after.source}`", [row])
        found.setdefault(pair.project, []).append(row)
    for project, rows in found.items():
        show(f"**{project}**", rows)


def claims(quick: bool) -> list[Claim]:
    """Measure how many of llama.cpp's kernels a release leaves unchanged, and what that saves of
    their CPU time."""
    with tempfile.TemporaryDirectory(prefix="lazyck-texts-") as name:
        work = Path(name)
        program, out = build_program(work / "programs", ("c++",)), work / "out"
        out.mkdir()
        rows = [measure(pair, program, out, 1 if quick else 2) for pair in pairs(work, 2 if quick else 6, None)]
    total = sum_of(rows)
    return [
        Claim(
            "text-keys",
            "kernels of llama.cpp that its next release does not compile again, although a header that all sources "
            "include has changed",
            100 * total.same_text / total.kernels,
            "%",
            0 if quick else 40,
            f"source digests alone: {100 * sum(r.is_same_source for r in rows) / len(rows):.0f} % of the sources",
            f"{total.same_text} of {total.kernels} kernels in {len(rows)} sources; this saves {total.saved:.1f} of "
            f"{total.whole:.1f} CPU seconds",
            is_floor=True,
        )
    ]


BENCHMARK = Benchmark("text_keys", claims, lambda: "" if by_name("cuda").find(dict(os.environ)) else "no nvcc found")

if __name__ == "__main__":
    main()
