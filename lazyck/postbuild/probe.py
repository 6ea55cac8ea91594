"""Learns which mangled symbols each blob will define, without compiling the blobs.

Blobs with the same flags are probed together: one preprocess, one host-only compile of heads without bodies. What the
probe cannot settle is settled by a host-only compile of that blob alone, and what that cannot settle is left eager.
"""

from __future__ import annotations

import os
import re
import resource
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from lazyck import proc, toolchains
from lazyck.command import CompileCommand
from lazyck.config import environment
from lazyck.postbuild.elf import open_image
from lazyck.postbuild.probe_group import Answers, Doubt, Group, first_error, probe_group
from lazyck.postbuild.probe_ir import probe_ir
from lazyck.postbuild.probe_object import Judgement, judge
from lazyck.toolchains import Toolchain


@dataclass(frozen=True)
class Probed:
    """A blob whose symbols are known. `headers`: every file besides its source that compiling it reads, absolute.
    `unreachable`: symbols that it defines but that a slot cannot reach (hidden ones, HIP's kernel handles): if
    anything needs one of these, the blob must be compiled eagerly. `compiled`: by a compile of its own, because of
    this; "" where the group's probe said it all. `weak`: those of `symbols` that an optimized compile may leave out
    unless they are needed. `needs`: what it leaves undefined; None where only a compile of its own could tell."""

    blob: CompileCommand
    symbols: tuple[str, ...]
    headers: frozenset[str]
    unreachable: tuple[str, ...] = ()
    compiled: str = ""
    weak: frozenset[str] = frozenset()
    needs: frozenset[str] | None = None


@dataclass(frozen=True)
class Unprobed:
    """A blob that must be compiled eagerly, and why."""

    blob: CompileCommand
    reason: str


@dataclass(frozen=True)
class ProbeResult:
    """CPU seconds are lazyck's own and its compilers'; the peak is that of the largest single process. `texts` are the
    preprocessed batches of each group: they stay in the work directory."""

    probed: tuple[Probed, ...]
    eager: tuple[Unprobed, ...]
    cpu_seconds: float
    peak_rss_kib: int
    texts: tuple[tuple[Group, tuple[Path, ...]], ...] = ()


def probe(blobs: Sequence[CompileCommand], work: Path, *, jobs: int) -> ProbeResult:
    """Probe `blobs`, with at most `jobs` compilers at a time; writes below `work` only, which the caller removes.

    Every blob is in the answer once, in the order given. Raises `LazyckError` if a compiler cannot be started.
    """
    before = _cpu_seconds()
    groups = _groups(blobs)
    with ThreadPoolExecutor(max(1, jobs)) as pool:
        numbered = [(group, work / f"group{i}") for i, group in enumerate(groups)]
        answers = list(pool.map(lambda job: _probe(job[0], job[1], max(1, jobs // len(groups))), numbered))
        pairs = list(zip(numbered, answers, strict=True))
        compiles = [
            (group, at / f"blob{i}.o", answer, source)
            for (group, at), answer in pairs
            for i, source in enumerate(answer.doubts)
        ]
        settled = list(pool.map(lambda job: _settle(*job), compiles))
        headers = list(pool.map(lambda pair: _headers(pair[0][0], pair[0][1], pair[1]), pairs))
    probed: dict[CompileCommand, Probed] = {}
    eager: dict[CompileCommand, Unprobed] = {}
    for (group, _, answer, source), judged in zip(compiles, settled, strict=True):
        doubt = answer.doubts[source]
        for blob in group.sources[source]:
            if isinstance(judged, str):
                eager[blob] = Unprobed(blob, judged)
            else:
                probed[blob] = Probed(
                    blob, judged.symbols, frozenset(), judged.unreachable, doubt.why, judged.weak, judged.needs
                )
    for (group, _), answer in pairs:
        for source, found in answer.found.items():
            for blob in group.sources[source]:
                probed[blob] = Probed(blob, found.symbols, frozenset(), found.unreachable, needs=found.needs)
        for source, reason in answer.eager.items():
            for blob in group.sources[source]:
                eager[blob] = Unprobed(blob, reason)
    for (group, _), (files, unlisted) in zip(numbered, headers, strict=True):
        for source, commands in group.sources.items():
            for blob in commands:
                if blob not in probed:
                    continue
                if source in unlisted:
                    del probed[blob]
                    eager[blob] = Unprobed(blob, f"the files that it reads cannot be listed: {unlisted[source]}")
                else:
                    probed[blob] = replace(probed[blob], headers=files)
    for (_, at), answer in pairs:
        for file in set(at.iterdir()) - set(answer.texts):
            file.unlink()
    return ProbeResult(
        tuple(probed[b] for b in dict.fromkeys(blobs) if b in probed),
        tuple(eager[b] for b in dict.fromkeys(blobs) if b in eager),
        _cpu_seconds() - before,
        max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_CHILDREN, resource.RUSAGE_SELF)),
        tuple((group, tuple(answer.texts)) for (group, _), answer in pairs),
    )


def _probe(group: Group, work: Path, jobs: int) -> Answers:
    """The probe that reads what the toolchain's sources are written in."""
    return probe_ir(group, work, jobs) if group.toolchain.written_in == "llvm-ir" else probe_group(group, work)


def _cpu_seconds() -> float:
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_CHILDREN, resource.RUSAGE_SELF))
    return sum(u.ru_utime + u.ru_stime for u in usages)


# -- groups --------------------------------------------------------------------------------------------


def _groups(blobs: Sequence[CompileCommand]) -> list[Group]:
    """Blobs by all that decides how their text is read."""
    env = environment()
    members: dict[tuple[object, ...], dict[str, dict[CompileCommand, None]]] = {}
    for blob in blobs:
        toolchain = toolchains.by_name(blob.call.toolchain)
        base = toolchain.base_words(blob)
        cwd = blob.call.cwd if _reads_cwd(toolchain, base) else ""
        suffix = os.path.splitext(blob.source)[1]
        key = (toolchain.name, base, toolchain.archs_of(blob, env), cwd, toolchain.base_env(blob), suffix)
        members.setdefault(key, {}).setdefault(blob.source, {})[blob] = None
    groups = []
    for sources in members.values():
        first = next(iter(next(iter(sources.values()))))
        toolchain = toolchains.by_name(first.call.toolchain)
        default = toolchain.default_arch()
        archs = toolchain.archs_of(first, env) or ((default,) if default else ())
        groups.append(
            Group(
                toolchain=toolchain,
                base=toolchain.base_words(first),
                archs=archs,
                cwd=first.call.cwd,
                env=toolchain.tool_env(first, env, for_base=True),
                suffix=os.path.splitext(first.source)[1],
                sources={s: tuple(commands) for s, commands in sources.items()},
            )
        )
    return groups


@lru_cache(maxsize=256)
def _reads_cwd(toolchain: Toolchain, base: tuple[str, ...]) -> bool:
    """Whether a word of the command may name a file relative to the working directory."""
    takes_value = False
    for word in base[1:]:
        option = max((o for o in toolchain.path_options if word.startswith(o)), key=len, default="")
        if takes_value or option:
            value = word if takes_value else word[len(option) :].lstrip("=")
            takes_value = not takes_value and value == ""
            if value and not value.startswith("/"):
                return True
        elif not word.startswith("-") and "/" in word and not word.startswith("/"):
            return True
    return False


# -- blobs in doubt --------------------------------------------------------------------------------------


def _settle(group: Group, output: Path, answer: Answers, source: str) -> Judgement | str:
    """Compile one blob for the host: what its object says, or the reason why it must be eager."""
    doubt: Doubt = answer.doubts[source]
    result = group.compile(source, output)
    if result.status != 0:
        return f"does not compile for the host: {first_error(result.stdout + result.stderr)}"
    judged = judge(open_image(output), doubt.suspects, own_initializers=doubt.own_initializers)
    output.unlink()
    return judged.reason or judged


# -- headers ---------------------------------------------------------------------------------------------


def _headers(group: Group, work: Path, answer: Answers) -> tuple[frozenset[str], dict[str, str]]:
    """(files that the group's blobs read, blobs for which they cannot be listed and the error)."""
    sources = [s for s in group.sources if s in answer.found or s in answer.doubts]
    found = set(answer.files)
    unlisted: dict[str, str] = {}
    for source in sources:
        if source not in answer.read:
            output = work / "single.ii"
            result = group.preprocess(Path(source), output)
            if result.status != 0:
                unlisted[source] = first_error(result.stdout + result.stderr)
            else:
                found |= _files_in(output, group.cwd)
    blobs = [s for s in sources if s not in unlisted]
    found |= _device_files(group, work, blobs, unlisted)
    return frozenset({_plain(f) for f in found} - ({"/dev/null"} | set(group.sources) - answer.files)), unlisted


_MARKED = re.compile(r'^# \d+ "((?:[^"\\<]|\\.)+)"', re.MULTILINE)


def _files_in(output: Path, cwd: str) -> set[str]:
    text = output.read_text(encoding="utf-8", errors="surrogateescape")
    return {os.path.join(cwd, f) for f in set(_MARKED.findall(text)) if not f.endswith("/")}


def _device_files(group: Group, work: Path, sources: Sequence[str], unlisted: dict[str, str]) -> set[str]:
    """What the device passes read, for all sources at once where that works."""
    if not sources:
        return set()
    batch, output = work / f"device{group.suffix}", work / "device.d"
    batch.write_text("".join(f'#include "{s}"\n' for s in sources), encoding="utf-8", errors="surrogateescape")
    found: set[str] = set()
    for argv in group.toolchain.device_dependencies(group.base, str(batch), str(output), group.archs):
        result = proc.run(argv, cwd=group.cwd, env=group.env)
        if result.status != 0:
            if len(sources) == 1:
                unlisted[sources[0]] = first_error(result.stdout + result.stderr)
                return set()
            half = len(sources) // 2
            return _device_files(group, work, sources[:half], unlisted) | _device_files(
                group, work, sources[half:], unlisted
            )
        found |= _rule_files(output, group.cwd)
    return found - {str(batch), *sources}


def _rule_files(depfile: Path, cwd: str) -> set[str]:
    """The prerequisites of a make rule."""
    text = depfile.read_text(encoding="utf-8", errors="surrogateescape").replace("\\\n", " ").replace("\\\r\n", " ")
    words = re.findall(r"(?:\\.|\S)+", text.partition(": ")[2])
    return {os.path.join(cwd, re.sub(r"\\(.)", r"\1", w).replace("$$", "$")) for w in words}


@lru_cache(maxsize=65536)
def _plain(path: str) -> str:
    """`path` without `..` and `.` parts, where that names the same file."""
    short = os.path.normpath(path)
    if short == path:
        return path
    try:
        return short if os.path.samefile(short, path) else path
    except OSError:
        return path
