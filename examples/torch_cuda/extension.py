"""Build CUDA extensions of torch from PyPI lazily: what their examples share.

The steps are: fetch a project, build it with its own setup.py, check that nothing is undefined,
call one variant in two processes, and sample the cost of an ahead-of-time build.
"""

import ctypes
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent.parent)]

import stand_ins  # noqa: E402
from sources import Source, check, cpu_of_children, fetch, lazyck, summaries  # noqa: E402

from lazyck.postbuild.objects import elf  # noqa: E402
from lazyck.postbuild.probe.group import writing_to  # noqa: E402
from lazyck.toolchains import by_name  # noqa: E402

CHECKED = 2  # blobs that are compiled for the host to compare libraries: each takes minutes
REQUIREMENTS = ("torch", "ninja", "packaging", "psutil", "setuptools", "wheel")


@dataclass(frozen=True)
class Extension:
    """Describes a project: its archive, its extension module (or the file, where that has its own
    name), its blobs (patterns), and the variables that its setup.py reads."""

    source: Source
    module: str
    blobs: tuple[str, ...]
    variables: Mapping[str, str]


@dataclass(frozen=True)
class Place:
    """Holds where things are, whether torch has CUDA, and the environment of build and calls."""

    extension: Extension
    work: Path
    source: Path
    cuda_home: str
    has_cuda_torch: bool
    environment: dict[str, str]

    @property
    def tmp(self) -> Path:
        return self.work / "lazyck"

    @property
    def stand_ins(self) -> Path:
        return self.work / "stand-ins"

    @property
    def library(self) -> Path:
        module = self.extension.module
        return self.source / (module if module.endswith(".so") else f"{module}{sysconfig.get_config_var('EXT_SUFFIX')}")


def say(text: str) -> None:
    """Print one line of the script's own, among those of the build."""
    print(f"{Path(sys.argv[0]).stem}: {text}", flush=True)


def prepare(extension: Extension, work: Path, arch: str, source: Path | None = None) -> Place:
    """Fetch and unpack the project, unless `source` has it; find out about torch and CUDA. Calls
    compile for `arch`. End the program where something is missing."""
    missing = [name for name in REQUIREMENTS if find_spec(name) is None]
    if missing:
        sys.exit(f"this Python lacks {', '.join(missing)}: {sys.executable} -m pip install {' '.join(missing)}")
    import torch

    found = by_name("cuda").find(dict(os.environ))
    if found is None:
        sys.exit(f"no nvcc found (looked at {by_name('cuda').searched})")
    source = source or fetch(extension.source, work)
    libraries = [str(Path(torch.__file__).parent / "lib"), *(f"{found.home}/{d}" for d in ("lib64", "lib"))]
    if torch.version.cuda is None:
        libraries.insert(0, str(work / "stand-ins"))
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "LD_LIBRARY_PATH": os.pathsep.join([*libraries, *filter(None, [os.environ.get("LD_LIBRARY_PATH", "")])]),
        "PYTHONPATH": os.pathsep.join([str(source), *filter(None, [os.environ.get("PYTHONPATH", "")])]),
        "CUDA_HOME": found.home,
        "LAZYCK_CACHE_DIR": str(work / "cache"),
        "LAZYCK_ARCHS": arch,
        "MAX_JOBS": os.environ.get("MAX_JOBS", "2"),
        **extension.variables,
    }
    return Place(extension, work, source, found.home, torch.version.cuda is not None, environment)


# -- building --------------------------------------------------------------------------------------


def build(place: Place, checked: int = CHECKED, more: Sequence[str] = ()) -> tuple[float, float]:
    """Run `lazyck build full`, with `more` options, around setup.py; return wall and CPU seconds.

    End the program if the library differs from the one that setup.py makes ahead of time, by
    `checked` of its blobs; 0 means no comparison.
    """
    for old in (place.source / "build", place.tmp):
        shutil.rmtree(old, ignore_errors=True)
    place.library.unlink(missing_ok=True)
    command = [sys.executable, str(HERE / "as_cuda_torch.py"), "setup.py", "-q", "build_ext", "--inplace"]
    if not place.has_cuda_torch:
        stand_ins.make(place.stand_ins)
        command += ["-I", str(HERE / "include"), "-L", str(place.stand_ins)]
    begun, cpu = time.monotonic(), cpu_of_children()
    options = [word for pattern in place.extension.blobs for word in ("--blobs", pattern)]
    lazyck(
        "build",
        "full",
        "--toolchain",
        "cuda",
        *options,
        *more,
        "--tmp-dir",
        place.tmp,
        "--",
        *command,
        cwd=place.source,
        env=place.environment,
    )
    wall, cpu = time.monotonic() - begun, cpu_of_children() - cpu
    if not place.has_cuda_torch:
        lacking = stand_ins.undefined(place.library, place.environment)
        say(f"stand-ins for {len(lacking)} functions of libc10_cuda and libtorch_cuda, which this torch lacks")
        stand_ins.make(place.stand_ins, lacking)
    if checked:
        check(place.tmp, checked, cwd=place.source, env=place.environment)
    return wall, cpu


def check_symbols(place: Place, blobs: int, symbols: int, function: str) -> dict[str, Any]:
    """Return lazyck's summary. End the program unless all `blobs` are lazy with `symbols` stubs,
    all of these are exported and begin with `function` when demangled, and nothing is undefined."""
    (summary,) = summaries(place.tmp).values()
    exported = stand_ins.demangle(sorted(elf.read_shared(place.library).defined))
    own = [s for s in exported if s.startswith(function)]
    left = stand_ins.undefined(place.library, place.environment)
    say(f"{summary['lazy']} lazy blobs, {len(own)} of their functions are exported, {len(left)} symbols are undefined")
    if (summary["lazy"], summary["symbols"], len(own)) != (blobs, symbols, symbols) or left:
        sys.exit(f"expected {blobs} lazy blobs with {symbols} symbols and nothing undefined: {summary}, {left[:5]}")
    return dict(summary)


# -- calling ---------------------------------------------------------------------------------------

CALL = """
import ctypes, importlib, json, sys
import torch
importlib.import_module(sys.argv[2])
driver = ctypes.CDLL(sys.argv[1])
driver.call_forward.restype = ctypes.c_double
said = ctypes.create_string_buffer(4096)
seconds = driver.call_forward(said, ctypes.c_size_t(len(said)))
print(json.dumps({"seconds": seconds, "said": said.value.decode()}))
"""


def compile_driver(place: Place, source: Path, includes: list[str]) -> Path:
    """Compile the small library whose `call_forward` calls one variant; `includes` are directories
    of the project."""
    import torch.utils.cpp_extension as cpp_extension

    driver = place.work / "driver.so"
    directories = [*(str(place.source / i) for i in includes), *cpp_extension.include_paths()]
    directories += [f"{place.cuda_home}/include", str(HERE / "include")]
    argv = ["g++", "-std=c++20", "-O1", "-w", "-shared", "-fPIC", *(f"-I{d}" for d in directories)]
    subprocess.run([*argv, str(source), "-o", str(driver), str(place.library)], check=True)
    return driver


def call(place: Place, driver: Path) -> tuple[dict[str, Any], float, str]:
    """Call the variant in a process of its own; return its answer, CPU seconds, and lazyck's
    messages."""
    cpu = cpu_of_children()
    argv = [sys.executable, "-c", CALL, str(driver), place.extension.module]
    done = subprocess.run(argv, env=place.environment, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"the call failed: {done.stdout}{done.stderr}")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    spent = cpu_of_children() - cpu
    said = "".join(f"{line}\n" for line in done.stderr.splitlines() if line.startswith("[lazyck]"))
    say(f"call: {answer['seconds']:.3f} s ({spent:.0f} s CPU in all); {answer['said'] or 'launched'}")
    return answer, spent, said


def call_twice(place: Place, driver: Path, blob: str, launcher: str) -> tuple[dict[str, Any], dict[str, Any], float]:
    """Return the first call, the hit, and the CPU seconds of the first process.

    End the program if the second process compiles, or if without a GPU the CUDA error does not come
    from `launcher`, the project's own file.
    """
    shutil.rmtree(place.work / "cache", ignore_errors=True)
    first, cpu, compiled = call(place, driver)
    again, _, silent = call(place, driver)
    if not any(f"compiled {part} for" in compiled for part in (blob, f"{blob}.host")) or silent:
        sys.exit(f"expected compiles in the first process and none in the second: {compiled}\n{silent}")
    if not has_gpu() and not place.has_cuda_torch and launcher not in first["said"]:
        sys.exit(f"expected a CUDA error out of {launcher}: {first['said']}")
    return first, again, cpu


def has_gpu() -> bool:
    """Return whether the CUDA driver is there and has a device."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    count = ctypes.c_int()
    return driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0


def compare_on_gpu(place: Place, script: Path, needs: tuple[str, ...]) -> str:
    """Run `script`, which compares with torch's reference, or say why not. End the program if they
    do not agree."""
    if not has_gpu():
        return "skipped: no GPU"
    if not place.has_cuda_torch:
        return "skipped: this torch has no CUDA"
    lacking = [name for name in needs if find_spec(name) is None]
    if lacking:
        return f"skipped: {', '.join(lacking)} is not installed"
    environment = {k: v for k, v in place.environment.items() if k != "LAZYCK_ARCHS"}
    if subprocess.run([sys.executable, str(script)], env=environment).returncode != 0:
        sys.exit("the comparison with torch's reference failed")
    return "agrees"


# -- measuring -------------------------------------------------------------------------------------


def sample(place: Place, stem: str) -> float:
    """Return the CPU seconds of one blob, compiled with setup.py's own command."""
    (recorded,) = (place.source / "build").glob(f"temp.*/**/{stem}.o")
    (blob,), _ = elf.deferred_records(str(recorded))
    cpu = cpu_of_children()
    argv = writing_to(blob, place.work / "sample.o")
    with (place.work / "sample.log").open("w") as log:  # some projects ask ptxas to be verbose
        subprocess.run(argv, cwd=blob.call.cwd, env=place.environment, check=True, stdout=log, stderr=log)
    seconds = cpu_of_children() - cpu
    say(f"ahead of time: {stem}: {seconds:.0f} s CPU")
    return seconds
