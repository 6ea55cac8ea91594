"""Provide what the hosts of a fleet run: a lazy library whose compiles sleep, and ranks that call
it."""

import contextlib
import ctypes
import os
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common import NINJA, REPOSITORY, LazyProject, kernel_blobs, kernel_table, ninja_build
from fleet_net import Host

from lazyck.remote import EntryName, Remote

_PR_SET_CHILD_SUBREAPER = 36
ENTRY = "libk/x86_64-none/k0-0123456789abcdef.so"
# This compiler sleeps only where FLEET_SECONDS is set: the build of the library must not sleep.
COMPILER = """#!/bin/sh
if [ -n "$FLEET_SECONDS" ]; then
    case " $* " in *" -c "*) echo "$FLEET_HOST" >> "$FLEET_LOG"; sleep "$FLEET_SECONDS";; esac
fi
exec {cxx} "$@"
"""
RANK = r"""
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
extern "C" float run(int, float);
int main(int argc, char** argv) {  // the moment of the start, how many kernels to call
    int wrong = 0;
    for (int i = 0; i < std::atoi(argv[2]); ++i) {
        try {
            if (run(i, 2) != 2 * i) ++wrong;
        } catch (const std::exception& e) {
            std::fprintf(stderr, "RANK FAILED: %s\n", e.what());
            ++wrong;
        }
    }
    using namespace std::chrono;
    const double now = duration<double>(system_clock::now().time_since_epoch()).count();
    std::printf("%.3f %d\n", now - std::atof(argv[1]), wrong);
}
"""


@dataclass(frozen=True)
class Options:
    """Holds what all runs have in common."""

    hosts: int
    ranks: int
    blobs: int
    seconds: float
    work: Path


@dataclass(frozen=True)
class Figures:
    """Holds the CPU seconds of a helper until it has told its first answer, of one of its requests,
    and of a compile."""

    helper: float
    request: float
    compile: float

    def parameters(self, left: float) -> dict[str, float]:
        """Return them as parameters of the fleet's model. Other processes left the run a share
        `left` of the cores, so everything takes longer."""
        figures = {"look": self.helper, "request_cpu": self.request, "compile_cpu": self.compile}
        return {name: value / left for name, value in figures.items()}


def measure(o: Options) -> Figures:
    """Measure the costs."""
    return Figures(time_helper(o), time_request(o), time_compile(o))


def adopt_orphans() -> None:
    """Become the parent of helpers whose first process has ended, so that their CPU time is known
    once they have."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def reap_orphans() -> None:
    """Forget adopted processes that have ended."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


class OtherLoad:
    """Measures, from its creation on, how much CPU time other processes take."""

    def __init__(self) -> None:
        self._begun, self._busy, self._own = time.monotonic(), _busy(), _own()

    def left(self) -> float:
        """Return the share of the machine's cores that they have left."""
        reap_orphans()
        wall = time.monotonic() - self._begun
        others = (_busy() - self._busy) - (_own() - self._own)
        return max(0.1, 1 - max(0.0, others) / wall / (os.cpu_count() or 1))


def _busy() -> float:
    """Return the CPU seconds of all processes, and those that the machine's host took."""
    user, nice, system, _idle, _iowait, *more = map(int, Path("/proc/stat").read_text().split("\n")[0].split()[1:9])
    return (user + nice + system + sum(more)) / os.sysconf("SC_CLK_TCK")


def _own() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN), resource.getrusage(resource.RUSAGE_SELF)
    return sum(u.ru_utime + u.ru_stime for u in used)


def build(o: Options) -> Path:
    """Build the lazy library and the program of a rank; return the path of the program."""
    tools = o.work / "bin"
    tools.mkdir()
    compiler = tools / "c++"
    compiler.write_text(COMPILER.replace("{cxx}", str(shutil.which("g++"))))
    compiler.chmod(0o755)
    write_helper(tools)
    project = LazyProject(o.work / "project")
    project.work.mkdir()
    texts = {**kernel_blobs(o.blobs, 1), "dispatch.cpp": kernel_table(o.blobs), "rank.cpp": RANK}
    project.write({**texts, "build.ninja": ninja_build(o.blobs)})
    project.build(*NINJA, env={"PATH": f"{tools}:{os.environ['PATH']}"})
    here = project.work
    argv = ["g++", "-O1", str(here / "rank.cpp"), "-o", str(here / "rank"), f"-L{here}", "-lk", f"-Wl,-rpath,{here}"]
    subprocess.run(argv, check=True)
    return here / "rank"


def write_helper(tools: Path) -> None:
    """Write the command `lazyck-remote` of this repository into a directory."""
    helper = tools / "lazyck-remote"
    start = f"import sys\nsys.path.insert(0, {str(REPOSITORY)!r})\n"
    start += "from lazyck.commands.remote_program import main\nmain()\n"
    helper.write_text(f"#!{sys.executable}\n{start}")
    helper.chmod(0o755)


@contextmanager
def empty_server(o: Options) -> Iterator[tuple[Path, str]]:
    """Start a server that has no entries; give its directory and its URL."""
    empty = o.work / "empty"
    empty.mkdir(exist_ok=True)
    argv = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", "--directory", str(empty), "0"]
    server = subprocess.Popen([argv[0], "-u", *argv[1:]], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert server.stdout is not None
    port = server.stdout.readline().split("port ")[1].split()[0]
    try:
        yield empty, f"http://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


def time_helper(o: Options) -> float:
    """Return the CPU seconds of `lazyck-remote` from its start until it has said that a server does
    not have an entry, and has ended."""
    taken = []
    with empty_server(o) as (empty, url):
        argv = [str(o.work / "bin" / "lazyck-remote"), "entry", "--key", "0" * 32, "--name", ENTRY]
        argv += ["--cache", str(empty), "--only-fetch"]
        env = {**os.environ, "LAZYCK_REMOTE": f"{url}|trusted"}
        for _ in range(5):
            ours, theirs = socket.socketpair()
            helper = subprocess.Popen(argv, env=env, stdin=theirs.fileno(), cwd=empty)
            theirs.close()
            with ours, ours.makefile("rb") as lines:
                pid = int(lines.readline().removeprefix(b"pid "))
                assert lines.readline() == b"miss\n"
            first = os.wait4(helper.pid, 0)[2]
            helper.returncode = 0
            used = first, os.wait4(pid, 0)[2]
            taken.append(sum(u.ru_utime + u.ru_stime for u in used))
    return statistics.median(taken)


def time_request(o: Options) -> float:
    """Return the CPU seconds that a helper spends on asking for a missing entry, after its first
    request."""
    count = 300
    with empty_server(o) as (_, url):
        remote = Remote.from_environment({"LAZYCK_REMOTE": f"{url}|trusted"}, remembers=False)
        assert remote is not None
        entry = EntryName("0" * 32, ENTRY)
        assert remote.find(remote.clients[0], entry) is None
        begin = time.process_time()
        for _ in range(count):
            remote.find(remote.clients[0], entry)
        return (time.process_time() - begin) / count


def time_compile(o: Options) -> float:
    """Return the CPU seconds of a real compile and link, which come on top of the sleep."""
    rank = o.work / "project" / "rank"
    with tempfile.TemporaryDirectory(dir=o.work) as cache:
        env = {**os.environ, "LAZYCK_CACHE_DIR": cache, "LAZYCK_LOG": "error"}
        before = _own()
        subprocess.run([str(rank), "0", str(o.blobs)], env=env, stdout=subprocess.DEVNULL, check=True)
        return (_own() - before) / o.blobs


def start_ranks(o: Options, program: Path, hosts: Sequence[Host], where: Path, env: dict[str, str]) -> list[Any]:
    """Start all ranks at once, with one shell for each host."""
    begin = f"{time.time():.3f}"
    script = 'i=0; while [ $i -lt $1 ]; do "$2" "$3" "$4" > "rank$i" 2> "log$i" & i=$((i+1)); done; wait'
    running = []
    for host in hosts:
        home = where / host.name
        home.mkdir(parents=True)
        own = {
            "HOME": str(home), "LAZYCK_CACHE_DIR": str(home / "cache"), "FLEET_HOST": host.name,
            "FLEET_LOG": str(where / "compiles"), "FLEET_SECONDS": str(o.seconds), "LAZYCK_LOG": "info",
            "LAZYCK_REMOTE_HELPER": str(o.work / "bin" / "lazyck-remote"), "LAZYCK_JOBS": str(o.ranks),
        }  # fmt: skip
        argv = host.argv(["sh", "-c", script, "sh", str(o.ranks), str(program), begin, str(o.blobs)])
        clean = {k: v for k, v in os.environ.items() if not k.startswith("LAZYCK_")}
        running.append(subprocess.Popen(argv, cwd=home, env={**clean, **own, **env}))
    return running
