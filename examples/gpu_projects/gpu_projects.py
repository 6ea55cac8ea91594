"""Build CUDA projects with their own builds, each source a blob or by kernel, and reach a kernel of
each.

    python examples/gpu_projects/gpu_projects.py --work DIR [--samples N] [--by-kernel] [--row FILE]
        PROJECT...

PROJECT is one of projects.py. This needs nvcc, CMake, ninja and, in this Python, torch (one without
CUDA will do), setuptools and wheel, but no GPU. The calls run against a CUDA runtime that records
which kernel is launched instead of launching it (tests/support/cuda_spy.cpp), and a torch device
that is the host's memory.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent.parent)]

from by_kernel import cost_of, device_code, whole_sources  # noqa: E402
from cuda_headers import headers  # noqa: E402
from projects import PROJECTS, TORCH_CUDA, Project  # noqa: E402
from sources import REPOSITORY, check, cpu_of_children, events, fetch, lazyck, summaries, unused  # noqa: E402

from lazyck.check.ahead import present  # noqa: E402
from lazyck.postbuild import state  # noqa: E402
from lazyck.postbuild.link.arguments import load_ahead  # noqa: E402
from lazyck.postbuild.probe.group import writing_to  # noqa: E402
from lazyck.toolchains import by_name  # noqa: E402

SPY = REPOSITORY / "tests" / "cuda_spy.cpp"


@dataclass(frozen=True)
class Place:
    """Holds where one project is built, and the environment of its build."""

    project: Project
    source: Path
    tmp: Path
    work: Path
    environment: dict[str, str]


def say(text: str) -> None:
    """Print one line of the script's own, among those of the build."""
    print(f"gpu_projects: {text}", flush=True)


def compile_library(source: Path, output: Path, *words: str) -> None:
    """Make a shared library of one C++ file."""
    argv = ["g++", "-std=c++20", "-O1", "-w", "-shared", "-fPIC", str(source), "-o", str(output), *words]
    subprocess.run(argv, check=True)


def prepare(name: str, work: Path) -> Place:
    """Fetch and unpack the project, and make the stand-ins for what is missing."""
    project = PROJECTS[name]
    found = by_name("cuda").find(dict(os.environ))
    if found is None:
        sys.exit(f"no nvcc found (looked at {by_name('cuda').searched})")
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
    """Run `lazyck build full` around the project's own build; return the sums over its libraries.
    With `by_kernel` none of its files is a blob."""
    for old in ("build", "lib"):
        shutil.rmtree(place.source / old, ignore_errors=True)
    shutil.rmtree(place.tmp, ignore_errors=True)
    options: list[str | Path] = ["--toolchain", "cuda", "--tmp-dir", place.tmp]
    for pattern in ("none",) if by_kernel else place.project.blobs:
        options += ["--blobs", pattern]
    command = ["sh", "-c", place.project.build]
    before = cpu_of_children()
    lazyck("build", "full", *options, "--", *command, cwd=place.source, env=place.environment)
    cpu = cpu_of_children() - before
    found = list(summaries(place.tmp).values())
    keys = ("deferred", "lazy", "symbols", "units", "kernels")
    total = {key: sum(int(str(s[key])) for s in found) for key in keys}
    seconds = sum(float(str(s["eager_seconds"])) for s in found)
    own = sum(float(str(s["cpu_seconds"])) for s in found)
    eager: list[Any] = [e for s in found for e in s["eager"]]  # type: ignore[attr-defined]
    return {**total, "seconds": seconds, "eager": eager, "own": own, "cpu": cpu, "libraries": len(found)}


def ahead_of_time(place: Place, samples: int) -> tuple[float, int]:
    """Compile a sample of the blobs by the project's own commands; return the CPU seconds that all
    blobs take, and the size of the sample."""
    blobs = {b.source: b for d in state.library_dirs(place.tmp) for b in load_ahead(d).records}
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
    """Make the project's call in a process of its own; return lazyck's messages, and the kernels
    that were launched."""
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


def is_by_kernel(place: Place, built: dict[str, Any], samples: int) -> dict[str, Any]:
    """Check that all of a built project is by kernel, and return what host units cost; end the
    program if a library has device code."""
    name = place.source.name
    say(
        f"{name}: {built['kernels']} kernels of {built['units']} files, {len(built['eager'])} eager, "
        f"{built['seconds']:.0f} s for host code"
    )
    for one in built["eager"]:
        say(f"{name}: eager: {one['source']} " + "; it ".join(reason["text"] for reason in one["reasons"]))
    for summary in summaries(place.tmp).values():
        if found := device_code(Path(str(summary["output"]))):
            sys.exit(f"{summary['output']} has device code: {', '.join(found)}")
    for kernel, reason in whole_sources(Path(place.environment["LAZYCK_CACHE_DIR"])):
        say(f"{name}: {kernel} has its whole source, for {reason}")
    suffixes = by_name("cuda").unit_suffixes
    blobs = {b.source: b for d in state.library_dirs(place.tmp) for b in load_ahead(d).records}
    sources = sorted(s for s in blobs if os.path.splitext(s)[1] in suffixes)
    costs = []
    for source in random.Random(0).sample(sources, min(samples, len(sources))):
        with tempfile.TemporaryDirectory(dir=place.work) as directory:
            costs.append(cost := cost_of(blobs[source], Path(directory), place.environment))
        say(
            f"{Path(source).name}: host unit {cost.unit:.1f} s CPU; ahead of time {cost.whole:.1f} s, "
            f"{cost.host:.1f} of them for the host"
        )
    if not costs:
        return {"samples": 0}
    unit, host, whole = (sum(getattr(c, part) for c in costs) for part in ("unit", "host", "whole"))
    say(f"{name}: host units take {unit / host:.2f} times the host's passes, {unit / whole:.0%} of all passes")
    # This is what the build would take if GPU sources took only their host passes, and lazyck
    # nothing.
    host_alone = built["cpu"] - built["own"] - (unit - host) * len(sources) / len(costs)
    say(f"{name}: the build takes {built['cpu']:.0f} s CPU, {built['cpu'] / host_alone:.2f} times all passes for hosts")
    return {
        "samples": len(costs),
        "of_host": unit / host,
        "of_whole": unit / whole,
        "build_of_host": built["cpu"] / host_alone,
    }


def main() -> None:
    """Prepare, build, call, compare and sample each project."""
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
        guessed = unused(events(Path(place.environment["LAZYCK_CACHE_DIR"])))
        say(f"{name}: the first call compiled {len(guessed)} blobs of which nothing was loaded")
        again, _ = call(place)
        if "compiled " not in compiled or "compiled " in again:
            sys.exit(f"expected compiles in the first process and none in the second: {compiled}\n{again}")
        check(place.tmp, 1, cwd=place.source, env=place.environment)
        if options.by_kernel:
            rows.append(
                {"project": name, **built, **is_by_kernel(place, built, options.samples), "kernel": launched[0]}
            )
            say(f"{name}: launched {launched[0]}")
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
