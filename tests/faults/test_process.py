"""Tests what happens to the process itself: clocks, locks, two versions of a library, unloading."""

import errno
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support.faultlib import GOOD, Patient
from support.lazylib import SOURCES, LazyLibrary, build_lazy_library
from support.small_library import BLOBS, HEADER, MAIN, SYMBOLS

Build = Callable[..., LazyLibrary]

TEN_YEARS = "315360000"


def test_clock_that_jumps_by_years(patient: Patient) -> None:
    env = {"LD_PRELOAD": str(patient.shim), "FAULT_PROGRAM": patient.program.name, "FAULT_CLOCK": TEN_YEARS}
    for _ in range(3):
        done = patient.call(env=env)
        assert (done.returncode, done.stdout) == (0, GOOD), done
    assert patient.lib.compiles() == 2
    for entry in patient.entries():
        entry.write_bytes(entry.read_bytes()[:-1])
    done = patient.call(env=env)
    assert (done.returncode, done.stdout) == (0, GOOD), done
    patient.expect_recovery()


def test_files_from_the_future(patient: Patient) -> None:
    patient.expect_recovery()
    for path in patient.cache.rglob("*"):
        os.utime(path, (4e9, 4e9))
    done = patient.expect_recovery()
    assert done.stderr == ""
    assert patient.lib.compiles() == 2


@pytest.mark.parametrize("how", ["ENOLCK", "EOPNOTSUPP", "ENOSYS", "EIO", "lies"])
def test_file_system_without_working_locks(patient: Patient, how: str) -> None:
    error = "0" if how == "lies" else str(getattr(errno, how))
    env = {"LD_PRELOAD": str(patient.shim), "FAULT_PROGRAM": patient.program.name, "FAULT_FLOCK": error}
    processes = [patient.start(env=env) for _ in range(4)]
    said = []
    for process in processes:
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out) == (0, GOOD), err
        said.append(err.count(os.strerror(int(error))))
    # The error is reported once, and the compile goes on without a lock. A late process finds
    # everything compiled, and needs no lock.
    assert how == "lies" or (1 in said and max(said) == 1), said
    assert len(patient.entries()) == 2
    patient.expect_recovery()


@pytest.mark.parametrize("kind", {"NFS": 0x6969, "SMB 2": 0xFE534D42, "9P": 0x01021997}.values(), ids=hex)
def test_entry_of_another_hosts_file_system_is_loaded_by_way_of_memory(patient: Patient, kind: int) -> None:
    # Otherwise, if the other host deletes the entry, the process ends at the next page that it
    # reads of it.
    env = {"LD_PRELOAD": str(patient.shim), "FAULT_PROGRAM": patient.program.name, "FAULT_FSTYPE": str(kind)}
    for _ in range(2):
        done = patient.call(env=env)
        assert (done.returncode, done.stdout) == (0, GOOD + "from memory\n"), done
    assert patient.lib.compiles() == 2
    patient.expect_recovery()


@pytest.fixture
def version(tmp_path: Path, objects_dir: Path) -> Build:
    """Return a function that builds version `number` of a library, whose `add` returns the sum plus
    `number`."""

    def build(number: int, name: str = "demo") -> LazyLibrary:
        directory = tmp_path / f"version-{number}"
        directory.mkdir()
        blobs = {**BLOBS, "add": f'#include "demo.h"\nint add(int a, int b) {{ return a + b + {number}; }}\n'}
        return build_lazy_library(
            directory, objects_dir, blobs, MAIN,
            header=HEADER, symbols=SYMBOLS, name=name,
        )  # fmt: skip

    return build


LOADS = r"""
#include "lazyck.h"
#include <cstdio>
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>
void* open(const char* path) {
    void* handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) std::puts(dlerror());
    return handle;
}
int call(void* handle) { return reinterpret_cast<int (*)(int)>(dlsym(handle, "_Z3usei"))(4); }
int forked(void* handle) {
    const pid_t child = fork();
    if (child == 0) _exit(handle == nullptr ? 0 : call(handle));
    int status = -1;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}
"""


def run_program(lib: LazyLibrary, source: str, *words: Path) -> str:
    main = lib.directory / "loads.cpp"
    main.write_text(LOADS + source)
    program = lib.directory / "loads"
    subprocess.run(["g++", "-g", f"-I{SOURCES}", str(main), "-o", str(program), "-ldl", "-pthread"], check=True)
    done = lib.call(program, *words)
    assert done.returncode == 0, done
    return done.stdout


@pytest.mark.parametrize("names", [("demo1", "demo2"), ("demo", "demo")])
def test_two_versions_of_a_library_in_one_process(version: Build, names: tuple[str, str]) -> None:
    one, two = (version(n + 1, name) for n, name in enumerate(names))
    source = r"""
    int main(int, char** argv) {
        void *one = open(argv[1]), *two = open(argv[2]);
        std::printf("%d %d %d %d\n", call(one), call(two), call(one), call(two));
    }
    """
    for _ in range(2):
        assert run_program(one, source, one.library, two.library) == "9 10 9 10\n"
    assert (one.compiles(), two.compiles()) == (1, 1)


@pytest.mark.parametrize("is_cold", [True, False])
def test_library_that_is_unloaded_and_loaded_again(version: Build, is_cold: bool) -> None:
    lib = version(1)
    source = r"""
    int main(int, char** argv) {
        for (int i = 0; i < 5; ++i) {
            void* handle = open(argv[1]);
            std::printf("%d %d ", call(handle), forked(handle));
            dlclose(handle);
            std::printf("%d %d\n", forked(nullptr), dlopen(argv[1], RTLD_NOW | RTLD_NOLOAD) != nullptr);
        }
    }
    """
    if not is_cold:
        run_program(lib, source, lib.library)
    assert run_program(lib, source, lib.library) == 5 * "9 9 0 0\n"
    assert lib.compiles() == 1


def test_unloading_before_the_first_call_leaves_nothing_behind(version: Build) -> None:
    lib = version(1)
    source = r"""
    int main(int, char** argv) {
        for (int i = 0; i < 3; ++i) {
            void* handle = open(argv[1]);
            lazyck_stats stats = {};
            stats.size = sizeof stats;
            // The runtime is at work from here on, with its handlers of fork, but no blob is loaded.
            reinterpret_cast<int (*)(lazyck_stats*)>(dlsym(handle, "lazyck_get_stats"))(&stats);
            std::printf("%d ", static_cast<int>(stats.blobs));
            dlclose(handle);
            std::printf("%d %d\n", dlopen(argv[1], RTLD_NOW | RTLD_NOLOAD) != nullptr, forked(nullptr));
        }
    }
    """
    assert run_program(lib, source, lib.library) == 3 * "2 0 0\n"
