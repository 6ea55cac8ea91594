"""Builds and runs programs both ways and compares them. Several are built as one project, because
setting up a lazy build costs as much as building a program."""

import fnmatch
import os
import re
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from lazyck.check.ahead import BlobCompile
from lazyck.check.blob_objects import read_blob_object
from lazyck.check.vague import vague_names
from lazyck.postbuild import summary
from lazyck.postbuild.link.arguments import load_ahead
from lazyck.postbuild.objects import elf
from lazyck.postbuild.probe.group import compile_one
from programs.program import Program, Tree, change, plant, write
from programs.warm_python import WarmPython

BUILD_SECONDS, RUN_SECONDS = 60, 20
SEEN = ("files", "symbols", "more symbols", "vague symbols", "needed", "soname", "path", "flags")
OUTPUT, BUILD = "output", "the lazy build fails"  # what ends the comparison of a program
FUNCTIONS = ("FUNC", "IFUNC", "<OS specific>: 10")  # an IFUNC of lld and mold, which do not say that it is GNU's
_OURS = re.compile(r"lazyck")
_RUNTIME = {"libstdc++.so.6", "libm.so.6", "libgcc_s.so.1", "libc.so.6", "ld-linux-x86-64.so.2", "libdl.so.2"}


@dataclass(frozen=True)
class Difference:
    """Describes what differs: at which step, in what, and how it is ahead of time and lazily."""

    step: str
    what: str
    ahead: str
    lazy: str

    @property
    def kind(self) -> str:
        return f"{self.step}: {self.what}"


@dataclass(frozen=True)
class Outcome:
    """Describes a program that was tried. `uninteresting` says why there was nothing to compare."""

    program: Program
    uninteresting: str = ""
    lazy: int = 0
    eager: tuple[str, ...] = ()  # kinds of reasons
    differences: tuple[Difference, ...] = ()


@dataclass
class _Case:
    """A program while it is tried."""

    program: Program
    tree: Tree
    uninteresting: str = ""
    is_built: bool = False  # ahead of time, as it is now
    ran: str = ""
    lazy: int = 0
    eager: list[str] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.tree.name

    @property
    def goes_on(self) -> bool:
        """Return whether the program has still run as ahead of time."""
        return not self.uninteresting and not any(d.what in (OUTPUT, BUILD) for d in self.differences)


class Workshop:
    """A place where programs are tried. `tamper` is called with each lazy copy of a program's
    sources before it is built: so that tests can see a difference found."""

    def __init__(
        self, place: Path, left_out: Sequence[str] = (), tamper: Callable[[Path], None] = lambda path: None
    ) -> None:
        self._place, self._left_out, self._tamper = place, left_out, tamper
        self._python = WarmPython(place.with_name(f"{place.name}.python"))
        self._mains: dict[str, bytes] = {}  # objects of the programs beside libraries, by text
        self.seconds: Counter[str] = Counter()  # by step

    def close(self) -> None:
        self._python.close()

    def try_all(self, programs: Sequence[Program]) -> list[Outcome]:
        """Try the programs as one project."""
        shutil.rmtree(self._place, ignore_errors=True)
        cases = [_Case(p, plant(p, f"p{i}")) for i, p in enumerate(programs)]
        for case in cases:
            for way in ("ahead", "lazy"):
                write(case.tree, self._at(way, case))
                self._make_main(self._at(way, case))
            self._tamper(self._at("lazy", case))
        self._round(cases, "cold")
        self._again(cases, "cached", {"LAZYCK_JIT": "off"})
        changed = [case for case in cases if case.goes_on and case.program.change]
        for case in changed:
            ways = [self._at(way, case) for way in ("ahead", "lazy")]
            case.is_built = not change(case.tree, case.program.change, ways)
        self._round(changed, "changed")
        self._deploy([case for case in cases if case.goes_on])
        return [Outcome(c.program, c.uninteresting, c.lazy, tuple(c.eager), tuple(c.differences)) for c in cases]

    def _make_main(self, place: Path) -> None:
        """Put the object of the program in `place` beside its source: there are few of them."""
        source, made = place / "main.c", place / "main.o"
        if not source.exists():
            return
        text = source.read_text()
        if text not in self._mains:
            subprocess.run(["gcc", "-w", "-c", source, "-o", made], check=True)
            self._mains[text] = made.read_bytes()
        made.write_bytes(self._mains[text])

    def _at(self, way: str, case: _Case) -> Path:
        return self._place / way / case.name

    def _round(self, cases: Sequence[_Case], step: str) -> None:
        """Build both ways, run and compare. A change that does not build ahead of time ends a
        program."""
        for case in cases:
            if not case.is_built:
                self._ahead(case)
        cases = [case for case in cases if case.goes_on]
        if not cases:
            return
        self._lazily(cases, step)
        with _Timed(self.seconds, "compare"):
            for case in cases:
                if case.goes_on:
                    self._compare(case, step)
        self._again(cases, step)

    def _ahead(self, case: _Case) -> None:
        place = self._at("ahead", case)
        with _Timed(self.seconds, "ahead"):
            status = _script(["sh", "build.sh"], place, place / "log", BUILD_SECONDS, {})
        if status != 0:
            case.uninteresting = "does not build ahead of time"
            return
        with _Timed(self.seconds, "ahead run"):
            case.ran, again = (self._run(place, place / "out", {}) for _ in range(2))
        if case.ran != again:
            case.uninteresting = "differs from run to run"
        elif re.search(r"status (-|3|124|12[6-9]|1[3-9])", case.ran):
            case.uninteresting = "does not run ahead of time"

    def _lazily(self, cases: Sequence[_Case], step: str) -> None:
        root = self._place / "lazy"
        lines = [f"(cd {c.name} && timeout {BUILD_SECONDS} sh build.sh > log 2>&1; echo $? > status)" for c in cases]
        (root / "all.sh").write_text("\n".join(lines) + "\n")
        words = [
            str(self._python.program),
            "-m",
            "lazyck",
            "build",
            "full",
            "--toolchain",
            "host",
            "--jobs",
            "1",
            "--tmp-dir",
            str(self._place / "tmp"),
        ]
        words += ["--install-dir", str(self._place / "installed"), "--", "sh", "all.sh"]
        with _Timed(self.seconds, "lazy build"):
            done = subprocess.run(words, cwd=root, env=self._env("cache"), capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(words)} in {root}: status {done.returncode}\n{done.stderr}")
        for case in cases:
            place = self._at("lazy", case)
            if (status := (place / "status").read_text().strip()) != "0":
                said = _first_error((place / "log").read_text(errors="replace"))
                case.differences.append(Difference(step, BUILD, "0", f"{status} {said}"))
        for path in (self._place / "tmp").glob(f"libs/*/{summary.NAME}"):
            found = summary.load(path)
            for case in cases:
                if Path(found.output).parent == self._at("lazy", case) / "out" and step == "cold":
                    case.lazy += found.lazy
                    case.eager += [reason.kind.name for one in found.eager for reason in one.reasons]
        log = self._place / "tmp" / "intercept.log"
        for line in log.read_text(errors="replace").splitlines() if step == "cold" else ():
            fields = line.split("\t")
            for case in cases:
                if fields[0] == "pass" and f"/{case.name}/blob/" in fields[4]:
                    case.eager.append(f"not deferred: {fields[1]}")

    def _compare(self, case: _Case, step: str) -> None:
        """Compare what others see of a build: the library's symbols and words, and files."""
        ahead, lazy = self._at("ahead", case), self._at("lazy", case)
        seen = [("files", _files(ahead), _files(lazy))]
        built = ahead / "out" / case.tree.library
        if built.exists():
            here, there = _read_library(built), _read_library(lazy / "out" / case.tree.library)
            every, others = here.pop("all symbols"), there.pop("all symbols")
            there["needed"] -= self._kept(case) - here["needed"]  # a text could name what is in these, by design
            lost = self._promised(case, every - others)
            there["symbols"] = here["symbols"] - lost  # a weak symbol may have become a strong one, and reverse
            seen += [(what, here[what], there[what]) for what in here]
            seen += [("vague symbols", lost - here["symbols"], set()), ("more symbols", set(), others - every)]
        for what, one, other in seen:
            if one != other and not any(fnmatch.fnmatchcase(f"seen/{what}", p) for p in self._left_out):
                gone, new = sorted(one - other), sorted(other - one)
                case.differences.append(Difference(step, what, f"only {gone[:9]}", f"only {new[:9]}"))

    def _promised(self, case: _Case, gone: set[str]) -> set[str]:
        """Return the symbols `gone` without those that each file which uses them defines anew."""
        names = {symbol: symbol.partition(" ")[0].partition("@")[0] for symbol in gone}
        vague, place = set[str](), self._place / "again.o"
        for path in (self._at("lazy", case) / "out").glob("*.o*") if gone else ():
            for record in elf.records_in(path.read_bytes(), path):
                blob = replace(record, call=replace(record.call, argv=(*record.call.argv, "-fno-lto")))
                compile_one(blob, place, os.environ)
                read = read_blob_object(place, blob.source, "")
                vague |= vague_names(BlobCompile(blob, place), read, frozenset(names.values()), os.environ)
        return {symbol for symbol in gone if names[symbol] not in vague}

    def _kept(self, case: _Case) -> set[str]:
        """Return the libraries that the lazy link keeps for its blobs' sake."""
        links = (load_ahead(path.parent) for path in (self._place / "tmp").glob("libs/*/ahead.json"))
        return {name for link in links if Path(link.words[-1]).name == case.tree.library for name in link.kept}

    def _again(self, cases: Sequence[_Case], step: str, env: Mapping[str, str] | None = None) -> None:
        for case in cases:
            if case.goes_on:
                with _Timed(self.seconds, f"{step} run"):
                    place = self._at("lazy", case)
                    self._judge(case, step, self._run(place, place / "out", {**self._env("cache"), **(env or {})}))

    def _judge(self, case: _Case, step: str, ran: str) -> None:
        if ran != case.ran:
            log = self._place / "lazyck.log"
            said = _first_error(log.read_text(errors="replace")) if log.exists() else ""
            case.differences.append(Difference(step, OUTPUT, case.ran, f"{ran} {said}".strip()))

    def _deploy(self, cases: Sequence[_Case]) -> None:
        """Run what the build has installed, elsewhere, without the sources and with an empty
        cache."""
        for case in cases:
            out, to = self._at("lazy", case) / "out", self._at("deployed", case)
            objects = shutil.ignore_patterns("*.o", "*.ob", "*.a", "*.gch")
            shutil.copytree(out, to, symlinks=True, ignore=objects)
            for path in (self._place / "installed").glob(f"*{case.name}*"):
                if path.name in (case.tree.library, f"main_{case.name}"):
                    shutil.copy2(path, to)
            for path in (self._place / "installed" / "lazyck").glob(f"*{case.name}*"):
                shutil.copytree(path, to / "lazyck" / path.name, dirs_exist_ok=True)
        if cases:
            (self._place / "tmp").rename(self._place / "gone-tmp")
            (self._place / "lazy").rename(self._place / "gone")
        for case in cases:
            with _Timed(self.seconds, "deployed run"):
                self._judge(
                    case,
                    "deployed",
                    self._run(
                        self._place / "gone" / case.name, self._at("deployed", case), self._env("cache-deployed")
                    ),
                )

    def _run(self, scripts: Path, out: Path, env: Mapping[str, str]) -> str:
        """Return what the program prints, and its status."""
        (self._place / "lazyck.log").unlink(missing_ok=True)
        log = self._place / "output"
        status = _script(["sh", str(scripts / "run.sh"), str(out)], self._place, log, RUN_SECONDS, env, merged=False)
        return f"{log.read_text(errors='replace').split()} status {status}"

    def _env(self, cache: str) -> dict[str, str]:
        kept = {name: v for name, v in os.environ.items() if not name.startswith("LAZYCK")}
        log = str(self._place / "lazyck.log")
        return {**kept, "LAZYCK_CACHE_DIR": str(self._place / cache), "LAZYCK_LOG_FILE": log}


class _Timed:
    """Adds the seconds of a block to a counter."""

    def __init__(self, seconds: Counter[str], step: str) -> None:
        self._seconds, self._step = seconds, step

    def __enter__(self) -> None:
        self._begun = time.monotonic()

    def __exit__(self, *_: object) -> None:
        self._seconds[self._step] += time.monotonic() - self._begun  # type: ignore[assignment]


def _script(
    argv: Sequence[str], cwd: Path, log: Path, seconds: float, env: Mapping[str, str], *, merged: bool = True
) -> int:
    """Run a command to its end, or for `seconds` (status 124), with its output in `log`."""
    with log.open("wb") as out:
        errors = out if merged else subprocess.DEVNULL
        process = subprocess.Popen(
            argv, cwd=cwd, env=dict(env) or None, stdin=subprocess.DEVNULL, stdout=out, stderr=errors,
            start_new_session=True,
        )  # fmt: skip
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return 124


def _first_error(text: str) -> str:
    for line in text.splitlines():
        if re.search(r"error|cannot|undefined|lazyck: .*(fail|not)", line):
            return line.strip()[:300]
    return ""


def _files(place: Path) -> set[str]:
    """Return the names of the files that a build has left, without logs."""
    names = {path.relative_to(place).as_posix() for path in place.rglob("*")}
    return names - {"log", "status"}


def _read_library(path: Path) -> dict[str, set[str]]:
    """Return what other programs see of a library."""
    text = subprocess.run(["readelf", "-dW", "--dyn-syms", path], capture_output=True, text=True).stdout
    words = re.findall(r"\((NEEDED|SONAME|RPATH|RUNPATH|FLAGS|FLAGS_1)\)\s+(.*)", text)
    symbols = re.findall(r"^ +\d+: \w+ +\w+ +(\w+|<OS specific>: 10) +(\w+) +(\w+) +(\w+) +(\S+)", text, re.MULTILINE)
    defined = {
        (f"{name} {'function' if kind in FUNCTIONS else 'data'}", binding == "GLOBAL")
        for kind, binding, _, where, name in symbols
        if where != "UND" and binding != "LOCAL" and not _OURS.search(name)
    }
    needed = {re.sub(r".*\[|\].*", "", value) for tag, value in words if tag == "NEEDED"} - _RUNTIME
    return {
        "symbols": {name for name, is_strong in defined if is_strong},
        "all symbols": {name for name, _ in defined},
        "needed": needed,
        "soname": {value for tag, value in words if tag == "SONAME"},
        "path": {value for tag, value in words if tag in ("RPATH", "RUNPATH")},
        "flags": {f"{tag} {value}" for tag, value in words if tag.startswith("FLAGS")},
    }
