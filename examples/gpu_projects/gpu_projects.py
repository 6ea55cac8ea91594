"""Four CUDA projects, each source a blob: built by their own builds, and a call of each that reaches its kernel.

    python examples/gpu_projects/gpu_projects.py --work DIR [--samples N] [--row FILE] PROJECT...

PROJECT is torch_scatter, gsplat, natten or xgboost. It needs nvcc, CMake, ninja and, in this Python, torch (one without
CUDA will do), setuptools and wheel, but no GPU: the calls run against a CUDA runtime that writes down which kernel is
launched instead of launching it (tests/cuda_spy.cpp), and a torch device that is the host's memory.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
TORCH_CUDA = HERE.parent / "torch_cuda"
sys.path[:0] = [str(HERE.parent), str(HERE.parent.parent)]

from cuda_headers import headers  # noqa: E402
from sources import GSPLAT, REPOSITORY, Source, check, cpu_of_children, fetch, lazyck, summaries  # noqa: E402

from lazyck.check.ahead import present  # noqa: E402
from lazyck.postbuild import ahead_link, state  # noqa: E402
from lazyck.postbuild.own_command import writing_to  # noqa: E402
from lazyck.toolchains import by_name  # noqa: E402

SPY = REPOSITORY / "tests" / "cuda_spy.cpp"


@dataclass(frozen=True)
class Project:
    """A project: its archive, the files that are blobs, how its build starts, a call, and the kernel that this
    launches (part of its mangled name). `build` and `call` are commands for a shell, in the archive's directory."""

    source: Source
    blobs: tuple[str, ...]
    build: str
    call: str
    kernel: str
    variables: dict[str, str] = field(default_factory=dict)
    needs_torch: bool = True


_TORCH = """import ctypes, torch
ctypes.CDLL("libc10_cuda.so", mode=ctypes.RTLD_GLOBAL)
cuda = torch.ops.pretended.cuda
"""
_SETUP = f"{sys.executable} {TORCH_CUDA}/as_cuda_torch.py setup.py -q build_ext"

PROJECTS = {
    "torch_scatter": Project(
        Source(
            "torch-scatter==2.1.2",
            "torch_scatter-2.1.2.tar.gz",
            "69b3aa435f2424ac6a1bfb6ff702da6eb73b33ca0db38fb26989c74159258e47",
        ),
        ("*/csrc/*.cu", "*/csrc/*.cpp"),
        f"{_SETUP} --inplace",
        _TORCH
        + "import glob; torch.ops.load_library(*glob.glob('torch_scatter/_segment_csr_cuda*.so'))\n"
        + "source, rows = cuda(torch.rand(6, 4)), cuda(torch.tensor([0, 2, 6]))\n"
        + "print(torch.ops.torch_scatter.segment_sum_csr(source, rows, None).shape)\n",
        "segment_csr_",
        {"FORCE_ONLY_CUDA": "1", "TORCH_CUDA_ARCH_LIST": "9.0"},
    ),
    "gsplat": Project(
        GSPLAT,
        ("*/gsplat/cuda/*.cu", "*/gsplat/cuda/*.cpp"),
        f"{_SETUP} --inplace",
        _TORCH
        + "import importlib.util as u, sys\n"
        + "spec = u.spec_from_file_location('csrc', 'gsplat/csrc.so'); made = u.module_from_spec(spec)\n"
        + "spec.loader.exec_module(made)\n"
        + "turns, sizes = cuda(torch.rand(5, 4)), cuda(torch.rand(5, 3))\n"
        + "print(made.quat_scale_to_covar_preci_fwd(turns, sizes, True, True, False)[0].shape)\n",
        "quat_scale_to_covar_preci_fwd_kernel",
        {"TORCH_CUDA_ARCH_LIST": "9.0"},
    ),
    "natten": Project(
        Source(
            "natten==0.21.7",
            "natten-0.21.7.tar.gz",
            "8417236b74db079b2d23899ec8f77514fb2dc73d4bbd6b346a45b6967fc05ffb",
        ),
        ("*/csrc/*.cu", "*/csrc/*.cpp"),
        f"{_SETUP} --build-lib lib",
        _TORCH
        + "import importlib.util as u, glob\n"
        + "spec = u.spec_from_file_location('libnatten', *glob.glob('lib/natten/libnatten*.so'))\n"
        + "made = u.module_from_spec(spec); spec.loader.exec_module(made)\n"
        + "q, k, v, out = (cuda(torch.rand(1, 16, 2, 32)) for _ in range(4)); total = cuda(torch.rand(1, 16, 2))\n"
        + "made.reference_na1d_forward(out, q, k, v, total, (3,), (1,), (1,), (False,), 1.0, (16,), 0)\n"
        + "print(out.shape)\n",
        "reference",
        # torch 2.13 wants C++20, which CMake is told by its only way in
        {
            "NATTEN_CUDA_ARCH": "9.0",
            "NATTEN_N_WORKERS": "2",
            "CMAKE_TOOLCHAIN_FILE": str(HERE / "cxx20.cmake"),
        },
    ),
    "xgboost": Project(
        Source(
            "xgboost==3.2.0",
            "xgboost-3.2.0.tar.gz",
            "99b0e9a2a64896cdaf509c5e46372d336c692406646d20f2af505003c0c5d70d",
        ),
        ("*/cpp_src/src/*.cu", "*/cpp_src/src/*.cc"),
        "cmake -S cpp_src -B build -G Ninja -DUSE_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES=90 -DCMAKE_BUILD_TYPE=Release"
        # it names the static runtime, before which nothing can stand
        " -DCMAKE_CUDA_RUNTIME_LIBRARY=Shared -DCUDA_cudart_static_LIBRARY=$CUDA_HOME/lib64/libcudart.so"
        " && cmake --build build",
        (HERE / "train.py").read_text(),
        "SampleMean",
        needs_torch=False,
    ),
}


@dataclass(frozen=True)
class Place:
    """Where one project is built, and with which environment."""

    project: Project
    source: Path
    tmp: Path
    work: Path
    environment: dict[str, str]


def say(text: str) -> None:
    """One line of the script's own, among those of the build."""
    print(f"gpu_projects: {text}", flush=True)


def compile_library(source: Path, output: Path, *words: str) -> None:
    """Make a shared library of one C++ file."""
    argv = ["g++", "-std=c++20", "-O1", "-w", "-shared", "-fPIC", str(source), "-o", str(output), *words]
    subprocess.run(argv, check=True)


def prepare(name: str, work: Path) -> Place:
    """Fetch and unpack the project, and make what stands in for what is missing."""
    project = PROJECTS[name]
    found = by_name("cuda").find(dict(os.environ))
    if found is None:
        sys.exit(f"no nvcc found (looked at {by_name('cuda').searched()})")
    source = fetch(project.source, work)
    more = headers(work, found.home)
    include, libraries = [str(more), str(TORCH_CUDA / "include")], [f"{found.home}/lib64", f"{found.home}/lib"]
    stand_ins = work / "stand-ins"
    stand_ins.mkdir(exist_ok=True)
    compile_library(
        SPY, stand_ins / "spy.so", str(HERE / "pretended_runtime.cpp"), f"-I{found.home}/include", f"-I{more}"
    )
    if project.needs_torch:
        import torch.utils.cpp_extension as torch_cpp

        torch_libraries = torch_cpp.library_paths()
        libraries = [str(stand_ins), *torch_libraries, *libraries]
        directories = [f"-I{d}" for d in (*torch_cpp.include_paths(), f"{found.home}/include", *include)]
        linked = [*(f"-L{d}" for d in torch_libraries), "-ltorch_cpu", "-lc10"]
        for library in ("c10_cuda", "torch_cuda"):
            made = stand_ins / f"lib{library}-stand-in.so"
            words = [*directories, *linked, f"-Wl,-soname,{made.name}"]
            compile_library(HERE / "pretended_cuda.cpp" if library == "c10_cuda" else Path("/dev/null"), made, *words)
            (stand_ins / f"lib{library}.so").unlink(missing_ok=True)
            (stand_ins / f"lib{library}.so").symlink_to(made.name)
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "CPATH": os.pathsep.join([*include, *filter(None, [os.environ.get("CPATH", "")])]),
        "LIBRARY_PATH": os.pathsep.join([*libraries, *filter(None, [os.environ.get("LIBRARY_PATH", "")])]),
        "LD_LIBRARY_PATH": os.pathsep.join([*libraries, *filter(None, [os.environ.get("LD_LIBRARY_PATH", "")])]),
        "CUDA_HOME": found.home,
        "CUDACXX": f"{found.home}/bin/nvcc",
        "LAZYCK_CACHE_DIR": str(work / f"cache-{name}"),
        "MAX_JOBS": os.environ.get("MAX_JOBS", "2"),
        **project.variables,
    }
    return Place(project, source, work / f"lazyck-{name}", work, environment)


def build(place: Place, *, by_kernel: bool) -> dict[str, Any]:
    """`lazyck build full` around the project's own build: the sums of what it says of its libraries. `by_kernel`: none
    of its files is a blob."""
    for old in ("build", "lib"):
        shutil.rmtree(place.source / old, ignore_errors=True)
    shutil.rmtree(place.tmp, ignore_errors=True)
    options: list[str | Path] = ["--toolchain", "cuda", "--tmp-dir", place.tmp]
    for pattern in ("none",) if by_kernel else place.project.blobs:
        options += ["--blobs", pattern]
    command = ["sh", "-c", place.project.build]
    lazyck("build", "full", *options, "--", *command, cwd=place.source, env=place.environment)
    found = list(summaries(place.tmp).values())
    keys = ("deferred", "lazy", "symbols", "units", "kernels")
    total = {key: sum(int(str(s[key])) for s in found) for key in keys}
    seconds = sum(float(str(s["eager_seconds"])) for s in found)
    own = sum(float(str(s["cpu_seconds"])) for s in found)
    eager: list[Any] = [e for s in found for e in s["eager"]]  # type: ignore[attr-defined]
    return {**total, "seconds": seconds, "eager": eager, "own": own, "libraries": len(found)}


def ahead_of_time(place: Place, samples: int) -> tuple[float, int]:
    """CPU seconds that all blobs take, and from how many that was reckoned: compiled by the project's own commands."""
    blobs = {b.source: b for d in state.library_dirs(place.tmp) for b in ahead_link.load(d).records}
    chosen = random.Random(0).sample(sorted(blobs), min(samples, len(blobs)))
    seconds = 0.0
    for source in chosen:
        blob, cpu = blobs[source], cpu_of_children()
        argv = writing_to(blob, place.work / "sample.o")
        with (place.work / "sample.log").open("w") as log, present([blob.call.cwd]):
            subprocess.run(argv, cwd=blob.call.cwd, env=place.environment, check=True, stdout=log, stderr=log)
        spent = cpu_of_children() - cpu
        say(f"ahead of time: {Path(source).name}: {spent:.0f} s CPU")
        seconds += spent
    return seconds / len(chosen) * len(blobs), len(chosen)


def call(place: Place) -> tuple[str, list[str]]:
    """Make the project's call in a process of its own: what lazyck said, and the kernels that were launched."""
    log = place.work / "launches"
    log.unlink(missing_ok=True)
    variables = {"LD_PRELOAD": str(place.work / "stand-ins" / "spy.so"), "CUDA_SPY": str(log), "LAZYCK_ARCHS": "90"}
    argv = [sys.executable, "-c", place.project.call]
    done = subprocess.run(
        argv, cwd=place.source, env={**place.environment, **variables}, capture_output=True, text=True
    )
    noted = log.read_text().splitlines() if log.exists() else []
    launched = [line.partition(" ")[2] for line in noted if line.startswith("launch ")]
    if not any(place.project.kernel in name for name in launched) or "UNKNOWN" in "".join(launched):
        sys.exit(f"the call reached no kernel ({launched}): {done.stdout}\n{done.stderr[-3000:]}")
    return done.stderr, launched


def main() -> None:
    """All of it, in order."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="directory for everything (some GB)")
    parser.add_argument("--samples", type=int, default=2, help="blobs to compile to reckon what all cost [2]")
    parser.add_argument("--by-kernel", action="store_true", help="no file is a blob: each kernel by itself")
    parser.add_argument("--row", type=Path, help="write the rows of docs/projects.md here, as JSON")
    parser.add_argument("projects", nargs="+", choices=sorted(PROJECTS))
    options = parser.parse_args()
    rows = []
    for name in options.projects:
        place = prepare(name, options.work.resolve())
        built = build(place, by_kernel=options.by_kernel)
        shutil.rmtree(place.environment["LAZYCK_CACHE_DIR"], ignore_errors=True)
        compiled, launched = call(place)
        again, _ = call(place)
        if "compiled " not in compiled or "compiled " in again:
            sys.exit(f"expected compiles in the first process and none in the second: {compiled}\n{again}")
        check(place.tmp, 1, cwd=place.source, env=place.environment)
        if options.by_kernel:
            say(
                f"{name}: {built['kernels']} kernels of {built['units']} files, {len(built['eager'])} eager, "
                f"{built['seconds']:.0f} s for host code; launched {launched[0]}"
            )
            rows.append({"project": name, **built, "kernel": launched[0]})
            continue
        ahead, taken = ahead_of_time(place, options.samples)
        share = built["own"] / ahead
        say(
            f"{name}: {built['lazy']} of {built['deferred']} blobs lazy, own CPU {built['own']:.0f} s, "
            f"{share:.0%} of the {ahead:.0f} s that compiling all takes; launched {launched[0]}"
        )
        rows.append({"project": name, **built, "ahead": ahead, "samples": taken, "share": share, "kernel": launched[0]})
        if share > 0.25:
            sys.exit(f"{name}: more than a quarter")
    print(json.dumps(rows))
    if options.row:
        options.row.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
