"""Compare one kernel with its whole file: CPU, wall and peak memory, and their machine code.

    python benchmarks/kernels.py --work DIR [--hip DIR] [--kernels N] [--rounds N] [--only NAME]...
        [--all NAME]... [--json FILE]

The sources are those of llama.cpp, GPTQModel (Marlin), NATTEN and FlashAttention, with the commands
of their own builds (sm_90; images not compressed). Each is compiled in turns: whole, as the host
unit of a blob, and by some of its kernels alone. In each round the host unit and a kernel are
compiled side by side, as where a profile names the kernel. The machine code is compared byte for
byte. `--all` takes every kernel of the cases whose name contains NAME. This needs nvcc; all but
llama.cpp's sources need torch's headers, which this Python must have.

With `--hip DIR` the sources are llama.cpp's for HIP and Composable Kernel's, for gfx942, with
Debian's clang 19. `DIR/include` has the headers of HIP 6.1 or newer, of hipBLAS and of rocBLAS.
Debian 12's HIP is older; Debian sid has these headers in libamdhip64-dev, libhsa-runtime-dev,
libhipblas-dev, libhipblas-common-dev, librocblas-dev and librocsolver-dev.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from common import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "examples" / "ck_fmha"))
sys.path.insert(0, str(REPOSITORY / "examples"))

import ck_fmha
import cuda_headers
import rocm_home
from machine_code import difference, kernels, plain_name
from sources import FLASH_ATTN, LLAMA_CPP, Source, fetch

from lazyck import abi
from lazyck.postbuild.eager import device_name
from lazyck.toolchains import by_name
from lazyck.units.program import build_program

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


@dataclass(frozen=True)
class Case:
    """Describes a source and the command that its build compiles it with, without the source and
    the output."""

    name: str
    directory: Path
    source: str
    command: tuple[str, ...]
    for_hip: bool = False


@dataclass(frozen=True)
class Cost:
    """Holds CPU and wall seconds, and the peak memory of the largest process in MB."""

    cpu: float
    wall: float
    peak: float


@dataclass
class Found:
    """Holds what was measured of a case: the costs of each round, and how the machine code of its
    kernels compares."""

    name: str
    kernels: int = 0
    whole: list[Cost] = field(default_factory=list)
    host: list[Cost] = field(default_factory=list)
    one: list[Cost] = field(default_factory=list)
    both: list[float] = field(default_factory=list)  # wall seconds of host unit and one kernel side by side
    code: dict[str, int] = field(default_factory=dict)
    differing: list[str] = field(default_factory=list)


def ggml_source(work: Path) -> Path:
    """Return the directory of llama.cpp's kernels."""
    return fetch(LLAMA_CPP, work) / "vendor" / "llama.cpp" / "ggml" / "src" / "ggml-cuda"


def cuda_cases(work: Path) -> Iterator[Case]:
    """Yield the cases for CUDA."""
    cuda = by_name("cuda").find(dict(os.environ))
    if cuda is None:
        sys.exit("no nvcc found")
    # nvcc compresses large images by default, and machine_code.py cannot read compressed ones.
    nvcc = (cuda.compiler[0], "-gencode", f"arch=compute_{ARCH},code=sm_{ARCH}", "-no-compress")
    more = cuda_headers.headers(work, cuda.home)
    ggml = ggml_source(work)
    places = [".", "..", "../../include", more]
    words = (*nvcc, "-std=c++17", "-O3", "-use_fast_math", "-extended-lambda", "-w", *(f"-I{p}" for p in places))
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
        more,
    ]
    undone = [f"-U__CUDA_NO_{n}__" for n in ("HALF_OPERATORS", "HALF_CONVERSIONS", "HALF2_OPERATORS")]
    of_torch = (*nvcc, "-O3", "--expt-relaxed-constexpr", *undone, "-U__CUDA_NO_BFLOAT16_CONVERSIONS__", "-w")
    of_torch += (*(f"-I{p}" for p in torch_places),)
    marlin = fetch(GPTQMODEL, work) / "gptqmodel_ext" / "marlin"
    words = (*of_torch, "-static-global-template-stub=false", "-std=c++20", "-DENABLE_BF16", "-Xptxas", "-O3,-dlcm=ca")
    yield Case("GPTQModel kernel_bf16_ku8", marlin, "kernel_bf16_ku8.cu", (*words, "-lineinfo"))
    natten = fetch(NATTEN, work)
    if not (natten / "csrc" / "autogen").is_dir():
        argv = [sys.executable, "scripts/autogen_fna.py", "--num-splits", "64", "-o", "csrc"]  # as its setup.py does
        subprocess.run(argv, cwd=natten, check=True)
    places = [natten / "csrc" / "include", natten / "csrc" / "autogen" / "include"]
    places += [natten / "third_party" / "cutlass" / "include"]
    words = (*of_torch, "-std=c++20", "--use_fast_math", "--extended-lambda", "-DNDEBUG", "-DNATTEN_WITH_CUTLASS")
    words += ("-Xcompiler=-fno-strict-aliasing", *(f"-I{p}" for p in places))
    yield Case("NATTEN fna/source_3", natten / "csrc", "autogen/src/cuda/fna/source_3.cu", words)
    flash = fetch(FLASH_ATTN, work) / "csrc" / "flash_attn" / "src"
    words = (*of_torch, "-std=c++17", "--expt-extended-lambda", "--use_fast_math", "-I../../cutlass/include")
    for name in ("fwd_hdim64_fp16", "fwd_hdim128_fp16_causal", "bwd_hdim64_fp16"):
        yield Case(f"flash-attn {name}", flash, f"flash_{name}_sm80.cu", words)


def hip_cases(work: Path, hip: Path) -> Iterator[Case]:
    """Yield the cases for HIP; `hip` has the headers that Debian's HIP lacks."""
    if missing := rocm_home.missing_packages():
        sys.exit(missing)
    home = rocm_home.make(work / "rocm")
    clang: tuple[str, ...] = (rocm_home.CLANG, "-x", "hip", f"--rocm-path={hip}", f"-isystem{hip / 'include'}")
    clang += (f"--rocm-device-lib-path={home / 'amdgcn' / 'bitcode'}", "-D__HIP_PLATFORM_AMD__=1")
    clang += (f"--offload-arch={ck_fmha.ARCH}", "-fPIC", "-w", "-O3", "-std=c++17")
    ggml = ggml_source(work)
    words = (*clang, "-DNDEBUG", "-DGGML_USE_HIP", "-DGGML_HIP_NO_VMM", "-DGGML_CUDA_FA_ALL_QUANTS")
    words += ("--gpu-max-threads-per-block=1024", "-I.", "-I..", "-I../../include")
    for name in ("mmq-instance-q4_0", "fattn-vec-f16-instance-hs128-f16-f16"):
        yield Case(f"ggml-hip {name}", ggml, f"template-instances/{name}.cu", words, for_hip=True)
    for name in ("norm", "cpy", "softmax"):
        yield Case(f"ggml-hip {name}", ggml, f"{name}.cu", words, for_hip=True)
    ck = fetch(FLASH_ATTN, work) / "csrc" / "composable_kernel"
    files = ck_fmha.generate(ck, work / "ck", ["fwd", "fwd_appendkv", "bwd"], all_dims=False)
    includes = [ck / "include", ck / "library" / "include", ck / "example" / "ck_tile" / "01_fmha"]
    words = (str(home / "bin" / "hipcc"), *ck_fmha.FLAGS, f"--offload-arch={ck_fmha.ARCH}")
    words += (*(f"-I{i}" for i in includes),)
    for direction, generated in files.items():
        source = next(f for f in generated if not f.name.endswith("_api.cpp"))
        yield Case(f"CK {direction}", source.parent, source.name, words, for_hip=True)


def why_whole(unit: Path) -> str:
    """Return the reason why a unit has no code of its own, or an empty string if it has."""
    _, mark, rest = unit.read_bytes().partition(abi.WHOLE_SOURCE_MARK.encode())
    return f", for {rest.partition(bytes(1))[0].decode(errors='replace')}" if mark else ""


def run(argv: Sequence[str | Path], cwd: Path) -> Cost:
    """Run a command and return its cost. Exit if it fails."""
    begun = time.monotonic()
    process = subprocess.Popen([*map(str, argv)], cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, used = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(f"{' '.join(map(str, argv))}\n{said[-3000:]}")
    return Cost(used.ru_utime + used.ru_stime, time.monotonic() - begun, used.ru_maxrss / 1024)


def side_by_side(argvs: Sequence[Sequence[str | Path]], cwd: Path) -> float:
    """Start the commands together; return the wall seconds until all of them have ended. Exit if
    one fails."""
    begun = time.monotonic()
    processes = [
        subprocess.Popen([*map(str, argv)], cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for argv in argvs
    ]
    if any([process.wait() for process in processes]):
        sys.exit(f"failed side by side: {argvs}")
    return time.monotonic() - begun


def table(made: Path, objcopy: str = "objcopy") -> list[str]:
    """Return the lines of a host unit's table of kernels."""
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
    text = device_name(copied.read_text(errors="surrogateescape"))
    lines = [line.partition("\t") for line in text.splitlines()]
    state = "".join(f"\t{rest}" for kind, _, rest in lines if kind == "variable")
    return [rest + state for kind, _, rest in lines if kind == "kernel"]


def measure(case: Case, program: Path, out: Path, options: argparse.Namespace) -> Found:
    """Compile the case in all ways, in turns, into the directory `out`."""
    command = (*case.command, "-c", case.source, "-o")
    lead = "hip-" if case.for_hip else ""
    whole, host, unit = out / "whole.o", out / "host.o", out / "unit.so"
    found = Found(case.name)
    chosen: list[str] = []
    for number in range(options.rounds):
        found.whole.append(run([*command, whole], case.directory))
        compiles: list[str | Path] = [case.source, host, "--", *command, "x.o"]
        make_host: list[str | Path] = [program, f"{lead}entry", "x", *compiles]
        found.host.append(run(make_host, case.directory))
        if number == 0:
            run([program, f"{lead}host", "x", *compiles], case.directory)  # this one has its table in a section
            lines = table(host)
            found.kernels = len(lines)
            step = max(1, len(lines) // max(1, options.kernels))
            takes_all = any(name in case.name for name in options.all)
            chosen = lines if takes_all else lines[::step][: options.kernels]
            expected = kernels(whole)
            registered = {plain_name(line.partition("\t")[0]) for line in lines}
            if registered != set(expected):
                sys.exit(f"{case.name}: the host unit and the whole file differ in {registered ^ set(expected)}")
        for line in chosen:
            make_kernel: list[str | Path] = [program, f"{lead}kernel", line, case.source, unit, "--", *command, "x.o"]
            found.one.append(run(make_kernel, case.directory))
            if line == chosen[0]:
                # A first call compiles both at once where a profile has announced the kernel.
                found.both.append(side_by_side([make_host, make_kernel], case.directory))
            if number == 0:
                symbol = plain_name(line.partition("\t")[0])
                mine = kernels(unit)
                how = difference(mine[symbol], expected[symbol]) if symbol in mine else "whole"
                found.code[how or "identical"] = found.code.get(how or "identical", 0) + 1
                if how in ("other", "whole"):
                    found.differing.append(f"{symbol}: {how}{why_whole(unit)}")
        report(found)
    return found


def report(found: Found) -> None:
    """Print a row of a table in Markdown."""

    def median(costs: Sequence[Cost], what: str) -> float:
        return statistics.median(getattr(c, what) for c in costs) if costs else 0.0

    whole, host, one = (median(c, "cpu") for c in (found.whole, found.host, found.one))
    ratio = (host / whole, one / whole, (host + one) / whole) if whole else (0.0, 0.0, 0.0)
    walls = [median(c, "wall") for c in (found.whole, found.host, found.one)]
    wall = ((walls[1] + walls[2]) / walls[0], statistics.median(found.both) / walls[0]) if found.both else (0.0, 0.0)
    peaks = [median(c, "peak") for c in (found.whole, found.one)]
    print(
        f"| {found.name} | {found.kernels} | {whole:.1f} | {host:.1f} ({ratio[0]:.2f}) | {one:.1f} ({ratio[1]:.2f}) | "
        f"{ratio[2]:.2f} | {wall[0]:.2f} | {wall[1]:.2f} | {peaks[0]:.0f} / {peaks[1]:.0f} | {found.code} |",
        flush=True,
    )
    for line in found.differing:
        print(f"    {line[:300]}", flush=True)


def main() -> None:
    """Measure all cases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="directory for sources and what is made")
    parser.add_argument("--hip", type=Path, metavar="DIR", help="HIP's sources, with the headers of DIR/include")
    parser.add_argument("--kernels", type=int, default=2, help="kernels of each source [2]")
    parser.add_argument("--rounds", type=int, default=1, help="how often, in turns [1]")
    parser.add_argument("--only", action="append", default=[], help="cases whose name contains this; repeatable")
    parser.add_argument("--all", action="append", default=[], help="every kernel of such cases; repeatable")
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    options = parser.parse_args()
    work = options.work.resolve()
    program = build_program(work / "programs", ("c++",))
    heads = ["source", "kernels", "whole, CPU s", "host unit", "kernel unit", "both", "both, wall"]
    heads += ["with a profile, wall", "peak, MB", "machine code"]
    print(f"| {' | '.join(heads)} |\n{'|---' * len(heads)}|", flush=True)
    cases = hip_cases(work, options.hip.resolve()) if options.hip else cuda_cases(work)
    chosen = [c for c in cases if not options.only or any(o in c.name for o in options.only)]
    with tempfile.TemporaryDirectory(dir=work) as out:
        found = [measure(c, program, Path(out), options) for c in chosen]
    if options.json:
        options.json.write_text(json.dumps([asdict(f) for f in found], indent=1) + "\n")


if __name__ == "__main__":
    main()
