"""Build llama.cpp's CUDA or HIP backend lazily, with its own CMake project and ninja or make.

    python examples/ggml_cuda/ggml_cuda.py --work DIR [--hip] [--make] [--samples N] [--row FILE]

CMake's language is CUDA or HIP. The kernels lie in 174 files: 124 generated instances of flash
attention and quantized products, and 50 written by hand. All but ggml-cuda.cu, which is called
first and calls the others, become blobs. This needs nvcc 13, or HIP 6.1 with hipBLAS and rocBLAS.
It needs no GPU: a call then ends in the runtime's error (35 or 100), which shows that the real
kernel's launcher was reached.
"""

import argparse
import json
import os
import random
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from sources import LLAMA_CPP, check, cpu_of_children, fetch, lazyck, make_venv, summaries  # noqa: E402

BLOBS = ["*/template-instances/*.cu", "*/ggml-cuda/[!g]*.cu", "*/ggml-cuda/g[!g]*.cu"]
CALL = """
import ctypes, sys, time
lib, runtime = ctypes.CDLL(sys.argv[1]), ctypes.CDLL(sys.argv[2])
get = lib._Z21ggml_get_to_fp32_cuda9ggml_type
get.restype = ctypes.c_void_p
begun = time.perf_counter()
convert = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)(get(2))
convert(None, None, 256, None)
print(f"{time.perf_counter() - begun:.4f}", runtime[sys.argv[3]]())
"""


@dataclass(frozen=True)
class Backend:
    """Describes what differs between the two languages of the sources: `no_gpu` is the runtime's
    error without a GPU."""

    name: str
    toolchain: str
    arch: str
    compiler: str
    runtime: str
    last_error: str
    no_gpu: int
    configure: tuple[str, ...]

    @property
    def shown_arch(self) -> str:
        return f"sm_{self.arch}" if self.arch.isdigit() else self.arch

    @property
    def target(self) -> str:
        return f"ggml-{self.name}"


BACKENDS = {
    b.name: b
    for b in (
        Backend(
            "cuda", "cuda", "90", "nvcc", "libcudart.so.13", "cudaGetLastError", 35,
            # Without GGML_CUDA_NO_VMM the library would link the driver, which a machine without a
            # GPU does not have.
            ("-DGGML_CUDA=ON", "-DGGML_CUDA_NO_VMM=ON", "-DCMAKE_CUDA_ARCHITECTURES=90-real"),
        ),
        Backend(
            "hip", "rocm", "gfx942", "clang++", "libamdhip64.so", "hipGetLastError", 100,
            ("-DGGML_HIP=ON", "-DCMAKE_HIP_ARCHITECTURES=gfx942"),
        ),
    )
}  # fmt: skip


def cublas(work: Path) -> Path:
    """Return a directory with cuBLAS's headers, and its libraries under the names that a linker
    looks for.

    The wheel, this Python's or one that is fetched, has only the names that a loader looks for.
    """
    own = [Path(d, "nvidia", "cu13") for d in sys.path]
    wheels = [wheel for wheel in own if (wheel / "lib" / "libcublas.so.13").is_file()]
    if not wheels:
        venv = make_venv(work / "venv", ["nvidia-cublas==13.0.2.14"])
        wheels = [*venv.glob("lib/python3*/site-packages/nvidia/cu13")]
    wheel = wheels[0]
    home = work / "cublas"
    shutil.rmtree(home, ignore_errors=True)
    (home / "lib").mkdir(parents=True)
    (home / "include").symlink_to(wheel / "include")
    for name in ("libcublas.so", "libcublasLt.so"):
        (home / "lib" / name).symlink_to(wheel / "lib" / f"{name}.13")
        (home / "lib" / f"{name}.13").symlink_to(wheel / "lib" / f"{name}.13")
    return home


def configure_and_build(
    source: Path, build: Path, backend: Backend, generator: str, home: Path | None, target: str = "", *more: str
) -> list[str]:
    """Return the project's own two commands as one, with `more` options for the first.

    `home` has cuBLAS, where that is needed. `target` is by default the backend's library.
    """
    configure = [
        "cmake", "-S", str(source), "-B", str(build), "-G", generator, "-DCMAKE_BUILD_TYPE=Release", "-DLLAMA_CURL=OFF",
        "-DGGML_CUDA_FA_ALL_QUANTS=ON", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON", *backend.configure, *more,
    ]  # fmt: skip
    if home is not None:
        configure += [f"-DCMAKE_LIBRARY_PATH={home / 'lib'}", f"-DCMAKE_CUDA_FLAGS=-I{home / 'include'}"]
    make = [
        "cmake",
        "--build",
        str(build),
        "--target",
        target or backend.target,
        "--parallel",
        str(os.cpu_count() or 1),
    ]
    return ["sh", "-c", f"{shlex.join(configure)} >configure.log && {shlex.join(make)} >build.log"]


def cudart_dir() -> Path:
    """Return the directory of nvcc's own CUDA runtime library."""
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        sys.exit("no nvcc on PATH")
    shown = subprocess.run([nvcc, "--dryrun", "-c", "x.cu"], capture_output=True, text=True).stderr
    (top,) = [line.removeprefix("#$ TOP=") for line in shown.splitlines() if line.startswith("#$ TOP=")]
    return Path(top) / "lib64"


def call(library: Path, backend: Backend, home: Path | None, cache: Path) -> tuple[float, int]:
    """Return the seconds of one call in a process of its own, and the error of CUDA or HIP that it
    ended with."""
    env = {**os.environ, "LAZYCK_CACHE_DIR": str(cache), "LAZYCK_ARCHS": backend.arch}
    if home is not None:
        env["LD_LIBRARY_PATH"] = f"{home / 'lib'}{os.pathsep}{cudart_dir()}"
    argv = [sys.executable, "-c", CALL, str(library), backend.runtime, backend.last_error]
    done = subprocess.run(argv, env=env, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"the call fails: {done.stdout}{done.stderr}")
    seconds, _, status = done.stdout.strip().partition(" ")
    return float(seconds), int(status)


def sample(tmp: Path, count: int) -> list[float]:
    """Return the CPU seconds of compiling `count` blobs by the project's own commands, which lazyck
    lists."""
    entries = json.loads((tmp / "compile_commands.json").read_text())
    blobs = sorted((e for e in entries if e["file"].endswith(".cu") and not e["file"].endswith("/ggml-cuda.cu")),
                   key=lambda e: str(e["file"]))  # fmt: skip
    random.seed(3)
    found = []
    for entry in random.sample(blobs, count):
        words = list(entry["arguments"])
        words[words.index("-o") + 1] = str(tmp / "sample.o")
        before = cpu_of_children()
        subprocess.run(words, cwd=entry["directory"], check=True)
        found.append(cpu_of_children() - before)
        print(f"sample {Path(entry['file']).name}: {found[-1]:.0f} s CPU", flush=True)
    return found


def main() -> None:
    """Fetch, build, call, sample, tabulate."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="directory for everything (2 GB, cuBLAS most of it)")
    parser.add_argument("--make", action="store_true", help="CMake's Unix Makefiles instead of ninja")
    parser.add_argument("--hip", action="store_true", help="its HIP backend, of the same sources, for gfx942")
    parser.add_argument("--samples", type=int, default=8, help="blobs to compile ahead of time for the extrapolation")
    parser.add_argument("--row", type=Path, help="write the row of docs/projects.md here, as JSON")
    options = parser.parse_args()
    backend = BACKENDS["hip" if options.hip else "cuda"]
    work = options.work.resolve()
    source = fetch(LLAMA_CPP, work) / "vendor" / "llama.cpp"
    home = None if options.hip else cublas(work)
    build, tmp, cache = work / "build", work / "tmp", work / "cache"
    for directory in (build, tmp, cache):
        shutil.rmtree(directory, ignore_errors=True)

    words = configure_and_build(source, build, backend, "Unix Makefiles" if options.make else "Ninja", home)
    blobs = [word for glob in BLOBS for word in ("--blobs", glob)]
    lazily: list[str | Path] = ["--toolchain", backend.toolchain, *blobs, "--tmp-dir", tmp]
    begun, cpu = time.monotonic(), cpu_of_children()
    lazyck("build", "full", *lazily, "--", *words, cwd=work, env=os.environ)
    wall, cpu = time.monotonic() - begun, cpu_of_children() - cpu
    check(tmp, 8, cwd=work, env=os.environ)
    summary = summaries(tmp)[f"lib{backend.target}"]
    print(f"lazy build: {wall:.0f} s, {cpu:.0f} s CPU")
    library = build / "bin" / f"lib{backend.target}.so"
    first, status = call(library, backend, home, cache)
    hit, again = call(library, backend, home, cache)
    print(f"first call {first:.1f} s, error {status}; second process {hit * 1000:.1f} ms, error {again}")
    if not {status, again} <= {0, backend.no_gpu}:
        sys.exit(f"unexpected errors {status}, {again}")
    costs = sample(tmp, options.samples)
    if options.row:
        tool = "make" if options.make else "ninja"
        chosen = (" --hip" if options.hip else "") + (" --make" if options.make else "")
        count = int(str(summary["deferred"]))
        hours = sum(costs) / len(costs) * count / 3600
        row = {
            "project": f"llama.cpp's {backend.target} ({tool})",
            "build": f"CMake, language {backend.name.upper()}, {tool}",
            "toolchain": f"{backend.toolchain} ({backend.compiler})",
            "files": count,
            "symbols": summary["symbols"],
            "lazy": summary["lazy"],
            "eager": len(summary["eager"]),  # type: ignore[arg-type]
            "lazy_seconds": f"{wall:.0f} ({cpu:.0f} CPU)",
            "ahead": f"{hours:.1f} core-hours for {backend.shown_arch} ({len(costs)} of {count} blobs sampled)",
            "first_call": f"{first:.1f} s",
            "hit": f"{hit * 1000:.1f} ms",
            "command": f"`python examples/ggml_cuda/ggml_cuda.py --work DIR{chosen}`",
        }
        options.row.write_text(json.dumps(row, indent=1) + "\n")


if __name__ == "__main__":
    main()
