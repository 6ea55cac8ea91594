"""Probes one group of blobs (same toolchain, flags and environment): preprocess, parse, one compile, and retries."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lazyck import proc
from lazyck.command import CompileCommand
from lazyck.postbuild import probe_text, probe_unit
from lazyck.postbuild.cxx_declarations import parse
from lazyck.postbuild.cxx_variables import Declaration, Kind, Unsupported
from lazyck.postbuild.elf import open_image
from lazyck.toolchains import Toolchain

_COMPILES = 24  # per cluster, and one for every 8 blobs; what is left then is compiled blob by blob
_ROUNDS = 8


@dataclass(frozen=True)
class Group:
    """Blobs that one compile can probe: `sources` maps each source to the commands that compile it."""

    toolchain: Toolchain
    base: tuple[str, ...]
    archs: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]
    suffix: str
    sources: Mapping[str, tuple[CompileCommand, ...]]

    def compile(self, source: Path | str, output: Path, extra: Sequence[str] = ()) -> proc.Result:
        argv = self.toolchain.host_compile(self.base, str(source), str(output), self.archs)
        return proc.run([*argv, *extra], cwd=self.cwd, env=self.env)

    def preprocess(self, source: Path, output: Path) -> proc.Result:
        argv = self.toolchain.host_preprocess_command(
            self.base, str(source), str(output), self.archs, cwd=self.cwd, env=self.env
        )
        return proc.run(argv, cwd=self.cwd, env=self.env)


@dataclass(frozen=True)
class Doubt:
    """Why a blob must be compiled to be understood. `own_initializers`: code that runs at load is held against it."""

    why: str
    suspects: tuple[str, ...] = ()
    own_initializers: bool = False


@dataclass
class Answers:
    """What is known of a group's sources: symbols found, reasons to be eager, doubts; `files` that those in
    `read` read; `texts`: preprocessed batches, which hold each of `read` at least once."""

    found: dict[str, probe_unit.Found] = field(default_factory=dict)
    eager: dict[str, str] = field(default_factory=dict)
    doubts: dict[str, Doubt] = field(default_factory=dict)
    files: set[str] = field(default_factory=set)
    read: set[str] = field(default_factory=set)
    texts: list[Path] = field(default_factory=list)


def probe_group(group: Group, work: Path) -> Answers:
    """Probe all sources of `group`; files are written below `work`."""
    work.mkdir(parents=True, exist_ok=True)
    answers = Answers()
    texts = {source: probe_text.read_source(source) for source in group.sources}
    for source, text in texts.items():
        if word := probe_text.depends_on_batch(text):
            answers.doubts[source] = Doubt(f"uses {word}", own_initializers=True)
    directives = {source: probe_text.directives_of(text) for source, text in texts.items()}
    macros = {source: probe_text.macros_of(text) for source, text in texts.items()}
    del texts
    split = _preprocess(group, work, list(group.sources), macros, answers)
    for cluster in _clusters(split, directives, macros):
        if cluster.needs_preprocess:
            split = _preprocess(group, work, cluster.sources, cluster.forget, answers)
        _probe_cluster(group, work, split, directives, answers, cluster)
    return answers


# -- preprocess ----------------------------------------------------------------------------------------


def _preprocess(
    group: Group, work: Path, sources: Sequence[str], macros: Mapping[str, set[str]], answers: Answers
) -> probe_text.Split:
    """Preprocess all sources at once; those at which errors point are put in doubt and left out."""
    batch, output = work / f"batch{group.suffix}", work / "batch.ii"
    left = [s for s in sources if s not in answers.doubts]
    for _ in range(_ROUNDS):
        text, where = probe_text.render_batch(left, macros)
        batch.write_text(text, encoding="utf-8", errors="surrogateescape")
        result = group.preprocess(batch, output)
        if result.status == 0:
            with output.open(encoding="utf-8", errors="surrogateescape", newline="\n") as lines:
                split = probe_text.split(lines, left, group.cwd)
            answers.texts.append(output.rename(work / f"text{len(answers.texts)}.ii"))
            answers.files |= split.files
            answers.read |= split.texts.keys()
            return split
        said = result.stdout + result.stderr
        at = {int(n) for n in re.findall(re.escape(str(batch)) + r"[:(](\d+)", said)}
        bad = {where[n] for n in at if n in where} or {s for s in left if f"{s}:" in said}
        for source in bad or left:
            answers.doubts[source] = Doubt("does not preprocess: " + first_error(said), own_initializers=True)
        left = [s for s in left if s not in answers.doubts]
        if not left:
            break
    for source in left:
        answers.doubts[source] = Doubt("does not preprocess together with others", own_initializers=True)
    return probe_text.Split()


@dataclass(frozen=True)
class _Cluster:
    """Sources that read shared headers alike. `forget`: macros to take back after each of them."""

    sources: list[str]
    forget: dict[str, set[str]]
    needs_preprocess: bool


def _clusters(
    split: probe_text.Split, directives: Mapping[str, tuple[str, ...]], macros: Mapping[str, set[str]]
) -> Iterable[_Cluster]:
    """Macros that a blob defines may change what shared headers say: blobs that differ in such macros are kept apart,
    all other macros are taken back after each blob."""
    sources = list(split.texts)
    inner = {path: probe_text.macros_of(probe_text.read_source(path)) for path in set(split.owned.values())}
    owners: dict[str, set[str]] = {}
    for (file, _), path in split.owned.items():
        owners.setdefault(file, set()).add(path)

    def all_macros(source: str) -> set[str]:
        found, todo, seen = set(macros[source]), [source], {source}
        while todo:
            for path in owners.get(todo.pop(), set()) - seen:
                seen.add(path)
                todo.append(path)
                found |= inner[path]
        return found

    every = {s: all_macros(s) for s in sources} if inner else {s: macros[s] for s in sources}
    names: set[str] = set().union(*every.values()) if every else set()
    if not names:
        return [_Cluster(sources, {}, needs_preprocess=False)]
    known = probe_text.mentioned(names, split.shared)
    forget = {s: every[s] - known for s in sources}
    if not known:
        return [_Cluster(sources, forget, needs_preprocess=forget != {s: macros[s] for s in sources})]
    by_signature: dict[str, list[str]] = {}
    skeleton = _Skeletons(split, directives)
    for s in sources:
        by_signature.setdefault(probe_text.signature(skeleton(s), known), []).append(s)
    return [_Cluster(members, forget, needs_preprocess=True) for members in by_signature.values()]


class _Skeletons:
    """Skeletons of sources, one for all those in a directory that have the same directives."""

    def __init__(self, split: probe_text.Split, directives: Mapping[str, tuple[str, ...]]) -> None:
        self._split, self._directives = split, directives
        self._known: dict[tuple[str, tuple[str, ...]], str] = {}

    def __call__(self, source: str) -> str:
        key = (source.rpartition("/")[0], self._directives[source])
        if key not in self._known:
            self._known[key] = probe_text.skeleton(source, self._split.owned)
        return self._known[key]


# -- probe ---------------------------------------------------------------------------------------------


def _probe_cluster(
    group: Group,
    work: Path,
    split: probe_text.Split,
    directives: Mapping[str, tuple[str, ...]],
    answers: Answers,
    cluster: _Cluster,
) -> None:
    for path, reader in split.guarded_code.items():
        name = path.rpartition("/")[2]
        for source in cluster.sources:
            if source != reader and any(name in line for line in directives[source]):
                answers.doubts[source] = Doubt(f"shares {name}, which has an include guard", own_initializers=True)
    for path, text in split.direct.items():
        name = path.rpartition("/")[2]
        readers = [s for s in cluster.sources if any(name in line for line in directives[s])]
        if len(readers) == 1 and _defines_something(text):
            answers.doubts[readers[0]] = Doubt(f"reads {name}, which defines functions or data", own_initializers=True)
    parsed: dict[int, list[Declaration]] = {}
    sources = [s for s in cluster.sources if s in split.texts and s not in answers.doubts]
    for i, source in enumerate(sources):
        declarations = _understand(source, split.texts.pop(source), answers, is_c=group.suffix == ".c")
        if declarations:
            parsed[i] = declarations
    skeleton = _Skeletons(split, directives)
    forget = cluster.forget.get(sources[0], set()) if sources else set()
    solver = _Solver(group, work, {b: _guarded_macros(skeleton(sources[b]), forget) for b in parsed})
    solver.solve(parsed)
    for i, found in solver.found.items():
        answers.found[sources[i]] = found
    for i, why in solver.failed.items():
        answers.doubts[sources[i]] = Doubt(why)


def _defines_something(header: str) -> bool:
    """Whether a header, which one blob alone reads, defines what would be the blob's own."""
    try:
        return any(d.kind in (Kind.HEAD, Kind.DATA) for d in parse(header))
    except Unsupported as e:
        return "instantiation" in str(e)


def _guarded_macros(skeleton: str, forget: set[str]) -> str:
    names = sorted(probe_text.macros_of(skeleton) & forget)
    push = [f'#pragma push_macro("{n}")' for n in names]
    return "\n".join([*push, skeleton, *(line.replace("push_", "pop_", 1) for line in push)])


def _understand(source: str, text: str, answers: Answers, *, is_c: bool) -> list[Declaration]:
    """The declarations to probe for one blob; none if the answer is known, or only its object can give it."""
    try:
        declarations = parse(text, is_c=is_c)
    except Unsupported as e:
        answers.doubts[source] = Doubt(str(e), own_initializers=True)
        return []
    data = [n for d in declarations if d.kind is Kind.DATA for n in d.names]
    suspects = tuple(n for d in declarations if d.kind is Kind.SUSPECT for n in d.names)
    if data:
        answers.eager[source] = "defines data: " + ", ".join(data[:3])
    elif suspects:
        answers.doubts[source] = Doubt("may run code at load: " + ", ".join(suspects), suspects, own_initializers=True)
    elif not declarations:
        answers.found[source] = probe_unit.Found((), ())  # all of it is switched off
    elif not any(d.kind is Kind.HEAD for d in declarations):
        answers.doubts[source] = Doubt("shows no function of its own")
    else:
        return declarations
    return []


class _Solver:
    """Compiles a cluster's probe unit, without the blobs at fault where there are any. `preludes`: per blob, what
    reads its headers."""

    def __init__(self, group: Group, work: Path, preludes: Mapping[int, str]) -> None:
        self._group, self._work, self._preludes = group, work, preludes
        self._left = _COMPILES + len(preludes) // 8
        self._extra: tuple[str, ...] = ()
        self._by_reference: set[int] = set()
        self._queue: list[dict[int, list[Declaration]]] = []
        self.found: dict[int, probe_unit.Found] = {}
        self.failed: dict[int, str] = {}

    def solve(self, blobs: dict[int, list[Declaration]]) -> None:
        """Fill `found` and `failed` for `blobs`."""
        self._queue.append(blobs)
        while self._queue:
            left = self._queue.pop()
            while left:
                if self._left == 0:
                    self.failed |= dict.fromkeys(left, "the probe does not compile")
                    break
                self._left -= 1
                left = self._attempt(left)

    def _attempt(self, blobs: dict[int, list[Declaration]]) -> dict[int, list[Declaration]]:
        """Compile one unit; gives the blobs with which to try again at once."""
        source, output = self._work / f"probe{self._group.suffix}", self._work / "probe.o"
        preludes = list(dict.fromkeys(self._preludes[b] for b in blobs))
        unit = probe_unit.render(blobs, preludes, self._by_reference)
        source.write_text(unit.text, encoding="utf-8", errors="surrogateescape")
        result = self._group.compile(source, output, self._extra)
        if result.status == 0:
            for b, found in probe_unit.read_back(open_image(output), unit).items():
                if found is None:
                    self.failed[b] = "its symbols depend on what is private to it"
                else:
                    self.found[b] = found
            output.unlink()
            return {}
        said = result.stdout + result.stderr
        more = _error_limit(said) if not self._extra else ()
        if more:
            self._extra = more
            return blobs
        blame = probe_unit.blame(unit, said)
        why = "the probe does not compile: " + first_error(said)
        if blame.preludes and len(preludes) > 1:
            # headers that do not go together: what follows from it in blobs says nothing of them
            aside = {preludes[i] for i in blame.preludes - ({0} if len(blame.preludes) == len(preludes) else set())}
            self._queue.append({b: d for b, d in blobs.items() if self._preludes[b] in aside})
            return {b: d for b, d in blobs.items() if self._preludes[b] not in aside}
        bad = blame.blobs & blobs.keys()
        instances = {b for b in bad - self._by_reference if any(d.reference for d in blobs[b])}
        if instances:
            self._by_reference |= {b for b, ds in blobs.items() if any(d.reference for d in ds)}
            return blobs
        if bad and not blame.preludes:
            self.failed |= dict.fromkeys(bad, why)
            return {b: d for b, d in blobs.items() if b not in bad}
        if len(blobs) == 1 or blame.preludes:
            self.failed |= dict.fromkeys(blobs, why)
            return {}
        self._queue += self._halves(blobs, preludes)
        return {}

    def _halves(
        self, blobs: dict[int, list[Declaration]], preludes: list[str]
    ) -> tuple[dict[int, list[Declaration]], dict[int, list[Declaration]]]:
        """Two halves: by headers where these differ."""
        if len(preludes) > 1:
            first = set(preludes[: len(preludes) // 2])
            chosen = {b for b in blobs if self._preludes[b] in first}
        else:
            chosen = set(list(blobs)[: len(blobs) // 2])
        return {b: d for b, d in blobs.items() if b in chosen}, {b: d for b, d in blobs.items() if b not in chosen}


def _error_limit(said: str) -> tuple[str, ...]:
    """The option that makes a compiler which stopped early name all blobs at fault."""
    if "-ferror-limit=" in said:
        return ("-ferror-limit=0",)
    if "-fmax-errors=" in said:
        return ("-fmax-errors=0",)
    if re.search(r"[Ee]rror limit reached", said):
        return ("-Xcudafe", "--error_limit=100000")
    return ()


def first_error(said: str) -> str:
    """The line of a compiler's output that says what went wrong first."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return next((line for line in lines if "error" in line.lower()), lines[0] if lines else "no message")[:500]
