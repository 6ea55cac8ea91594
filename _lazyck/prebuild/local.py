"""Compile what a plan says, under ninja, by the runtime's own code: one `lazyck-rt compile` for
each entry.

ninja runs the given number of them at a time, and goes on after failures. Its output is for
`--verbose`. The progress is read from a journal that the edges write: lines "begin <number>" and
"end <number> <status>".
"""

import os
import signal
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import TextIO

import ninja

from _lazyck import abi, proc
from _lazyck.errors import BuildError, ToolchainError
from _lazyck.files import write_atomic
from _lazyck.prebuild.entries import rt_words
from _lazyck.prebuild.plan import Failure, Job, Outcome, Plan
from _lazyck.prebuild.preambles import find_preambles
from _lazyck.prebuild.progress import Reporter, State
from _lazyck.visible import visible

_FIRST_TICK, _TICK = 0.02, 0.2  # seconds between two looks, at first and later
_MEMORY_INTERVAL = 1.0  # seconds between two measurements of the memory, each of which reads all of /proc
_LONGEST_ERROR = 500
_REFUSED = 2  # how `lazyck-rt` ends if the compiler itself refused the code


@dataclass(frozen=True)
class BuildOptions:
    """How many compiles run at a time, whether to go on after a failure, whether to print
    commands, and whether to compile also what another cache than the first has."""

    parallel: int
    keeps_going: bool = True
    verbose: bool = False
    again: bool = False


def build(
    rt: Path, manifest_file: Path, plan: Plan, options: BuildOptions, env: Mapping[str, str], reporter: Reporter
) -> Outcome:
    """Do the plan. If it is interrupted (Ctrl-C, SIGTERM, SIGHUP), what has been compiled stays,
    and the outcome says so.

    Raises `ToolchainError` if there is no ninja, and `BuildError` if ninja itself fails.
    """
    # The user has asked for compiles, even if jobs in this environment may not compile at run time.
    own = {k: v for k, v in env.items() if k not in (abi.ENV_JIT, "NINJA_STATUS")}
    own[abi.ENV_JOBS] = str(options.parallel)
    own.setdefault(abi.ENV_CACHE_MAXSIZE, "0")  # nothing may be evicted while the rest is being compiled
    argv = [str(find_ninja(own)), "-j", str(options.parallel), "-k", "0" if options.keeps_going else "1"]
    state = State(plan, options.parallel, time.monotonic())
    groups = find_preambles(rt, manifest_file, plan.jobs, options.parallel, own)
    with tempfile.TemporaryDirectory(prefix="lazyck-prebuild-") as work, Path(work, "journal").open("a+") as journal:
        text = render_ninja(rt, manifest_file, plan.jobs, [plan.jobs[group[0]] for group in groups], options)
        write_atomic(Path(work) / "build.ninja", text.encode("utf-8", "surrogateescape"))
        argv += ["-C", work, *(["-v"] if options.verbose else [])]
        running = proc.Running(argv, env=own, on_line=reporter.note if options.verbose else None)
        watch = _Watch(Path(work), journal, state, reporter)
        try:
            with interruptible(state):
                watch.follow(running)
        finally:
            status = running.stop()
            watch.look()
            reporter.close()
    if status != 0 and not state.is_interrupted and not state.failures:
        raise BuildError(f"ninja ended with status {status}:\n{running.tail}", "is the disk full, or ninja damaged?")
    return state.outcome()


class _Watch:
    """Update the state from the journal, and tell the reporter."""

    def __init__(self, work: Path, journal: TextIO, state: State, reporter: Reporter) -> None:
        self._state, self._work, self._journal, self._reporter = state, work, journal, reporter
        self._rest = ""  # of the journal, without the end of the line
        self._used_kib = 0

    def follow(self, running: proc.Running) -> None:
        tick, next_memory = _FIRST_TICK, 0.0
        while running.poll() is None:
            self.look()
            now = time.monotonic()
            if now >= next_memory:
                self._used_kib = _tree_rss_kib(running.pid)
                next_memory = now + _MEMORY_INTERVAL
            self._reporter.show(self._state, now, self._used_kib)
            time.sleep(tick)
            tick = min(_TICK, tick * 1.2)

    def look(self) -> None:
        """Process the journal so far. A job that an interruption killed has not failed."""
        state = self._state
        for verb, number, status in self._read():
            if verb == "begin":
                state.running[number] = time.monotonic()
            elif status == 0:
                state.end(number, self._reporter)
            elif state.is_interrupted and status > 128:
                state.running.pop(number, None)
            else:
                output = ""
                with suppress(OSError):
                    output = (self._work / f"{number}.out").read_text(errors="surrogateescape")
                state.end(number, self._reporter, failure_of(state.plan.jobs[number], output, status))

    def _read(self) -> Iterator[tuple[str, int, int]]:
        *lines, self._rest = (self._rest + self._journal.read()).split("\n")
        for line in lines:
            verb, number, *status = line.split()
            yield verb, int(number), int(status[0]) if status else 0


def failure_of(job: Job, output: str, status: int) -> Failure:
    """Return the failure that `lazyck-rt compile` reports for a blob that it could not compile."""
    lines = output.strip().split("\n")
    log = next((line.strip()[5:] for line in lines if line.startswith("  log: ")), "")
    prefix = f"lazyck: cannot compile blob '{visible(job.entry.name)}' for {job.entry.shown_arch}: "
    first = lines[0].removeprefix(prefix) or f"lazyck-rt ended with status {status} and said nothing"
    log = log or (str(job.entry.log) if job.entry.log.exists() else "")
    return Failure(job, log, first[:_LONGEST_ERROR], status == _REFUSED)


@contextmanager
def interruptible(state: State) -> Iterator[None]:
    """Note in the state that Ctrl-C interrupted the block, or SIGTERM or SIGHUP (from a batch
    system or a closed terminal), so that compilers end too."""
    numbers = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) == signal.SIG_DFL]
    before = {n: signal.signal(n, signal.default_int_handler) for n in numbers}
    try:
        yield
    except KeyboardInterrupt:
        state.is_interrupted = True
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def render_ninja(
    rt: Path, manifest_file: Path, jobs: Sequence[Job], preambles: Sequence[Job], options: BuildOptions
) -> str:
    """Render a ninja file with one edge per job. The outputs are names that never exist, since the
    file does not describe what is cached.

    The edges for `preambles` come first, and nothing waits for them: what is compiled meanwhile
    does not use them.
    """

    def quoted(words: Sequence[str]) -> str:
        return " ".join("'" + w.replace("'", "'\\''") + "'" for w in words).replace("$", "$$")

    lines = [
        "rule compile",
        "  command = echo begin $number >> journal; $words > $number.out 2>&1; s=$$?; "
        "echo end $number $$s >> journal; exit $$s",
        "  description = $name",
        "",
    ]
    if preambles:
        lines += ["rule preamble", "  command = $words > $out.log 2>&1 || :", "  description = $out", ""]
    for i, job in enumerate(preambles):
        words = rt_words(rt, "preamble", manifest_file, job.entry.archs, "--", job.entry.name)
        lines += [f"build preamble{i}: preamble", f"  words = {quoted(words)}", ""]
    more = ["--quiet", "--again"] if options.again else ["--quiet"]
    for i, job in enumerate(jobs):
        words = rt_words(rt, "compile", manifest_file, job.entry.archs, *more, "--", job.entry.name)
        lines += [f"build entry{i}: compile", f"  number = {i}", f"  words = {quoted(words)}"]
        lines += [f"  name = {job.title.replace('$', '$$')}", ""]
    return "\n".join(lines)


def _tree_rss_kib(root: int) -> int:
    """Return the resident memory of all descendants of process `root`, our child, in KiB."""
    children: defaultdict[int, list[int]] = defaultdict(list)
    pages: dict[int, int] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            # The name, in parentheses, may contain anything.
            words = Path("/proc", name, "stat").read_text(errors="replace").rpartition(")")[2].split()
            parent, pages[int(name)] = int(words[1]), int(words[21])
        except (OSError, IndexError, ValueError):
            continue  # it has ended meanwhile
        children[parent].append(int(name))
    below = list(children[root])
    for number in below:  # which grows
        below += children[number]
    return sum(pages[n] for n in below) * (os.sysconf("SC_PAGE_SIZE") // 1024)


def find_ninja(env: Mapping[str, str]) -> Path:
    """Return the absolute path of `ninja`: the package's own program, or else the first on the PATH
    of `env`.

    `ninja.BIN_DIR` is empty if the package lies outside this interpreter's own packages: named by
    PYTHONPATH, or installed by `pip --target`. In these cases, its list of files and the `bin`
    beside it are searched. Raises `ToolchainError` if there is none.
    """
    for program in _ninja_of_the_package():
        if program.is_file() and os.access(program, os.X_OK):
            return program
    found = proc.find_program("ninja", env)
    if found is None:
        raise ToolchainError(
            f"no `ninja`: the Python package in {Path(ninja.__file__).parent} lacks it, and PATH leads to none",
            "install it again: python -m pip install --force-reinstall ninja (or Debian's ninja-build)",
        )
    return Path(found)


def _ninja_of_the_package() -> Iterator[Path]:
    if ninja.BIN_DIR:
        yield Path(ninja.BIN_DIR) / "ninja"
    with suppress(PackageNotFoundError):
        yield from (Path(os.path.abspath(f.locate())) for f in files("ninja") or () if f.name == "ninja")
    yield Path(ninja.__file__).absolute().parents[1] / "bin" / "ninja"
