"""Probes one group of blobs: preprocess, parse, one compile, and retries."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from lazyck.postbuild.cxx.declaration_kinds import Declaration, DeclarationKind, Unsupported
from lazyck.postbuild.cxx.declarations import parse
from lazyck.postbuild.cxx.instances import Instances, count, instances
from lazyck.postbuild.cxx.lexer import flat, without_attributes
from lazyck.postbuild.probe import content_key, preprocess
from lazyck.postbuild.probe.group import Answer, Group, first_error, from_json
from lazyck.postbuild.probe.real_object import defines
from lazyck.postbuild.probe.solver import Solver
from lazyck.toolchains.gpu_runtimes import takes_late_managed

_ROUNDS = 8
_EXTERN = re.compile(r"\bextern\b([^;{}]*);")
_STATIC = re.compile(r"\bstatic\b")
_INLINE = re.compile(r"\b(?:inline|__inline__|__inline)\b")
_INLINE_FUNCTION = re.compile(r"(?:\w[\w \t]*)?\b(?:inline|__inline__|__inline)\b[^;{}()]*?([A-Za-z_]\w*)\s*\(")
_CALLED = re.compile(r"\b([A-Za-z_]\w*)\s*\(")
_LAST_NAMES = re.compile(r"([A-Za-z_]\w*)\s*(?:\[[^\]]*\]\s*)*(?:,|$)")


@dataclass(frozen=True)
class Doubt:
    """Says why a blob must be compiled, and whether code that runs at load is held against it."""

    why: str
    suspects: tuple[str, ...] = ()
    own_initializers: bool = True


@dataclass
class Answers:
    """Holds what is known of a group's sources, with its files in the directory `work`."""

    group: Group
    work: Path
    found: dict[str, Answer] = field(default_factory=dict)  # those to `doubts` come last
    recalled: set[str] = field(default_factory=set)  # unchanged sources, whose answers an earlier link found out
    doubts: dict[str, Doubt] = field(default_factory=dict)  # reasons to compile the source to learn more
    headers: dict[str, frozenset[str]] = field(default_factory=dict)  # what the sources read in the host's pass
    clusters: list[list[str]] = field(default_factory=list)  # of sources that read the same
    texts: list[Path] = field(default_factory=list)  # preprocessed batches, which hold each of them at least once
    instances: dict[str, Instances] = field(default_factory=dict)  # what the sources instantiate explicitly
    keys: dict[str, str] = field(default_factory=dict)  # of sources, by content
    protects: bool = False  # whether a text makes something protected

    def readers(self) -> set[str]:
        """Return the sources that may be lazy, as far as their text tells."""
        return {s for s, answer in self.found.items() if answer.compiled or not answer.eager} | self.doubts.keys()

    def learnt(self) -> dict[str, Any]:
        """Return what is new for the cache: no failed compiles, which may have lacked memory."""
        failed = {s for s in self.doubts if self.found[s].eager and not self.found[s].compiled}
        fresh = self.found.keys() - self.recalled - failed
        return {self.keys[s]: a.as_json() for s, a in self.found.items() if s in self.keys and s in fresh}


def probe_group(group: Group, work: Path, learnt: Mapping[str, Any]) -> Answers:
    """Probe all sources of `group` but those in `learnt`, by key. Writes below `work` only."""
    work.mkdir(parents=True, exist_ok=True)
    return _Prober(group, work, learnt).answers


class _Prober:
    def __init__(self, group: Group, work: Path, learnt: Mapping[str, Any]) -> None:
        self._group, self._work, self._learnt = group, work, learnt
        self.answers = Answers(group, work)
        self._directives: dict[str, tuple[str, ...]] = {}  # equal for blobs that read equal headers
        self._macros: dict[str, set[str]] = {}
        for source in group.sources:
            text = preprocess.read_source(source)
            if word := preprocess.word_of_a_unit(text):
                self.answers.doubts[source] = Doubt(f"uses {word}")
            elif preprocess.is_odd(text):
                self.answers.doubts[source] = Doubt("has directives of an unusual spelling")
            self._directives[source] = tuple(preprocess.DIRECTIVE_LINE.findall(text)) if "#" in text else ()
            self._macros[source] = preprocess.macros_of(text)
        split, seen = self._preprocess(list(group.sources), self._macros), set[int]()
        every, clusters, texts = list(split.texts), list(self._clusters(split)), self.answers.texts
        for sources, forget in clusters:
            if sources != every or any(forget[s] != self._macros[s] for s in sources):
                split = self._preprocess(sources, forget)
            if split.texts:
                self._probe_cluster(split, sources)
                if len(clusters) > 1:
                    preprocess.thin(texts[-1], group.sources, group.cwd, seen)
        if len(clusters) > 1:
            texts.pop(0).unlink()  # that of all together

    # -- preprocess ------------------------------------------------------------------------------

    def _preprocess(self, sources: Sequence[str], macros: Mapping[str, set[str]]) -> preprocess.Split:
        """Preprocess all sources at once. Those with errors are put in doubt and left out."""
        group, answers = self._group, self.answers
        batch, output = self._work / f"batch{group.suffix}", self._work / "batch.ii"
        left = [s for s in sources if s not in answers.doubts]
        for _ in range(_ROUNDS):
            text, where = preprocess.render_batch(left, macros)
            result = group.preprocess(batch, output, text)
            if result.status == 0:
                split = preprocess.split(output, left, group.cwd)
                if odd := split.odd or set(left) - split.texts.keys():
                    answers.doubts |= dict.fromkeys(odd, Doubt("has lines like those of preprocessed text"))
                    left = [s for s in left if s not in odd]
                    continue
                answers.texts.append(output.rename(self._work / f"text{len(answers.texts)}.ii"))
                shared, own = frozenset(split.files), split.own_files
                answers.headers |= {s: shared | own[s] if s in own else shared for s in split.texts}
                return split
            said = result.stdout + result.stderr
            at = {int(n) for n in re.findall(re.escape(str(batch)) + r"[:(](\d+)", said)}
            bad = {where[n] for n in at if n in where} or {s for s in left if f"{s}:" in said}
            for source in bad or left:
                answers.doubts[source] = Doubt("does not preprocess: " + first_error(said))
            left = [s for s in left if s not in answers.doubts]
            if not left:
                break
        for source in left:
            answers.doubts[source] = Doubt("does not preprocess together with others")
        return preprocess.Split()

    def _clusters(self, split: preprocess.Split) -> Iterable[tuple[list[str], dict[str, set[str]]]]:
        """Group sources by the directives that may decide what shared headers say. Return with each
        group the macros of its sources, which are to be forgotten after each."""
        inner = {path: preprocess.macros_of(preprocess.read_source(path)) for path in set(split.owned.values())}
        owners: dict[str, set[str]] = {}
        for (file, _), path in split.owned.items():
            owners.setdefault(file, set()).add(path)

        def all_macros(source: str) -> set[str]:
            found, todo, seen = set(self._macros[source]), [source], {source}
            while todo:
                for path in owners.get(todo.pop(), set()) - seen:
                    seen.add(path)
                    todo.append(path)
                    found |= inner[path]
            return found

        by_directives: dict[str, list[str]] = {}
        skeleton = self._skeletons(split)
        for s in split.texts:
            by_directives.setdefault(preprocess.decisive(skeleton(s)), []).append(s)
        macros = {s: all_macros(s) if inner else self._macros[s] for s in split.texts}
        return [(members, macros) for members in by_directives.values()]

    def _skeletons(self, split: preprocess.Split) -> Callable[[str], str]:
        """Return what makes skeletons, one for all in a directory that have equal directives."""
        known: dict[tuple[str, tuple[str, ...]], str] = {}

        def of(source: str) -> str:
            key = (source.rpartition("/")[0], self._directives[source])
            if key not in known:
                known[key] = preprocess.skeleton(source, split.owned)
            return known[key]

        return of

    # -- probe -----------------------------------------------------------------------------------

    def _probe_cluster(self, split: preprocess.Split, sources: Sequence[str]) -> None:
        group, answers = self._group, self.answers
        answers.clusters.append(list(split.texts))
        self._recall(split)
        batch = answers.texts[-1]
        answers.doubts |= dict.fromkeys(split.counting, Doubt("uses __COUNTER__"))
        words = {path: w for path in split.files.union(*split.own_files.values()) if (w := preprocess.word_in(path))}
        for source in split.texts if words else ():
            if path := min(words.keys() & answers.headers[source], default=""):
                doubt = Doubt(f"reads {path.rpartition('/')[2]}, which uses {words[path]}")
                answers.doubts.setdefault(source, doubt)
        for path, reader in split.guarded_code.items():
            for source in self._naming(path, sources):
                if source != reader:
                    name = path.rpartition("/")[2]
                    answers.doubts[source] = Doubt(f"shares {name}, which has an include guard")
        late, whole = takes_late_managed(group.toolchain.name), preprocess.read_source(batch)
        has_more = count(whole) > sum(map(count, split.texts.values()))
        shared = instances(preprocess.headers_in(batch, group.sources, group.cwd)[1]) if has_more else Instances()
        answers.instances |= {s: instances(split.texts[s]) | shared for s in sources if s in split.texts}
        answers.protects |= preprocess.protects(whole)
        # A header may declare managed variables besides the sources' own texts.
        managed, texts = preprocess.declares_managed, split.texts.values()
        if not late and managed(whole) > sum(map(managed, texts)):
            for source in sources:
                doubt = Doubt("may use a managed variable of a header", own_initializers=False)
                answers.doubts.setdefault(source, doubt)
        reasons = {s: preprocess.what_binds(split.texts.get(s, ""), takes_late_managed=late) for s in sources}
        reasons |= {s: reason for s in sources if (reason := preprocess.names_itself(self._directives[s]))}
        always = preprocess.what_always_binds(whole)
        if len(always) > sum(len(preprocess.what_always_binds(text)) for text in texts):
            reasons = {s: reason or always[0] for s, reason in reasons.items()}
        own = {s: Answer(eager=reason) for s, reason in reasons.items() if reason}
        answers.found |= own
        declared = _Declared(batch)
        parsed: dict[int, list[Declaration]] = {}
        for source in answers.recalled | own.keys():
            answers.doubts.pop(source, None)
        left = split.texts.keys() - answers.doubts.keys() - answers.recalled - own.keys()
        sources = [s for s in sources if s in left]
        for i, source in enumerate(sources):
            declarations = self._understand(source, split.texts.pop(source), declared)
            if declarations:
                parsed[i] = declarations
        for i, name in _called_in_heads(parsed):
            del parsed[i]
            answers.doubts[sources[i]] = Doubt(f"calls {name} in a declaration, and another source declares that, too")
        prelude = preprocess.decisive(self._skeletons(split)(sources[0])) if sources else ""
        solver = Solver(group, self._work, sources, preprocess.guarded(prelude), batch, shared)
        solver.solve(parsed)
        answers.found |= {sources[i]: found for i, found in solver.found.items()}
        for i, why in solver.failed.items():
            answers.doubts[sources[i]] = Doubt(why, own_initializers=False)

    def _naming(self, path: str, sources: Iterable[str]) -> list[str]:
        """Return the `sources` with a directive that may name the file `path`."""
        name = path.rpartition("/")[2]
        return [s for s in sources if any(name in line for line in self._directives[s])]

    def _recall(self, split: preprocess.Split) -> None:
        group, answers = self._group, self.answers
        if not group.key:
            return
        keys = content_key.blob_keys(group.key, answers.headers, split.texts)
        answers.keys |= keys
        for source, key in keys.items():
            if key in self._learnt and (known := from_json(self._learnt[key])):
                answers.found[source] = known
                answers.recalled.add(source)

    def _understand(self, source: str, text: str, declared: "_Declared") -> list[Declaration]:
        """Return a blob's declarations to probe. There are none if they would tell no more."""
        answers, is_c = self.answers, self._group.is_c
        try:
            declarations = parse(text, is_c=is_c)
        except Unsupported as e:
            answers.doubts[source] = Doubt(str(e))
            return []
        inline = declared.inline_in(declarations) if is_c else ""
        constants = [n for d in declarations if d.is_constant for n in d.names]
        data = [n for d in declarations if d.kind is DeclarationKind.DATA for n in d.names]
        suspects = tuple(n for d in declarations if d.kind is DeclarationKind.SUSPECT for n in d.names)
        if data:
            answers.found[source] = Answer(eager=defines(data))
        elif suspects:
            answers.doubts[source] = Doubt("may run code at load: " + ", ".join(suspects), suspects)
        elif inline:
            answers.doubts[source] = Doubt(f"may define {inline}, which is inline")
        elif constants and not declared.names.isdisjoint(constants):
            shown = min(declared.names.intersection(constants))
            answers.doubts[source] = Doubt(f"may define {shown}, which is declared extern")
        elif not declarations:
            answers.found[source] = Answer()  # all of it is switched off
        elif not any(d.kind is DeclarationKind.HEAD for d in declarations):
            answers.doubts[source] = Doubt("shows no function of its own", own_initializers=False)
        else:
            return declarations
        return []


def _called_in_heads(parsed: Mapping[int, Sequence[Declaration]]) -> list[tuple[int, str]]:
    """Return the sources, by their numbers, whose heads call a function, as in `decltype(f(1))`,
    that others declare: in one unit with these, the call may mean another overload."""
    declared: dict[str, set[int]] = {}
    for i, declarations in parsed.items():
        for d in declarations:
            if d.kind in (DeclarationKind.HEAD, DeclarationKind.REPEATABLE):
                for name in d.names:
                    declared.setdefault(name, set()).add(i)
    found = []
    for i, declarations in parsed.items():
        heads = (d for d in declarations if d.kind is DeclarationKind.HEAD)
        called = (name for d in heads for name in _CALLED.findall(d.text) if name not in d.names)
        if name := next((n for n in called if declared.get(n, set()) - {i}), ""):
            found.append((i, name))
    return found


class _Declared:
    """Finds names that a preprocessed `batch` declares. It is read when it is first asked."""

    def __init__(self, batch: Path) -> None:
        self._batch = batch

    @cached_property
    def _text(self) -> str:
        return preprocess.read_source(self._batch)

    @cached_property
    def names(self) -> frozenset[str]:
        """Return the last name of each declaration of an `extern` variable."""
        declared = (flat(without_attributes(m[1])) for m in _EXTERN.finditer(self._text))
        return frozenset(name for one in declared for name in _LAST_NAMES.findall(one))

    def inline_in(self, declarations: Iterable[Declaration]) -> str:
        """Return a function of a C source that is inline, here or in a header: another declaration
        of it may make it a function for other files. Return an empty string if there is none."""
        repeated = [
            d for d in declarations if d.kind in (DeclarationKind.REPEATABLE, DeclarationKind.SUPPORT) and "(" in d.text
        ]
        own = (d for d in repeated if _INLINE.search(d.text) and not _STATIC.search(d.text))
        names = {n for d in repeated for n in d.names if not _STATIC.search(d.text)}
        return next((n for d in own for n in d.names), "") or (min(names & self._inline, default="") if names else "")

    @cached_property
    def _inline(self) -> frozenset[str]:
        return frozenset(m[1] for m in _INLINE_FUNCTION.finditer(self._text) if not _STATIC.search(m[0]))
