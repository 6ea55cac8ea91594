"""Proves that a bundle is complete: preprocesses each group of blobs by its recipe, from it alone.

The probe's list of headers comes from the compiler, but it can lack some. GCC takes two files of
equal size, time and contents for one file if they say `#pragma once`. Clang takes two names of one
file for one. Neither reports the second file. A header that only `__has_include` asks for is not
read at all. A missing header is added to the bundle, which is proved again. A blob that needs what
no bundle can hold is compiled eagerly.
"""

import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from lazyck import abi, proc
from lazyck.files import absolute, digest, encode
from lazyck.formats.manifest import BlobRecord, Recipe
from lazyck.postbuild.bundle import FileDigests
from lazyck.postbuild.bundle_paths import HEADER_PATH, BundlePaths, header_directories, inside
from lazyck.postbuild.cxx.includes import asked_by, included_by
from lazyck.postbuild.describe import Description
from lazyck.postbuild.link_context import LinkContext
from lazyck.postbuild.probe.group import Group, Probed, first_error, rule_files
from lazyck.postbuild.probe.preprocess import macros_of, read_source, render_batch
from lazyck.postbuild.reasons import Reason, ReasonKind
from lazyck.settings.environment import environment
from lazyck.toolchains.base import SourceCompile

_MACRO_NAME = re.compile(r"-D\s*\w+=[\\\"'<]*([^\\\"'>\n]+)")
_MACRO_PATH = re.compile(r"-D\s*\w+=[\\\"'<]*(/[^\\\"'>\n]+)")

# Returns the words in front of a command by which it runs as a compile of a blob, which is named,
# runs at a first call, and is limited in what it may read. The path is that of the manifest.
Limits = Callable[[Path, str], Sequence[str]]


@dataclass(frozen=True)
class Finding:
    """Records what preprocessing a group from its bundle showed."""

    lacking: frozenset[str] = frozenset()  # files of the build that the bundle lacks
    unproved: Mapping[str, Reason] = field(default_factory=dict)  # sources that no bundle can serve


@dataclass(frozen=True)
class Case:
    """Describes the blobs of one group in a bundle that is to be proved."""

    group: Group
    blobs: tuple[tuple[Probed, BlobRecord], ...]
    recipe: Recipe
    where: BundlePaths
    places: Mapping[str, str]  # the bundle's files for them → the build's files
    root: Path
    limits: Limits
    lesser: tuple[Recipe, ...] = ()  # for CPUs that lack what `recipe` needs

    @property
    def tree(self) -> str:
        """Return the directory of the bundle's tree, with a slash at its end."""
        return os.path.join(self.root, self.where.library, "tree") + os.sep

    @cached_property
    def foreign(self) -> frozenset[str]:
        """Return the headers of the system and of the compiler that keys cover."""
        return frozenset(h for p, _ in self.blobs for h in p.headers if self.where.is_foreign(h))

    @cached_property
    def directories(self) -> frozenset[str]:
        """Return where the build's own compile may find a header: the directories that its options
        and variables name, and those of the files themselves."""
        group = self.group
        variables = [(name, value) for name, value in group.env.items() if value]
        named = header_directories(group.base[1:], group.cwd, group.toolchain, variables)
        return frozenset(named).union(map(os.path.dirname, self.places.values()))

    @cached_property
    def optional(self) -> frozenset[str]:
        """Return files of the build that the bundle's files may ask for by `__has_include`."""
        return frozenset(path for name in self.asked_by(self.places.values()) for path in _candidates(self, name))

    def asked_by(self, files: Iterable[str]) -> frozenset[str]:
        return asked_by(files, _MACRO_NAME.findall("\n".join(self.recipe.compile)))

    @cached_property
    def absolute_names(self) -> frozenset[str]:
        return frozenset(n for file in self.places.values() for n in included_by(file) if n.startswith("/"))

    def key(self, contents: FileDigests) -> str:
        """Return a digest of the preprocessor's options, inputs and search paths."""
        recipe, group = self.recipe, self.group
        words = [*recipe.compile, *(w for pair in recipe.env for w in pair), recipe.toolchain_id, *group.archs, ""]
        words += [w for r in self.lesser for w in r.compile]
        words += [str(self.root), *(r.source for _, r in self.blobs)]
        files = [w for place, file in sorted(self.places.items()) for w in (place, contents.of_file(file))]
        return digest(*map(encode, [*words, "", *files, "", *sorted(self.optional)]))


class BundleProof:
    """Proves the bundles of one link, one after the other. The findings are kept for the next."""

    def __init__(self, context: LinkContext, groups: Sequence[Group], contents: FileDigests, limits: Limits) -> None:
        self._groups = [g for g in groups if g.toolchain.written_in == "c++"]
        self._directory, self._jobs = context.directory, context.options.jobs
        self._contents = contents
        self._limits = limits
        self._added: dict[int, frozenset[str]] = {}
        self._cache, self._place = context.cache, f"{context.final.name}-proof"
        self._known = self._cache.answers(self._place)

    @property
    def added(self) -> frozenset[tuple[int, str]]:
        """Return the headers that were found missing so far, each with the number of its group."""
        return frozenset((i, header) for i, headers in self._added.items() for header in headers)

    def completed(self, lazy: Sequence[Probed]) -> tuple[Probed, ...]:
        """Return the blobs, with all headers added that were found missing so far."""
        added = {b: more for i, more in self._added.items() for b in self._blobs_of(i)}
        return tuple(replace(p, headers=p.headers | added[p.blob]) if p.blob in added else p for p in lazy)

    def cases(self, made: Description) -> dict[int, Case]:
        found: dict[int, Case] = {}
        for i, group in enumerate(self._groups):
            members = set(self._blobs_of(i))
            blobs = tuple((p, r) for p, r in made.rows if p.blob in members)
            if blobs:
                where = made.paths[group.toolchain.name]
                files = {p.blob.source for p, _ in blobs}.union(*{p.headers for p, _ in blobs})
                held = {where.in_bundle(f): f for f in files if not where.is_foreign(f)}
                recipe, *lesser = made.manifest.recipes_from(blobs[0][1].recipe)
                root = self._directory / "bundle"
                found[i] = Case(group, blobs, recipe, where, held, root, self._limits, tuple(lesser))
        return found

    def foresee(self, cases: Mapping[int, Case]) -> Finding:
        """Return what can be found before the bundle is written in vain: an earlier link's findings
        for an equal bundle, and files that the bundle surely lacks."""
        found: dict[int, Finding] = {}
        for i, case in cases.items():
            key = case.key(self._contents)
            if known := self._recall(key):
                found[i] = known
            elif i not in self._added and (foreseen := _foreseen(case)):
                found[i] = self._keep(key, Finding(frozenset(foreseen)))
        return self._gather(found)

    def examine(self, cases: Mapping[int, Case]) -> Finding:
        """Preprocess the written bundle. `completed` then adds the headers that it lacked."""
        with ThreadPoolExecutor(max(1, self._jobs)) as pool:
            found = dict(zip(cases, pool.map(self._look, cases, cases.values()), strict=True))
        return self._gather(found)

    def _gather(self, found: Mapping[int, Finding]) -> Finding:
        lacking: set[str] = set()
        unproved: dict[str, Reason] = {}
        for i, finding in found.items():
            before = self._added.get(i, frozenset())
            lacking |= finding.lacking - before
            self._added[i] = before | finding.lacking
            unproved.update(finding.unproved)
        self._cache.keep_answers(self._place, self._known)
        return Finding(frozenset(lacking), unproved)

    def _blobs_of(self, i: int) -> Iterator[object]:
        return (command for commands in self._groups[i].sources.values() for command in commands)

    def _look(self, i: int, case: Case) -> Finding:
        key = case.key(self._contents)
        if known := self._recall(key):
            return known
        work = self._directory / "proof" / str(i)
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        each = [_preprocess(replace(case, recipe=r), work, case.blobs) for r in (case.recipe, *case.lesser)]
        unproved = {source: reason for found in each for source, reason in found.unproved.items()}
        return self._keep(key, Finding(frozenset().union(*(found.lacking for found in each)), unproved))

    def _keep(self, key: str, found: Finding) -> Finding:
        reasons = {source: reason.as_line() for source, reason in found.unproved.items()}
        self._known[key] = (sorted(found.lacking), reasons)
        return found

    def _recall(self, key: str) -> Finding | None:
        if key not in self._known:
            return None
        lacking, reasons = self._known[key]
        is_there = all(map(os.path.isfile, lacking))
        return Finding(frozenset(lacking), {s: Reason.of_line(r) for s, r in reasons.items()}) if is_there else None


def _preprocess(case: Case, work: Path, blobs: Sequence[tuple[Probed, BlobRecord]]) -> Finding:
    """Preprocess all `blobs` together. If that fails, try each half of them."""
    batch, output = work / f"proof{case.group.suffix}", work / "proof.d"
    sources = [str(case.root / record.source) for _, record in blobs]
    text, _ = render_batch(sources, {source: macros_of(read_source(source)) for source in sources})
    batch.write_text(text, encoding="utf-8", errors="surrogateescape")
    words, env = _command(case)
    lacking: set[str] = set()
    reason: Reason | None = None
    group = case.group
    context = SourceCompile(words, str(batch), str(output), group.archs, str(work), env)
    limited = case.limits(case.root / case.where.library / "manifest", blobs[0][1].name)
    for argv in group.toolchain.dependencies(context):
        result = refused = proc.run([*limited, *argv], cwd=work)
        if refused.status != 0:
            # What the runtime would not let it read may be what the bundle lacks.
            result = proc.run(argv, cwd=work, env=env)
        if result.status != 0:
            reason = Reason(ReasonKind.NOT_PREPROCESSED, first_error(result.stdout + result.stderr))
            break
        more, reason = _judge(case, rule_files(output, str(work)) - {str(batch)}, str(work))
        lacking |= more
        if refused.status != 0 and not more and not reason:
            reason = Reason(ReasonKind.NOT_PREPROCESSED, first_error(refused.stdout + refused.stderr))
        if reason:
            break
    if lacking or not reason:
        return Finding(frozenset(lacking))
    if len(blobs) == 1:
        return Finding(unproved={blobs[0][0].blob.source: reason})
    half = len(blobs) // 2
    first, second = _preprocess(case, work, blobs[:half]), _preprocess(case, work, blobs[half:])
    return Finding(first.lacking | second.lacking, {**first.unproved, **second.unproved})


def _command(case: Case) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the recipe's compiler, options and environment, as the runtime has them."""
    recipe = case.recipe

    def expand(word: str) -> str:
        return word.replace(abi.PH_ROOT, str(case.root)).replace(abi.PH_TOOLCHAIN, recipe.home)

    words = recipe.compiler_words
    env = {"PATH": environment().get("PATH", os.defpath), "LC_ALL": "C"} | {k: expand(v) for k, v in recipe.env}
    return tuple(expand(w) for w in words if w != abi.PH_ARCHS), env


def _judge(case: Case, read: set[str], work: str) -> tuple[set[str], Reason | None]:
    """Judge the files that were `read` or not found. Return those that the bundle lacks, and the
    reason why no bundle can hold some other file, or None."""
    lacking: set[str] = set()
    held = set(case.places.values())
    for path in sorted(read):
        if path.startswith(work + os.sep):
            name = path[len(work) + 1 :]
            found = _candidates(case, name) - held
            if not found:
                return lacking, Reason(ReasonKind.NOT_IN_BUNDLE, name)
            lacking |= found
            continue
        path = os.path.normpath(path)
        if path.startswith(case.tree):
            original = os.path.join(case.where.prefix, path[len(case.tree) :])
            is_held = os.path.relpath(path, case.root) in case.places
            if not is_held and os.path.isfile(original) and not case.where.is_foreign(original):
                lacking.add(original)
        elif case.where.is_foreign(path):
            # Where the CPU lacks something, the compiler's macros may lead to other headers.
            lacking |= {path} - case.foreign if case.lesser else set()
        elif _is_of_the_build(case, path):
            if path in held or not os.path.isfile(path):
                return lacking, Reason(ReasonKind.ONLY_HERE, path)
            lacking.add(path)
    return lacking, None


def _candidates(case: Case, name: str) -> set[str]:
    """Return the files that `#include` of `name`, from anywhere, may mean in the build."""
    paths = (absolute(name, directory) for directory in case.directories)
    return {path for path in paths if os.path.isfile(path) and not case.where.is_foreign(path)}


def _is_of_the_build(case: Case, path: str) -> bool:
    """Return whether an option of the recipe, or an `#include` of an absolute path, leads to
    `path`. Any other file belongs to the compiler, wherever that is installed."""
    words, env = _command(case)
    given = "\n".join(words[1:])
    below = [*HEADER_PATH.findall(given), *_MACRO_PATH.findall(given), *case.absolute_names]
    below += [part for name in case.group.toolchain.header_env for part in env.get(name, "").split(":")]
    return any(part.startswith("/") and inside(path, part) for part in below)


def _bytes(path: str) -> bytes:
    return Path(path).read_bytes()


def _foreseen(case: Case) -> set[str]:
    """Return files of the build that the bundle lacks, and the files that these lead to in turn. A
    file is lacking if one of the bundle's files may ask for it by `__has_include`. It is also
    lacking if a file includes it and the compiler took it for one that it had read before."""
    held = set(case.places.values())
    texts: dict[str, bytes] = {}
    fresh = held
    while fresh:
        texts |= {file: _bytes(file) for file in fresh}
        equals = set(texts.values())
        by_name: dict[str, list[str]] = {}
        for file in texts:
            by_name.setdefault(os.path.basename(file), []).append(f"/{file}")
        found: set[str] = set()
        for name in case.asked_by(texts):
            found |= _candidates(case, name)
        for name in {name for file in fresh for name in included_by(file)}:
            tail = "/" + name.rpartition("../")[2]
            if not any(file.endswith(tail) for file in by_name.get(os.path.basename(name), ())):
                found |= {path for path in _candidates(case, name) if _bytes(path) in equals}
        fresh = found - texts.keys()
    return texts.keys() - held
