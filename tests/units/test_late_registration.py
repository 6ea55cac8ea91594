"""Test that a host unit's kernels are registered when they are first used: in a library that
already has CUDA running, with the static and the shared runtime, and again after a compile that
failed."""

import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from gpu.stages.host_units import LATE
from support import Lazyck, Once
from support.cuda_machine import cuda_environment, cuda_home, needs_nvcc
from support.cuda_units import plain_names

pytestmark = [pytest.mark.cuda, needs_nvcc]

TESTS = Path(__file__).parent.parent
LATE_PROJECT = TESTS / "gpu" / "programs" / "late"
ARCH = "arch=compute_80,code=sm_80"
CALLS = ("ordinary", "double", "triple", "look up", "copy", "attribute", "reversed")
NO_DEVICE = 100  # cudaErrorNoDevice
FORBIDDEN = "forbids compiling it"
# In a process, `call` prints what a call returns or throws.
CALL = """
import ctypes, subprocess
x = ctypes.CDLL("./liblate.so")
def call(name):
    thrown = ctypes.create_string_buffer(4096)
    returned = x.call(name.encode(), thrown, len(thrown))
    print(returned if returned >= 0 else thrown.value.decode().splitlines()[0], flush=True)
"""


@dataclass(frozen=True)
class Built:
    """Describes `liblate.so` and its environment."""

    where: Path
    env: Mapping[str, str]

    def run(self, code: str, **more: str) -> list[str]:
        """Return the lines that a process prints in which `code` calls the library."""
        env = {**self.env, "LAZYCK_ARCHS": "80", **more}
        words = [sys.executable, "-S", "-c", CALL + code]
        done = subprocess.run(words, cwd=self.where, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.splitlines()

    def spied(self, spy: Path, code: str, **more: str) -> tuple[list[str], list[str]]:
        """Return what the process prints, and what the stand-in for the shared runtime was told."""
        log = self.where / "spy"
        log.write_text("")
        return self.run(code, LD_PRELOAD=str(spy), CUDA_SPY=str(log), **more), log.read_text().splitlines()

    def without_device(self, driver: Path, code: str, **more: str) -> list[str]:
        """Return what the process prints with NVIDIA's own runtime, over a driver without a device.
        Such a process does not show whether a kernel is found, which needs a GPU (`scripts/gpu
        host_units`)."""
        return self.run(code, LD_LIBRARY_PATH=f"{driver}:{cuda_home() / 'lib64'}", **more)

    def units(self) -> int:
        """Count the kernel units in its cache."""
        return len(list((self.where / "cache").rglob("*.so")))

    def forget(self) -> None:
        """Empty its cache."""
        shutil.rmtree(self.where / "cache", ignore_errors=True)


def build(lazyck: Lazyck, where: Path, cudart: str, *, is_lazy: bool, project: Path = LATE_PROJECT) -> Built:
    env = cuda_environment(where)
    env["PATH"] = f"{cuda_home()}/bin:{env['PATH']}"
    words = ["sh", str(project / "build.sh"), ARCH, cudart]
    if is_lazy:
        done = lazyck("build", "full", "--kernels", "*/kernels.cu", "--", *words, cwd=where, env=env)
        assert "4 kernels of 1 source, each compiled when it is first used" in done.stdout + done.stderr
    else:
        done = subprocess.run(words, cwd=where, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return Built(where, env)


@pytest.fixture(scope="session")
def driver(once: Once) -> Path:
    """Build `libcuda.so.1`, a driver without a device. Return its directory."""

    def make(where: Path) -> Path:
        words: list[str | Path] = ["c++", "-std=c++17", "-O1", "-fPIC", "-shared", "-Wl,-soname,libcuda.so.1"]
        subprocess.run([*words, TESTS / "support" / "cuda_driver.cpp", "-o", where / "libcuda.so.1"], check=True)
        return where

    return once("driver_without_device", make)


def build_both(
    lazyck: Lazyck, factory: pytest.TempPathFactory, cudart: str, project: Path = LATE_PROJECT
) -> tuple[Built, Built]:
    """Build the library lazily and ahead of time."""
    lazy, ahead = factory.mktemp(f"lazy-{cudart}"), factory.mktemp(f"ahead-{cudart}")
    return (
        build(lazyck, lazy, cudart, is_lazy=True, project=project),
        build(lazyck, ahead, cudart, is_lazy=False, project=project),
    )


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file of which the device code of the shared library's kernels does not compile
    while it exists."""
    return tmp_path_factory.mktemp("late") / "broken"


@pytest.fixture(scope="module")
def shared_both(tmp_path_factory: pytest.TempPathFactory, lazyck_shared: Lazyck, broken: Path) -> tuple[Built, Built]:
    """Build with the shared runtime, for which the spy can stand in."""
    project = Path(shutil.copytree(LATE_PROJECT, broken.parent / "project"))
    error = f'#if defined(__CUDA_ARCH__) && __has_include("{broken}")\n#error broken\n#endif\n'
    (project / "kernels.cu").write_text(error + (project / "kernels.cu").read_text())
    return build_both(lazyck_shared, tmp_path_factory, "shared", project)


@pytest.fixture(scope="module")
def static_both(tmp_path_factory: pytest.TempPathFactory, lazyck_shared: Lazyck) -> tuple[Built, Built]:
    return build_both(lazyck_shared, tmp_path_factory, "static")


@pytest.fixture(params=["shared", "static"])
def both(request: pytest.FixtureRequest) -> tuple[Built, Built]:
    """Return the lazy library and the one built ahead of time, with each of the runtimes. Nothing
    of the lazy one is compiled yet."""
    found: tuple[Built, Built] = request.getfixturevalue(f"{request.param}_both")
    found[0].forget()
    return found


@pytest.fixture
def fresh(shared_both: tuple[Built, Built]) -> Built:
    """Return the lazy library, of which nothing is compiled yet."""
    lazy, _ = shared_both
    lazy.forget()
    return lazy


def calls(*names: str) -> str:
    """Return code that makes these calls."""
    return "".join(f"call({name!r})\n" for name in names)


def short(line: str) -> str:
    """Shorten a line of the spy to its verb and the short name of a kernel or variable: `launch
    double`."""
    names = {"ordinary": "ordinary", "scaleIf": "double", "scaleId": "triple", "reversed": "reversed"}
    names |= {"look_up": "look up", "tableE": "table"}
    what, _, name = line.partition(" ")
    return " ".join([what, *(shown for part, shown in names.items() if part in name)])


def used(seen: list[str]) -> list[tuple[str, str]]:
    """Return what was asked for or launched, each with the code of the kernel or `variable`."""
    code: dict[str, str] = {}
    found = []
    for line in seen:
        line = plain_names(line)
        what, _, rest = line.partition(" ")
        name, _, more = rest.partition(" ")
        if what == "register":
            code[name] = more
        elif rest:
            found.append((line, code.get(name, "UNREGISTERED")))
    return found


def test_an_ordinary_kernel_is_launched_before_a_late_one_is_registered(fresh: Built, spy: Path) -> None:
    returned, seen = fresh.spied(spy, calls("ordinary", "double", "ordinary"))
    assert returned == ["0", "0", "0"]
    assert [short(line) for line in seen] == [
        *("image", "register ordinary", "end", "launch ordinary"),
        *("image", "register double", "end", "launch double"),
        "launch ordinary",
    ]


def test_a_second_launch_registers_and_compiles_nothing(fresh: Built, spy: Path) -> None:
    returned, seen = fresh.spied(spy, calls("double", "double"))
    assert returned == ["0", "0"]
    assert [short(line) for line in seen][3:] == ["image", "register double", "end", "launch double", "launch double"]
    assert fresh.units() == 1


def test_an_attribute_before_the_first_launch_is_of_the_kernel_that_is_launched(fresh: Built, spy: Path) -> None:
    returned, seen = fresh.spied(spy, calls("attribute", "reversed"))
    assert returned == ["0", "0"]
    assert [short(line) for line in seen][3:] == [
        "image",
        "register reversed",
        "end",
        "ask reversed",
        "launch reversed",
    ]
    assert seen[-1].endswith(" asked")


@pytest.mark.parametrize("order", [("copy", "look up"), ("look up", "copy")], ids=["first", "after"])
def test_a_constant_is_in_the_image_of_the_kernel_that_reads_it(
    fresh: Built, spy: Path, order: tuple[str, str]
) -> None:
    returned, seen = fresh.spied(spy, calls(*order))
    assert returned == ["0", "0"]
    images = "\n".join(map(short, seen)).split("image\n")
    (with_table,) = [image.splitlines() for image in images if "register table" in image]
    assert "register look up" in with_table
    assert [line for line in with_table if not line.startswith(("register", "end"))] == [
        {"copy": "ask table", "look up": "launch look up"}[name] for name in order
    ]


@pytest.mark.parametrize("name", CALLS)
def test_a_call_reaches_what_it_does_ahead_of_time(shared_both: tuple[Built, Built], spy: Path, name: str) -> None:
    lazy, ahead = (library.spied(spy, calls("ordinary", name)) for library in shared_both)
    assert lazy[0] == ahead[0] == ["0", "0"]
    assert used(lazy[1]) == used(ahead[1])
    assert "UNREGISTERED" not in dict(used(lazy[1])).values() and len(used(lazy[1])) == 2


def test_a_launch_that_threw_works_when_it_may_compile(fresh: Built, spy: Path) -> None:
    code = calls("double", "double", "attribute", "copy", "ordinary") + "x.lazyck_forbid_jit(0)\n" + calls("double")
    returned, seen = fresh.spied(spy, code, LAZYCK_JIT="off")
    assert all(FORBIDDEN in line for line in returned[:4]), returned
    assert returned[4:] == ["0", "0"]
    assert [short(line) for line in seen][3:] == ["launch ordinary", "image", "register double", "end", "launch double"]


def test_a_launch_that_threw_works_when_another_process_has_compiled(fresh: Built, spy: Path) -> None:
    other = [sys.executable, "-S", "-c", CALL + calls("double")]
    environment = {**fresh.env, "LAZYCK_ARCHS": "80", "LD_PRELOAD": str(spy), "CUDA_SPY": "/dev/null"}
    code = f"{calls('double')}subprocess.run({other}, check=True, capture_output=True, env={environment})\n"
    returned, seen = fresh.spied(spy, code + calls("double"), LAZYCK_JIT="off")
    assert FORBIDDEN in returned[0] and returned[1:] == ["0"]
    assert [short(line) for line in seen][3:] == ["image", "register double", "end", "launch double"]


def test_a_launch_whose_compile_failed_works_when_failures_are_cleared(fresh: Built, spy: Path, broken: Path) -> None:
    broken.touch()
    fix = f"import os; os.remove({str(broken)!r})\n"
    code = calls("double", "ordinary") + fix + calls("double") + "x.lazyck_clear_failures()\n" + calls("double")
    (first, ordinary, again, last), seen = fresh.spied(spy, code)
    assert "cannot compile blob" in first and again == first
    assert (ordinary, last) == ("0", "0")
    assert [short(line) for line in seen][3:] == ["launch ordinary", "image", "register double", "end", "launch double"]


@pytest.mark.parametrize("proof", LATE)
def test_the_real_runtime_over_no_device_says_what_it_does_ahead_of_time(
    both: tuple[Built, Built], driver: Path, proof: str
) -> None:
    code = f"x.prove({proof.encode()!r})\n"
    lazy, ahead = (library.without_device(driver, code) for library in both)
    assert lazy == ahead and all("cudaErrorNoDevice" in line for line in lazy) and lazy
    assert both[0].units() > 0, "the kernels were compiled and registered"


def test_the_real_runtime_is_told_of_a_kernel_that_could_not_be_compiled_at_first(
    both: tuple[Built, Built], driver: Path
) -> None:
    lazy, _ = both
    code = calls("ordinary", "double", "copy") + "x.lazyck_forbid_jit(0)\n" + calls("double", "copy", "double")
    first, thrown, thrown_too, *others = lazy.without_device(driver, code, LAZYCK_JIT="off")
    assert FORBIDDEN in thrown and FORBIDDEN in thrown_too
    assert [first, *others] == [str(NO_DEVICE)] * 4
