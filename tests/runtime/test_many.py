"""Test many callers at once, and what interrupts them: locks that wait and give up, slots of the
host, signals, kills."""

import contextlib
import fcntl
import json
import os
import platform
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from support import Machine, on_each_machine, on_each_machine_with_sanitizers, wait_until, with_sanitizers
from support.four_blobs import CALLER, NAMES, all_want_all, four_blob_libraries, slow_compiler, start
from support.lazylib import LazyLibrary, as_new, build_lazy_library

from lazyck import abi

# Only the sleeps of this process's tests have this duration in seconds, so the tests can find them
# by it.
NAP = f"7777{os.getpid()}"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, objects_dir: Path) -> Callable[[Machine], LazyLibrary]:
    return four_blob_libraries(tmp_path_factory, objects_dir)


@pytest.fixture
def lib(shared: Callable[[Machine], LazyLibrary], machine: Machine) -> LazyLibrary:
    return as_new(shared(machine))


def open_files(pid: int) -> set[str]:
    """Return the paths of the files that a process has open, except those that it closes
    meanwhile."""
    found = set()
    for fd in Path(f"/proc/{pid}/task").glob("*/fd/*"):
        with contextlib.suppress(FileNotFoundError):
            found.add(os.readlink(fd))
    return found


def is_running(marker: str) -> bool:
    """Return whether a process of this machine has `marker` in its command line."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if marker.encode() in path.read_bytes():
                return True
        except OSError:
            continue
    return False


# These shell commands wait until the test calls `go`.
UNTIL_GO = 'while [ ! -e "$0.go" ]; do sleep 0.02; done'


def go(lib: LazyLibrary) -> None:
    """Let compilers go on that wait (`UNTIL_GO`)."""
    lib.compiler.with_name(f"{lib.compiler.name}.go").touch()


def works(lib: LazyLibrary) -> None:
    """Check that a normal run works afterwards: the results are correct, and each blob has one
    entry."""
    done = lib.call(lib.directory / "main", "1", "2", "3", "4")
    assert done.returncode == 0, done
    assert len(lib.entries()) == 4


# -- many ------------------------------------------------------------------------------------------


@on_each_machine_with_sanitizers
def test_processes_that_want_the_same_blobs_in_any_order_compile_each_once(lib: LazyLibrary) -> None:
    orders = [(1, 2, 3, 4), (4, 3, 2, 1), (2, 4, 1, 3), (3, 1, 4, 2)] * 4
    running = [start(lib, *order) for order in orders]
    assert [p.wait(300) for p in running] == [0] * len(orders)
    assert [lib.compiles(n) for n in NAMES] == [1, 1, 1, 1]
    for p in running:
        p.communicate()


@on_each_machine_with_sanitizers
def test_threads_and_processes_that_all_want_all_blobs_compile_each_once(lib: LazyLibrary) -> None:
    all_want_all(lib)


@on_each_machine_with_sanitizers
def test_a_waiter_names_the_holder_and_after_its_patience_compiles_itself(lib: LazyLibrary) -> None:
    slow_compiler(lib, f'[ -e "$0.first" ] || {{ : > "$0.first"; {UNTIL_GO}; }}')
    holder = start(lib, 1, env={"RANK": "7"})
    wait_until(lambda: lib.compiles("one") == 1)
    waiter = start(lib, 1, env={abi.ENV_LOCK_TIMEOUT: "0.5", abi.ENV_LOG_FORMAT: "json"})
    said = waiter.communicate(timeout=60)[1]
    assert waiter.returncode == 0, said
    (wait,) = (line for line in map(json.loads, said.splitlines()) if line["event"] == "wait")
    assert re.search(rf"waiting for one .*process {holder.pid} on \S+ \(rank 7\) since \d{{4}}-", wait["message"]), said
    assert "compiling it here too" in wait["message"]
    assert (wait["blob"], wait["outcome"], wait["seconds"] >= 0.5) == ("one", "gave_up", True)
    assert lib.compiles("one") == 2
    go(lib)
    assert holder.communicate(timeout=60) and holder.returncode == 0
    works(lib)


@pytest.mark.parametrize("patience", ["1", ""], ids=["patience", "stopped"])
def test_a_stopped_process_does_not_keep_its_compile_slot_for_ever(lib: LazyLibrary, patience: str) -> None:
    slow_compiler(lib, '[ -e "$0.first" ] || { : > "$0.first"; sleep 1; }')
    env = {abi.ENV_JOBS: "1"}
    holder = start(lib, 1, env=env)
    wait_until(lambda: lib.compiles("one") == 1)
    holder.send_signal(signal.SIGSTOP)
    try:
        # The waiter goes on when its patience ends, or at once because the kernel says that the
        # holder is stopped, however long the patience is.
        waiter = start(lib, 2, env={**env, abi.ENV_LOCK_TIMEOUT: patience})
        said = waiter.communicate(timeout=60)[1]
        assert waiter.returncode == 0, said
        wanted = rf"two for \S+ goes on without waiting for process {holder.pid} \(stopped\), which has held"
        assert re.search(wanted, said), said
    finally:
        holder.send_signal(signal.SIGCONT)
    assert holder.communicate(timeout=60) and holder.returncode == 0
    works(lib)


def test_in_the_place_of_a_slot_that_is_passed_over_there_is_one_more(lib: LazyLibrary) -> None:
    # A compile is far shorter than the patience, so that nobody's own slot is passed over.
    slow_compiler(lib, 'echo begin >> "$0.order"; sleep 0.1; echo end >> "$0.order"; : ')
    env = {abi.ENV_JOBS: "1", abi.ENV_LOCK_TIMEOUT: "3"}
    slots = lib.cache / ".slots" / platform.node()
    slots.mkdir(parents=True, mode=0o700)
    for path in (lib.cache, lib.cache / ".slots"):
        path.chmod(0o700)
    with (slots / "slot-0").open("w") as taken:
        taken.write("1000 0\n")
        taken.flush()
        (slots / "slot-0").chmod(0o600)
        fcntl.flock(taken, fcntl.LOCK_EX)
        for process in [start(lib, i, env=env) for i in (1, 2, 3)]:
            said = process.communicate(timeout=60)[1]
            assert process.returncode == 0, said
    order = lib.compiler.with_name("cxx.order").read_text().split()
    assert order == ["begin", "end"] * 3  # still one at a time


def test_who_decides_about_slots_and_is_stopped_is_passed_over(lib: LazyLibrary) -> None:
    slots = lib.cache / ".slots" / platform.node()
    slots.mkdir(parents=True, mode=0o700)
    for path in (lib.cache, lib.cache / ".slots"):
        path.chmod(0o700)
    script = "import fcntl, os, signal, sys; f = open(sys.argv[1], 'w'); os.fchmod(f.fileno(), 0o600)\n"
    script += "fcntl.flock(f, fcntl.LOCK_EX); print(flush=True); os.kill(os.getpid(), signal.SIGSTOP)"
    admission = str(slots / "admission")
    with subprocess.Popen([sys.executable, "-c", script, admission], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "\n"
        try:
            waiter = start(lib, 1, env={abi.ENV_LOCK_TIMEOUT: "1"})
            said = waiter.communicate(timeout=60)[1]
        finally:
            holder.kill()
    assert waiter.returncode == 0, said
    assert f"process {holder.pid} (stopped), which holds '{admission}'; giving up" in said, said


@on_each_machine
def test_a_waiter_takes_the_entry_while_the_lock_is_still_held(lib: LazyLibrary) -> None:
    """The lock thus need not pass from each of many waiters to the next."""
    assert lib.call(lib.directory / "main", "1").returncode == 0
    (entry,), (lock,) = lib.entries(), (lib.cache / ".locks").glob("one-*.lock")
    aside = entry.rename(lib.directory / "aside")
    with lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        waiter = start(lib, 1)
        wait_until(lambda: str(lock) in open_files(waiter.pid))
        aside.rename(entry)
        assert waiter.communicate(timeout=60) and waiter.returncode == 0
    assert lib.compiles("one") == 1


@on_each_machine_with_sanitizers
def test_a_killed_holder_takes_its_compiler_along_and_the_waiter_goes_on(lib: LazyLibrary) -> None:
    slow_compiler(lib, f'[ -e "$0.first" ] || {{ : > "$0.first"; exec sleep {NAP}.1; }}')
    holder = start(lib, 1)
    wait_until(lambda: is_running(f"{NAP}.1"))
    waiter = start(lib, 1)
    (lock,) = (lib.cache / ".locks").glob("one-*.lock")
    wait_until(lambda: str(lock) in open_files(waiter.pid))
    os.kill(holder.pid, signal.SIGKILL)
    holder.communicate()
    assert waiter.communicate(timeout=60) and waiter.returncode == 0
    wait_until(lambda: not is_running(f"{NAP}.1"), 5)
    works(lib)


@on_each_machine
def test_a_forked_child_does_not_keep_the_lock_of_a_killed_holder(lib: LazyLibrary) -> None:
    lib.program(
        r"""
    #include "demo.h"
    #include <cstdio>
    #include <thread>
    #include <unistd.h>
    int main(int, char** argv) {
        std::thread caller([] { call(1, 1); });
        while (access(argv[1], F_OK) != 0) usleep(10000);
        const pid_t child = fork();
        if (child == 0) { sleep(60); _exit(0); }
        std::printf("%d\n", child);
        std::fflush(stdout);
        caller.join();
    }
    """,
        "forks_and_stays",
    )
    slow_compiler(lib, f'[ -e "$0.first" ] || {{ : > "$0.first"; exec sleep {NAP}.2; }}')
    holder = start(lib, f"{lib.compiler}.first", name="forks_and_stays")
    assert holder.stdout is not None
    child = int(holder.stdout.readline())
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    try:
        # The call must not wait for the child's end. If the child kept the lock, the call would say
        # that it waits.
        done = lib.call(lib.directory / "main", "1", env={abi.ENV_LOCK_TIMEOUT: "10"})
        assert done.returncode == 0 and "waiting for" not in done.stderr, done
        os.kill(child, 0)  # the child is alive
        works(lib)
    finally:
        os.kill(child, signal.SIGKILL)
        holder.communicate()


@with_sanitizers  # QEMU's emulation aborts if a child of a process with several threads starts one
def test_a_child_forked_while_all_slots_are_taken_compiles_when_they_are_free(lib: LazyLibrary) -> None:
    lib.program(
        r"""
    #include "demo.h"
    #include <fcntl.h>
    #include <sys/wait.h>
    #include <thread>
    #include <unistd.h>
    int main(int, char** argv) {
        std::thread one([] { call(1, 1); });
        std::thread two([] { call(2, 1); });
        while (access(argv[1], F_OK) != 0) usleep(10000);
        usleep(100 * 1000);  // the other thread waits by then
        const pid_t child = fork();
        if (child == 0) _exit(call(1, 1) == 2 && call(2, 1) == 3 && call(3, 1) == 4 ? 0 : 1);
        usleep(100 * 1000);  // and the child, too
        close(open(argv[2], O_CREAT | O_WRONLY, 0600));
        int status = 1;
        waitpid(child, &status, 0);
        one.join();
        two.join();
        return status == 0 && call(4, 1) == 5 ? 0 : 1;
    }
    """,
        "forks",
    )
    slow_compiler(lib, f': > "$0.first"; {UNTIL_GO}')
    env = {abi.ENV_JOBS: "1", "TSAN_OPTIONS": "die_after_fork=0"}
    running = start(lib, f"{lib.compiler}.first", f"{lib.compiler}.go", name="forks", env=env)
    said = running.communicate(timeout=60)[1]
    assert running.returncode == 0, said
    assert [lib.compiles(n) for n in NAMES] == [1, 1, 1, 1]


# -- slots -----------------------------------------------------------------------------------------


def most_at_a_time(lib: LazyLibrary, env: Mapping[str, str], meanwhile: str = "sleep 0.3") -> int:
    """Let four processes compile a blob each, and each compiler run the shell commands `meanwhile`.
    Return the largest number of compilers that ran at the same time."""
    log = lib.compiler.with_name("cxx.log")
    slow_compiler(lib, f'echo "+" >> "$0.log"; {meanwhile}; echo "-" >> "$0.log"')
    running = [start(lib, i, env=env) for i in (1, 2, 3, 4)]
    said = [p.communicate(timeout=120)[1] for p in running]
    assert [p.returncode for p in running] == [0] * 4, said
    now = most = 0
    for line in log.read_text().split():
        now += 1 if line == "+" else -1
        most = max(most, now)
    return most


@on_each_machine_with_sanitizers
def test_processes_share_the_jobs_of_the_host(lib: LazyLibrary) -> None:
    assert most_at_a_time(lib, {abi.ENV_JOBS: "1"}) == 1


def test_processes_with_more_jobs_compile_at_the_same_time(lib: LazyLibrary) -> None:
    until_two = 'for i in $(seq 600); do [ "$(grep -c + "$0.log")" -gt 1 ] && break; sleep 0.05; done'
    assert most_at_a_time(lib, {abi.ENV_JOBS: "4", abi.ENV_MEM_PER_JOB: "0"}, until_two) > 1


def test_compiles_that_do_not_fit_into_memory_run_one_after_the_other(lib: LazyLibrary) -> None:
    assert most_at_a_time(lib, {abi.ENV_JOBS: "4", abi.ENV_MEM_PER_JOB: "4000G"}) == 1


@pytest.mark.slow
def test_sixteen_ranks_that_together_want_more_memory_than_there_is_all_finish(
    tmp_path: Path, objects_dir: Path
) -> None:
    (tmp_path / "lib").mkdir()
    names = [f"f{i}" for i in range(16)]
    lib = build_lazy_library(
        tmp_path / "lib", objects_dir,
        {n: f'#include "demo.h"\nint {n}(int x) {{ return x + {n[1:]}; }}\n' for n in names},
        '#include "demo.h"\nint call(int which, int x) { switch (which) {\n'
        + "".join(f"case {n[1:]}: return {n}(x);\n" for n in names) + "} return 0; }\n",
        header="#pragma once\nint call(int, int);\n" + "".join(f"int {n}(int);\n" for n in names),
        symbols={n: (f"_Z{len(n)}{n}i",) for n in names},
    )  # fmt: skip
    lib.program(CALLER)
    free = next(int(line.split()[1]) for line in Path("/proc/meminfo").read_text().splitlines() if "MemAvail" in line)
    each = min(4 << 20, free // 5)  # KiB; five fit into memory at a time, sixteen never do
    # It has the memory for a while.
    slow_compiler(lib, f"python3 -c 'import time; x = bytearray({each} << 10); time.sleep(1)'")
    running = [start(lib, i, env={"RANK": str(i), abi.ENV_JOBS: "16"}) for i in range(16)]
    said = [p.communicate(timeout=600)[1] for p in running]
    assert [p.returncode for p in running] == [0] * 16, said
    assert not any("killed" in text for text in said)
    assert len(lib.entries()) == 16


def test_what_a_compile_took_is_the_next_one_s_reservation(lib: LazyLibrary) -> None:
    fat = "/usr/bin/env python3 -c 'x = bytearray(300 << 20)'"
    slow_compiler(lib, fat)
    assert lib.call(lib.directory / "main", "1").returncode == 0
    (costs,) = (lib.cache / ".costs").iterdir()
    seconds, peak, name, archs = costs.read_text().split()
    assert (name, archs) == ("one", platform.machine())
    assert float(seconds) > 0
    assert 300 << 10 < int(peak) < 600 << 10
    for entry in lib.entries():
        entry.unlink()
    slow_compiler(lib, UNTIL_GO)
    again = start(lib, 1)
    slot = lib.cache / ".slots"
    wait_until(
        lambda: any(
            f.read_text().split()[0] == str(int(peak) + int(peak) // 5) for f in slot.glob("*/slot-*") if f.read_text()
        )
    )
    go(lib)
    said = again.communicate(timeout=60)[1]
    assert "compiling one for" in said and "(about " in said


def test_a_compiler_killed_for_memory_is_started_once_more_with_more_room(lib: LazyLibrary) -> None:
    slow_compiler(lib, '[ -e "$0.first" ] || { : > "$0.first"; kill -9 $$; }')
    done = lib.call(lib.directory / "main", "1")
    assert (done.returncode, lib.compiles("one")) == (0, 2), done
    assert "the compiler of one for" in done.stderr and "ran out of memory: retrying" in done.stderr
    (costs,) = (lib.cache / ".costs").iterdir()
    killed, good = costs.read_text().splitlines()
    assert f" !one {platform.machine()}" in killed and int(killed.split()[1]) == 2 * 4 * 1024 * 1024
    assert f" one {platform.machine()}" in good


def test_a_compiler_that_is_always_killed_is_started_twice_by_a_call(lib: LazyLibrary) -> None:
    slow_compiler(lib, "kill -9 $$")
    done = lib.call(lib.directory / "main", "1")
    assert (done.returncode, lib.compiles("one")) == (3, 2), done
    assert "killed by signal 9" in done.stdout


# -- time ------------------------------------------------------------------------------------------


@with_sanitizers
def test_a_compiler_that_hangs_is_killed_with_all_that_it_started(lib: LazyLibrary) -> None:
    slow_compiler(lib, f'[ -e "$0.first" ] || {{ : > "$0.first"; echo begun; sleep {NAP}.3 & sleep {NAP}.3; }}')
    done = lib.call(lib.directory / "main", "1", env={abi.ENV_COMPILE_TIMEOUT: "0.5"})
    assert done.returncode == 3
    assert f"took longer than 0.5 s ({abi.ENV_COMPILE_TIMEOUT}) and was killed" in done.stdout
    log = re.search(r"log: (\S+)", done.stdout)
    assert log and "begun" in Path(log[1]).read_text()
    wait_until(lambda: not is_running(f"{NAP}.3"), 5)
    works(lib)


def test_a_long_compile_says_that_it_is_alive_and_whose_it_is(lib: LazyLibrary) -> None:
    slow_compiler(lib, "sleep 2.5")
    said = lib.call(lib.directory / "main", "1", env={"RANK": "3"}).stderr
    assert re.search(r"^\[lazyck\] \[rank 3\] still compiling one for \w+ \(2\.\d s\)$", said, re.M), said


# -- signals ---------------------------------------------------------------------------------------


def test_ctrl_c_ends_program_and_compiler_and_leaves_no_half_entry(lib: LazyLibrary) -> None:
    slow_compiler(lib, f'[ -e "$0.first" ] || {{ : > "$0.first"; sleep {NAP}.4; }}')
    running = start(lib, 1)
    wait_until(lambda: is_running(f"{NAP}.4"))
    os.killpg(running.pid, signal.SIGINT)  # as a terminal does
    running.communicate(timeout=30)
    assert running.returncode == -signal.SIGINT
    wait_until(lambda: not is_running(f"{NAP}.4"), 5)
    assert not lib.entries()
    works(lib)


@with_sanitizers
def test_ctrl_c_in_a_program_that_handles_it_ends_the_call(lib: LazyLibrary) -> None:
    lib.program(
        r"""
    #include "demo.h"
    #include "error.hpp"
    #include <csignal>
    #include <cstdio>
    static volatile std::sig_atomic_t seen = 0;
    int main() {
        std::signal(SIGINT, [](int) { seen = 1; });
        try { call(1, 1); } catch (const lazyck::CompileError& e) { std::printf("%d %s\n", seen, e.what()); }
        return call(1, 1) == 2 ? 0 : 1;
    }
    """,
        "handles",
    )
    slow_compiler(lib, f'[ -e "$0.first" ] || {{ : > "$0.first"; sleep {NAP}.5; }}')
    # The script uses bash, because dash unblocks all signals and would hide that they are blocked.
    lib.compiler.write_text(lib.compiler.read_text().replace("#!/bin/sh", "#!/usr/bin/env bash", 1))
    running = start(lib, name="handles")
    wait_until(lambda: is_running(f"{NAP}.5"))
    os.killpg(running.pid, signal.SIGINT)
    out, err = running.communicate(timeout=60)
    assert running.returncode == 0, out + err
    assert out.startswith("1 lazyck: cannot compile blob 'one'"), out
    works(lib)


@pytest.mark.parametrize("handler", ["SIG_IGN", "[](int) { while (waitpid(-1, nullptr, WNOHANG) > 0) {} }"])
def test_the_compilers_exit_is_read_whatever_the_program_does_with_children(lib: LazyLibrary, handler: str) -> None:
    lib.program(
        f"""
    #include "demo.h"
    #include "error.hpp"
    #include <csignal>
    #include <cstdio>
    #include <sys/wait.h>
    int main() {{
        signal(SIGCHLD, {handler});
        try {{ call(1, 1); }} catch (const lazyck::CompileError& e) {{ std::puts(e.what()); }}
        const bool has_zombie = waitpid(-1, nullptr, WNOHANG | __WALL) > 0;
        return has_zombie ? 1 : 0;
    }}
    """,
        "children",
    )
    slow_compiler(lib, "echo 'error: no'; exit 42")
    done = lib.call(lib.directory / "children")
    assert done.returncode == 0
    assert "exit status 42" in done.stdout


@on_each_machine_with_sanitizers
@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_cancelled_thread_finishes_its_compile(lib: LazyLibrary, asynchronous: bool) -> None:
    lib.program(
        r"""
    #include "demo.h"
    #include <pthread.h>
    #include <unistd.h>
    static void* work(void*) {
        if (IS_ANY_TIME) pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, nullptr);
        call(1, 1);
        if (!IS_ANY_TIME) pthread_testcancel();
        return nullptr;
    }
    int main(int, char** argv) {
        pthread_t thread;
        pthread_create(&thread, nullptr, work, nullptr);
        while (access(argv[1], F_OK) != 0) usleep(10000);
        pthread_cancel(thread);
        void* result = nullptr;
        pthread_join(thread, &result);
        return result == PTHREAD_CANCELED && call(1, 1) == 2 ? 0 : 1;
    }
    """.replace("IS_ANY_TIME", str(int(asynchronous))),
        "cancels",
    )
    slow_compiler(lib, ': > "$0.first"; sleep 0.2')
    done = lib.call(lib.directory / "cancels", f"{lib.compiler}.first")
    assert done.returncode == 0, done
    assert lib.compiles("one") == 1


def test_a_program_without_standard_files_compiles_as_well(lib: LazyLibrary) -> None:
    done = lib.call("/bin/sh", "-c", f"exec {shlex.quote(str(lib.directory / 'main'))} 1 2 <&- >&- 2>&-")
    assert done.returncode == 0
    assert len(lib.entries()) == 2


def test_multiprocessing_by_fork_and_by_spawn(lib: LazyLibrary) -> None:
    script = lib.directory / "workers.py"
    script.write_text(
        "import ctypes, multiprocessing as mp, sys\n"
        "def work(which):\n"
        "    return ctypes.CDLL(sys.argv[1])._Z4callii(which, 10)\n"
        "if __name__ == '__main__':\n"
        "    assert work(1) == 11\n"
        "    for how in ('fork', 'spawn', 'forkserver'):\n"
        "        with mp.get_context(how).Pool(4) as pool:\n"
        "            assert pool.map(work, [1, 2, 3, 4] * 3) == [11, 12, 13, 14] * 3\n"
    )
    done = lib.call("python3", script, lib.library)
    assert done.returncode == 0, done.stderr
    assert [lib.compiles(n) for n in NAMES] == [1, 1, 1, 1]
