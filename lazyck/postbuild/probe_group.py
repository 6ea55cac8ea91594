"""Probes one group of blobs (same toolchain, flags and environment): preprocess, parse, one compile, and retries."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from lazyck import proc
from lazyck.command import CompileCommand
from lazyck.postbuild import content_key, cxx_place, demangle, probe_text, probe_unit
from lazyck.postbuild.answer import Answer, from_json
from lazyck.postbuild.cxx_bodies import without_bodies
from lazyck.postbuild.cxx_declarations import parse
from lazyck.postbuild.cxx_instances import Instances, instances
from lazyck.postbuild.cxx_lexer import flat, without_attributes
from lazyck.postbuild.cxx_variables import Declaration, Kind, Unsupported
from lazyck.postbuild.elf import open_image
from lazyck.postbuild.header_reach import Reach
from lazyck.postbuild.probe_object import defines
from lazyck.toolchains import Toolchain
from lazyck.toolchains.base import TextCompile

_COMPILES = 8  # per cluster, and one for every 8 blobs; what is left then is compiled blob by blob
_FEW = 8  # a unit that fails a second time falls apart if more than one blob in so many is at fault
_AT_ERROR = re.compile(r"^(\S[^\n:(]*)[:(]\d+[:,)][^\n]*?\berror\b", re.MULTILINE)
_ERROR = re.compile(r"\berror\b[^:\n]{0,12}:", re.IGNORECASE)
_ROUNDS = 8
_EXTERN = re.compile(r"\bextern\b([^;{}]*);")
_STATIC = re.compile(r"\bstatic\b")
_INLINE = re.compile(r"\b(?:inline|__inline__|__inline)\b")
_INLINE_FUNCTION = re.compile(r"(?:\w[\w \t]*)?\b(?:inline|__inline__|__inline)\b[^;{}()]*?([A-Za-z_]\w*)\s*\(")
_LAST_NAMES = re.compile(r"([A-Za-z_]\w*)\s*(?:\[[^\]]*\]\s*)*(?:,|$)")


@dataclass(frozen=True)
class Group:
    """Blobs that one compile can probe: `sources` maps each source to the commands that compile it. `key` is theirs in
    the store (see `content_key`). With the options `all_errors` their compiler does not stop at some number of errors.
    """

    toolchain: Toolchain
    base: tuple[str, ...]
    archs: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]
    suffix: str
    sources: Mapping[str, tuple[CompileCommand, ...]]
    key: str = ""
    all_errors: tuple[str, ...] = ()

    def compile(
        self, source: Path | str, output: Path, extra: Sequence[str] = (), *, is_settling: bool = False
    ) -> proc.Result:
        """Compile for the host; `is_settling`: with the optimization that the object's symbols depend on."""
        how = self.toolchain.host_settle if is_settling else self.toolchain.host_compile
        return self.run((*how(self.base, str(source), str(output), self.archs), *extra))

    def run(self, argv: Sequence[str]) -> proc.Result:
        """Run a command where and as the project would."""
        return proc.run(argv, cwd=self.cwd, env=self.env)

    def text_compile(self, source: Path, output: Path) -> TextCompile | None:
        """How to compile preprocessed text for the host; None where that takes the toolchain's own driver."""
        return self.toolchain.text_compile(
            self.base, str(source), str(output), self.archs, is_c=self.is_c, cwd=self.cwd, env=self.env
        )

    @property
    def is_c(self) -> bool:
        """Whether the sources are C rather than C++."""
        return self.suffix == ".c" or ("-x", "c") in pairwise(self.base)

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
    `read` read; `texts`: preprocessed batches, which hold each of `read` at least once; `instances`: what they
    instantiate explicitly; `keys`: of sources by content; `known`: what earlier links found out of sources that are as
    they were then; `settled`: the answers to `doubts`."""

    found: dict[str, probe_unit.Found] = field(default_factory=dict)
    eager: dict[str, str] = field(default_factory=dict)
    doubts: dict[str, Doubt] = field(default_factory=dict)
    files: set[str] = field(default_factory=set)
    read: set[str] = field(default_factory=set)
    texts: list[Path] = field(default_factory=list)
    instances: dict[str, Instances] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)
    known: dict[str, Answer] = field(default_factory=dict)
    settled: dict[str, Answer] = field(default_factory=dict)

    def all(self) -> Iterator[tuple[str, Answer]]:
        """Each source with what is known of it, once doubts are settled."""
        yield from self.known.items()
        for source, found in self.found.items():
            yield (
                source,
                Answer(
                    found.symbols,
                    found.unreachable,
                    weak=found.weak,
                    needs=found.needs,
                    merged=found.merged,
                    private=found.private,
                    kernels=found.kernels,
                ),
            )
        for source, reason in self.eager.items():
            yield source, Answer(eager=demangle.readable(reason))
        yield from self.settled.items()

    def readers(self) -> set[str]:
        """The sources that may be lazy, as far as their text tells."""
        known = {source for source, answer in self.known.items() if answer.compiled or not answer.eager}
        return known | self.found.keys() | self.doubts.keys()

    def learnt(self) -> dict[str, Any]:
        """For the store: what is new, but for compiles that failed, which may have lacked memory."""
        failed = {source for source, answer in self.settled.items() if answer.eager and not answer.compiled}
        passed_over = failed | self.known.keys()
        return {self.keys[s]: a.as_json() for s, a in self.all() if s in self.keys and s not in passed_over}


def probe_group(group: Group, work: Path, learnt: Mapping[str, Any] | None = None) -> Answers:
    """Probe all sources of `group` but those of which `learnt`, by key, has the answer; writes below `work` only."""
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
        _probe_cluster(group, work, split, directives, answers, cluster, learnt or {})
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
    learnt: Mapping[str, Any],
) -> None:
    _recall(group, split, answers, learnt)
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
            answers.instances[readers[0]] = instances(text + split.texts.get(readers[0], ""))
    answers.instances = {s: instances(split.texts[s]) for s in cluster.sources if s in split.texts} | answers.instances
    bound = {s: why for s in cluster.sources if (why := cxx_place.reason(split.texts.get(s, "")))}
    answers.eager |= bound
    for source in bound:
        answers.doubts.pop(source, None)
    declared = _Declared(answers.texts[-1] if answers.texts else None)
    parsed: dict[int, list[Declaration]] = {}
    for source in answers.known:
        answers.doubts.pop(source, None)
    left = split.texts.keys() - answers.doubts.keys() - answers.known.keys() - bound.keys()
    sources = [s for s in cluster.sources if s in left]
    for i, source in enumerate(sources):
        declarations = _understand(source, split.texts.pop(source), answers, declared, is_c=group.is_c)
        if declarations:
            parsed[i] = declarations
    skeleton = _Skeletons(split, directives)
    forget = cluster.forget.get(sources[0], set()) if sources else set()
    reach = _Reaches(split, sources)
    headers = _Headers(group, work, sources, cluster.forget, answers.texts[-1] if answers.texts else None)
    preludes = {b: _guarded_macros(skeleton(sources[b]), forget) for b in parsed}
    solver = _Solver(group, work, preludes, reach, headers)
    solver.solve(parsed)
    for i, found in solver.found.items():
        if found.data:
            answers.eager[sources[i]] = defines(found.data)
        else:
            answers.found[sources[i]] = found
    for i, why in solver.failed.items():
        answers.doubts[sources[i]] = Doubt(why)


def _recall(group: Group, split: probe_text.Split, answers: Answers, learnt: Mapping[str, Any]) -> None:
    if not group.key or not split.texts:
        return
    options = group.toolchain.table.split(group.base[1:])
    keys = content_key.blob_keys(group.key, options, split.files, split.texts)
    answers.keys |= keys
    for source, key in keys.items():
        if key in learnt and (known := from_json(learnt[key])):
            answers.known[source] = known


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


class _Declared:
    """Names that a preprocessed batch declares `extern`: read when it is first asked."""

    def __init__(self, text: Path | None) -> None:
        self._text = text

    @cached_property
    def names(self) -> frozenset[str]:
        """The last name of each such declaration of a variable."""
        if self._text is None:
            return frozenset()
        text = self._text.read_text(encoding="utf-8", errors="surrogateescape")
        return frozenset(name for m in _EXTERN.finditer(text) for name in _names(m[1]))

    def inline_in(self, declarations: Iterable[Declaration]) -> str:
        """A function of a C source that is inline, here or in a header: another declaration of it may make it one for
        other files. "" where there is none."""
        repeated = [d for d in declarations if d.kind in (Kind.REPEATABLE, Kind.SUPPORT) and "(" in d.text]
        own = (d for d in repeated if _INLINE.search(d.text) and not _STATIC.search(d.text))
        names = {n for d in repeated for n in d.names if not _STATIC.search(d.text)}
        return next((n for d in own for n in d.names), "") or (min(names & self._inline, default="") if names else "")

    @cached_property
    def _inline(self) -> frozenset[str]:
        if self._text is None:
            return frozenset()
        text = self._text.read_text(encoding="utf-8", errors="surrogateescape")
        found = (m for m in _INLINE_FUNCTION.finditer(text) if not _STATIC.search(m[0]))
        return frozenset(m[1] for m in found)


def _names(declaration: str) -> list[str]:
    return _LAST_NAMES.findall(flat(without_attributes(declaration)))


def _understand(source: str, text: str, answers: Answers, declared: _Declared, *, is_c: bool) -> list[Declaration]:
    """The declarations to probe for one blob; none if the answer is known, or only its object can give it."""
    try:
        declarations = parse(text, is_c=is_c)
    except Unsupported as e:
        answers.doubts[source] = Doubt(str(e), own_initializers=True)
        return []
    inline = declared.inline_in(declarations) if is_c else ""
    constants = [n for d in declarations if d.is_constant for n in d.names]
    data = [n for d in declarations if d.kind is Kind.DATA for n in d.names]
    suspects = tuple(n for d in declarations if d.kind is Kind.SUSPECT for n in d.names)
    if data:
        answers.eager[source] = defines(data)
    elif suspects:
        answers.doubts[source] = Doubt("may run code at load: " + ", ".join(suspects), suspects, own_initializers=True)
    elif inline:
        answers.doubts[source] = Doubt(f"may define {inline}, which is inline", own_initializers=True)
    elif constants and not declared.names.isdisjoint(constants):
        shown = min(declared.names.intersection(constants))
        answers.doubts[source] = Doubt(f"may define {shown}, which is declared extern", own_initializers=True)
    elif not declarations:
        answers.found[source] = probe_unit.Found((), ())  # all of it is switched off
    elif not any(d.kind is Kind.HEAD for d in declarations):
        answers.doubts[source] = Doubt("shows no function of its own")
    else:
        return declarations
    return []


class _Reaches:
    """Which headers, as far as their names tell, each of the `sources` reads."""

    def __init__(self, split: probe_text.Split, sources: Sequence[str]) -> None:
        self._files, self._sources = frozenset(split.shared), sources
        self._reach: Reach | None = None

    def __call__(self, index: int) -> frozenset[str]:
        if self._reach is None:
            self._reach = Reach(self._files, self._sources, lambda file: False, guesses=True)
        return self._reach.of(self._sources[index])


class _Headers:
    """The headers of blobs as one preprocessed text, without the bodies of their functions. `read`: a preprocessed
    batch of all `sources`."""

    def __init__(
        self, group: Group, work: Path, sources: Sequence[str], forget: Mapping[str, set[str]], read: Path | None
    ) -> None:
        self._group, self._work, self._sources, self._forget, self._read = group, work, sources, forget, read

    def text(self, blobs: Collection[int], *, apart: bool) -> str | None:
        """What the `blobs` (indices of sources) read, with what others do unless they are to be `apart`; None if they
        do not preprocess."""
        chosen = [s for i, s in enumerate(self._sources) if i in blobs]
        batch = self._preprocessed(chosen) if apart else self._read
        if batch is None:
            return None
        lines: list[str] = []
        with batch.open(encoding="utf-8", errors="surrogateescape", newline="\n") as text:
            probe_text.split(text, self._group.sources, self._group.cwd, others=lines)
        return without_bodies("".join(lines))

    def _preprocessed(self, sources: Sequence[str]) -> Path | None:
        batch, output = self._work / f"some{self._group.suffix}", self._work / "some.ii"
        text, _ = probe_text.render_batch(sources, self._forget)
        batch.write_text(text, encoding="utf-8", errors="surrogateescape")
        return output if self._group.preprocess(batch, output).status == 0 else None


@dataclass
class _Job:
    """Blobs to compile in one unit. `retries`: how often that may still fail because of many of them. `by_text`: from
    the preprocessed headers of the whole cluster, or of these blobs alone (`apart`)."""

    blobs: dict[int, list[Declaration]]
    retries: int = 1
    by_text: bool = True
    apart: bool = False


class _Solver:
    """Compiles a cluster's probe unit, without the blobs at fault where there are any. `preludes`: per blob, what
    reads its headers; `reach`: which headers these are."""

    def __init__(
        self,
        group: Group,
        work: Path,
        preludes: Mapping[int, str],
        reach: Callable[[int], frozenset[str]],
        headers: _Headers,
    ) -> None:
        self._group, self._work, self._preludes, self._reach, self._headers = group, work, preludes, reach, headers
        self._left = _COMPILES + len(preludes) // 8
        self._by_reference: set[int] = set()
        self.found: dict[int, probe_unit.Found] = {}
        self.failed: dict[int, str] = {}

    def solve(self, blobs: dict[int, list[Declaration]]) -> None:
        """Fill `found` and `failed` for `blobs`."""
        queue = [_Job(blobs)]
        while queue:
            job = queue.pop()
            if job.blobs and self._left == 0:
                self.failed |= dict.fromkeys(job.blobs, "the probe does not compile")
            elif job.blobs:
                self._left -= 1
                queue += self._attempt(job)

    def _attempt(self, job: _Job) -> list[_Job]:
        """Compile one unit; gives what to try next."""
        blobs = job.blobs
        source, output = self._work / f"probe{self._group.suffix}", self._work / "probe.o"
        preludes = list(dict.fromkeys(self._preludes[b] for b in blobs))
        how = self._group.text_compile(source, output) if job.by_text else None
        text = self._headers.text(blobs, apart=job.apart) if how else None
        if job.by_text and text is None:
            job, how = replace(job, by_text=False), None
        unit = probe_unit.render(blobs, preludes if text is None else [text], self._by_reference)
        group = self._group
        readable = group.toolchain.readable(unit.text) if how else unit.text
        source.write_text(readable, encoding="utf-8", errors="surrogateescape")
        result = group.run(how.argv) if how else group.compile(source, output, group.all_errors)
        if result.status == 0:
            for b, found in probe_unit.read_back(open_image(output), unit, how).items():
                if isinstance(found, str):
                    self.failed[b] = found
                else:
                    self.found[b] = found
            output.unlink()
            return []
        said = result.stdout + result.stderr
        blame = probe_unit.blame(unit, said)
        why = "the probe does not compile: " + first_error(said)
        if len(preludes) > 1:
            # headers that do not go together: what follows from it in blobs says nothing of them
            families = self._families(blobs, {os.path.join(self._group.cwd, f) for f in _AT_ERROR.findall(said)})
            if len(families) > 1:
                return [_Job(family, apart=True) for family in families]
        bad = blame.blobs & blobs.keys()
        if job.by_text and (not bad or any(not f.startswith("lazyck-") for f in _AT_ERROR.findall(said))):
            return [replace(job, by_text=not job.apart, apart=True)]
        instances = {b for b in bad - self._by_reference if any(d.reference for d in blobs[b])}
        if instances:
            by_reference = {b for b, ds in blobs.items() if any(d.reference for d in ds)}
            # a pointer to a kernel is to its handle, which says nothing of the function that launches it
            of_kernels = {b for b in by_reference if any(map(probe_unit.instantiates_a_kernel, blobs[b]))}
            self.failed |= dict.fromkeys(of_kernels, "instantiates a kernel that its headers declare")
            self._by_reference |= by_reference
            return [replace(job, blobs={b: d for b, d in blobs.items() if b not in of_kernels})]
        falls_apart = job.retries == 0 and (not bad or len(bad) * _FEW > len(blobs))
        if len(blobs) == 1 or falls_apart or (blame.preludes and len(preludes) == 1):
            self.failed |= dict.fromkeys(blobs, why)
            return []
        if bad and not blame.preludes:
            right = {b: d for b, d in blobs.items() if b not in bad}
            if job.retries and right:  # two that do not go together may, each with others
                return [
                    replace(job, blobs={b: blobs[b] for b in sorted(bad)}, retries=0),
                    replace(job, blobs=right, retries=0),
                ]
            self.failed |= dict.fromkeys(bad, why)
            return [replace(job, blobs=right, retries=0)]
        return [replace(job, blobs=half, retries=0) for half in self._halves(blobs, preludes)]

    def _families(self, blobs: dict[int, list[Declaration]], at_error: set[str]) -> list[dict[int, list[Declaration]]]:
        """`blobs` by which of the headers `at_error` they read: those that share one stay together, as do those that
        read none, which are of the family that the compiler read first."""
        families: list[tuple[frozenset[str], dict[int, list[Declaration]]]] = []
        for b, declarations in blobs.items():
            read = self._reach(b) & at_error
            alike = [f for f in families if f[0] & read or f[0] == read]
            families = [f for f in families if f not in alike]
            members = {k: d for _, family in alike for k, d in family.items()} | {b: declarations}
            families.append((read.union(*(names for names, _ in alike)), members))
        return [members for _, members in families]

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


def first_error(said: str) -> str:
    """The line of a compiler's output that says what went wrong first."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if _ERROR.search(line)] or [line for line in lines if "error" in line.lower()]
    return (errors or lines or ["no message"])[0][:500]
