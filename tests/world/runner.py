"""Build a project ahead of time and lazily, and run its own tests on both. The project passes only
if the results are equal."""

import fnmatch
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from filelock import FileLock
from support import REPOSITORY

from world.project import Project
from world.results import ABSENT, COMMAND, Tests, count, differences, read_results
from world.sources import Unavailable, Unpacked, unpacked

BUILD_SECONDS, TEST_SECONDS = 5400, 3600
REPETITIONS = 5  # additional test runs ahead of time if some tests differ
# The lazy library's tests run in these four ways: name, cache, tests at a time, further variables.
WAYS: tuple[tuple[str, str, int, Mapping[str, str]], ...] = (
    ("cold", "cache", 1, {}),
    ("cached", "cache", 1, {}),
    ("no JIT", "cache", 1, {"LAZYCK_JIT": "off"}),
    ("parallel", "cache-parallel", 4, {}),
)


@dataclass(frozen=True)
class Run:
    """Describes a run of the tests: the word for each test, the seconds, and how many entries the
    run added to its cache. `varying` holds the other results that tests had when the run was
    repeated."""

    tests: Tests
    seconds: float
    compiled: int = 0
    varying: Mapping[str, list[str]] = field(default_factory=dict)

    def differences(self, other: "Run") -> list[str]:
        """Describe the tests of `other` whose result never occurred in this run and its
        repetitions."""
        return differences(self.tests, other.tests, self.varying)

    def repeated(self, again: "Run") -> "Run":
        """Combine this run with a repetition of it."""
        varying = {name: list(words) for name, words in self.varying.items()}
        for name in dict.fromkeys([*self.tests, *again.tests]):
            word = again.tests.get(name, ABSENT)
            if word not in (self.tests.get(name, ABSENT), *varying.get(name, ())):
                varying.setdefault(name, []).append(word)
        return replace(self, varying=varying)


@dataclass(frozen=True)
class Outcome:
    """Describes the result of checking a project. `trouble` says why there are no lazy runs."""

    name: str
    version: str
    built_by: str
    blobs: int = 0
    links: int = 0
    lazy: int = 0
    eager: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0
    trouble: str = ""
    ahead: Run | None = None
    runs: Mapping[str, Run] = field(default_factory=dict)

    def differences(self) -> dict[str, list[str]]:
        """Return for each way of running the tests those whose result differs from the one ahead of
        time. Add a line for compiles in a way that must not compile."""
        found = {name: self.ahead.differences(run) for name, run in self.runs.items() if self.ahead}
        for name in ("cached", "no JIT"):
            if name in self.runs and self.runs[name].compiled:
                found[name].append(f"{self.runs[name].compiled} blobs compiled")
        return {name: lines for name, lines in found.items() if lines}

    @property
    def is_same(self) -> bool:
        """Return whether the project was built with lazyck, the build succeeded, and all tests ran
        in every way with the results that they have ahead of time."""
        return not self.trouble and self.blobs > 0 and len(self.runs) == len(WAYS) and not self.differences()


def world_directory(env: Mapping[str, str]) -> Path:
    """Return the directory of sources, builds and results."""
    cache = env.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(env.get("LAZYCK_WORLD_DIR") or Path(cache) / "lazyck-world").absolute()


def check(project: Project, world: Path, jobs: int, say: Callable[[str], None]) -> Outcome:
    """Build and test `project` both ways. Write the outcome below `world`, too. A lock lets only
    one process at a time do this for a project. Raises `Unavailable`."""
    world.mkdir(parents=True, exist_ok=True)
    with FileLock(world / "fetch.lock"):
        source = unpacked(project, world)
        tools = _python_tools(project, world)
    with FileLock(world / f"{project.name}.lock"):
        ahead = _ahead(project, source, world, tools, jobs, say)
        outcome = _lazily(project, source, world, tools, jobs, ahead, say)
    path = world / "results" / f"{project.name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(asdict(outcome), indent=1))
    return outcome


def load_outcome(path: Path) -> Outcome:
    """Read what `check` wrote."""
    raw = json.loads(path.read_text())
    raw["runs"] = {name: Run(**run) for name, run in raw["runs"].items()}
    return Outcome(**{**raw, "ahead": raw["ahead"] and Run(**raw["ahead"])})


def _ahead(project: Project, source: Unpacked, world: Path, tools: str, jobs: int, say: Callable[[str], None]) -> Run:
    """Return the tests' results without lazyck. They are kept under a digest of the project's
    version and description and the compilers' versions."""
    compilers = [subprocess.run([cc, "--version"], capture_output=True, text=True).stdout for cc in ("cc", "c++")]
    facts = repr((project.build, project.test, project.results, source.version, compilers))
    kept = world / "ahead" / f"{project.name}-{hashlib.sha256(facts.encode()).hexdigest()[:16]}.json"
    if kept.is_file():
        return Run(**json.loads(kept.read_text()))
    place = _fresh(world / "work" / project.name / "ahead")
    env = _environment(source, tools, jobs)
    say("building ahead of time")
    status = _script(_words(project.build), place / "build", env, place / "build.log", BUILD_SECONDS)
    if status != 0:
        raise Unavailable(f"does not build ahead of time (status {status}): {place / 'build.log'}")
    run = _tests(project, place, "ahead", env, 1)
    if run.tests.keys() <= {COMMAND}:
        raise Unavailable(f"none of its tests runs ahead of time: {place / 'results' / 'ahead' / 'output'}")
    say(f"ahead of time: {count(run.tests)}")
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(asdict(run), indent=1))
    return run


def _lazily(
    project: Project,
    source: Unpacked,
    world: Path,
    tools: str,
    jobs: int,
    ahead: Run,
    say: Callable[[str], None],
) -> Outcome:
    place = _fresh(world / "work" / project.name / "lazy")
    env = _environment(source, tools, jobs)
    say("building lazily")
    patterns = [word for blob in blob_files(project, source.directory, place / "build") for word in ("--blobs", blob)]
    lazyck = [sys.executable, "-m", "lazyck", "build", "full", "--toolchain", "host", "--jobs", str(jobs)]
    command = [*lazyck, *patterns, "--tmp-dir", str(place / "tmp"), "--", *_words(project.build)]
    begun = time.monotonic()
    # The build may run what it has built, but the tests' cache must be empty.
    build_env = {**env, "PYTHONPATH": str(REPOSITORY), "LAZYCK_CACHE_DIR": str(place / "cache-build")}
    status = _script(command, place / "build", build_env, place / "build.log", BUILD_SECONDS)
    seconds = time.monotonic() - begun
    deferred, links, eager = _summaries(place / "tmp")
    outcome = Outcome(
        name=project.name,
        version=source.version,
        built_by=project.built_by,
        blobs=len(deferred),
        links=links,
        lazy=len(deferred) - len(eager),
        eager=eager,
        seconds=round(seconds, 1),
        ahead=ahead,
    )
    say(f"{outcome.blobs} blobs in {links} links, {outcome.lazy} lazy, {len(eager)} eager, {seconds:.0f} s")
    if status != 0:
        return replace(outcome, trouble=f"the lazy build fails (status {status}): {place / 'build.log'}")
    runs = {}
    for name, cache, at_a_time, further in WAYS:
        way_env = {**env, "LAZYCK_CACHE_DIR": str(place / cache), **further}
        runs[name] = _tests(project, place, name.replace(" ", "-"), way_env, at_a_time)
        ahead = _repeated(project, world, env, at_a_time, ahead, runs[name])
        different = len(ahead.differences(runs[name]))
        say(f"{name}: {count(runs[name].tests)}, {different} differ; {runs[name].compiled} compiled")
    return replace(outcome, ahead=ahead, runs=runs)


def _repeated(project: Project, world: Path, env: Mapping[str, str], at_a_time: int, ahead: Run, lazy: Run) -> Run:
    """Return `ahead`, repeated while `lazy` differs from it, because some tests depend on how busy
    the machine is."""
    place = world / "work" / project.name / "ahead"
    for _ in range(REPETITIONS if place.is_dir() else 0):
        if not ahead.differences(lazy):
            break
        ahead = ahead.repeated(_tests(project, place, "again", env, at_a_time))
    return ahead


def blob_files(project: Project, source: Path, build: Path) -> list[str]:
    """Return the paths that the project's blobs may have: in the source, or in a copy of it in the
    build directory.

    The paths are listed because a pattern of `--blobs` can say neither "not in a directory below"
    nor "except tests".
    """
    found: dict[str, None] = {}
    for pattern in project.blobs:
        if pattern.startswith("!"):
            found = {name: None for name in found if not fnmatch.fnmatchcase(name, pattern[1:])}
        elif "*" in pattern:
            found.update((str(path.relative_to(source)), None) for path in sorted(source.glob(pattern)))
        else:
            found[pattern] = None  # may be generated
    return [f"{place}/{name}" for name in found for place in (source, build)]


def _tests(project: Project, place: Path, name: str, env: Mapping[str, str], at_a_time: int) -> Run:
    """Run the project's tests in the build below `place`. Their results go to `results/<name>`
    there."""
    out = _fresh(place / "results" / name)
    for left in [path for pattern in project.results.trs for path in (place / "build").glob(pattern)]:
        left.unlink()
    cache = Path(env.get("LAZYCK_CACHE_DIR", "/nonexistent"))
    before = len(list(cache.glob("v1/*/**/*.so")))
    # The runtime must not write to stderr, because some tests compare what is printed.
    env = {
        **env,
        "OUT": str(out),
        "TEST_JOBS": str(at_a_time),
        "GTEST_OUTPUT": f"xml:{out}/gtest/",
        "LAZYCK_LOG_FILE": str(out / "lazyck.log"),
    }
    begun = time.monotonic()
    status = _script(_words(project.test), place / "build", env, out / "output", TEST_SECONDS)
    seconds = time.monotonic() - begun
    output = (out / "output").read_text(errors="replace")
    tests = read_results(project.results, (out, place / "build"), output, status)
    return Run(tests, round(seconds, 1), len(list(cache.glob("v1/*/**/*.so"))) - before)


def _summaries(tmp: Path) -> tuple[set[str], int, dict[str, str]]:
    """Return the deferred sources of the build, how many links took some, and the eager blobs, each
    with its reason."""
    deferred: set[str] = set()
    eager: dict[str, str] = {}
    summaries = sorted(tmp.glob("libs/*/summary.json"))
    for path in summaries:
        raw = json.loads(path.read_text())
        eager.update((e["source"], "; it ".join(r["text"] for r in e["reasons"])) for e in raw["eager"])
    log = tmp / "intercept.log"
    for line in log.read_text(errors="replace").splitlines() if log.is_file() else ():
        fields = line.split("\t")
        if fields[0] == "defer":
            deferred.add(fields[4])
    return deferred, len(summaries), eager


def _environment(source: Unpacked, tools: str, jobs: int) -> dict[str, str]:
    """Return the environment of both builds and their tests, without lazyck's variables and those
    that choose flags. A cache in front of real compiles (`CMAKE_CXX_COMPILER_LAUNCHER=ccache`) may
    stay, because tests are compiled in both builds."""
    flags = ("CC", "CXX", "CFLAGS", "CXXFLAGS", "LDFLAGS", "MAKEFLAGS", "NINJA_STATUS", "PYTHONPATH")
    foreign = ("LAZYCK_", "CTEST_", "GTEST_")
    kept = {name: v for name, v in os.environ.items() if not name.startswith(foreign) and name not in flags}
    path = os.pathsep.join(filter(None, [tools, str(Path(sys.executable).parent), kept.get("PATH", "")]))
    return {**kept, "PATH": path, "SOURCE": str(source.directory), "JOBS": str(jobs), "LC_ALL": "C.UTF-8"}


def _python_tools(project: Project, world: Path) -> str:
    """Make a virtual environment with the project's packages from PyPI, once. Return its directory
    of programs, or an empty string if the project needs none."""
    if not project.python:
        return ""
    place = world / "venv" / project.name
    stamp = place / "requirements"
    if not stamp.is_file() or stamp.read_text() != "\n".join(project.python):
        subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
        done = subprocess.run([str(place / "bin" / "pip"), "install", "-q", *project.python], check=False)
        if done.returncode != 0:
            raise Unavailable(f"`pip install {' '.join(project.python)}` fails")
        stamp.write_text("\n".join(project.python))
    return str(place / "bin")


def _words(script: str) -> list[str]:
    return ["sh", "-euc", script]


def _script(argv: list[str], cwd: Path, env: Mapping[str, str], log: Path, limit: float) -> int:
    """Run `argv` with its output in `log`, and return the exit status. After `limit` seconds, kill
    it with all that it started, and return 124."""
    cwd.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as out:
        process = subprocess.Popen(
            argv, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
        )
        try:
            return process.wait(limit)
        except subprocess.TimeoutExpired:
            return 124
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _fresh(directory: Path) -> Path:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    return directory
