"""Learns which mangled symbols each blob will define, without compiling the blobs.

Blobs with equal flags are probed together: one preprocess, and one host-only compile of heads
without bodies. What the probe cannot settle is settled by a host-only compile of that blob alone.
What that cannot settle either is left eager.
"""

import os
import re
import resource
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from lazyck import toolchains
from lazyck.files import absolute
from lazyck.postbuild.bundle import FileDigests
from lazyck.postbuild.cxx import demangle
from lazyck.postbuild.cxx.instances import instances
from lazyck.postbuild.objects.elf import open_image
from lazyck.postbuild.probe import content_key, preprocess
from lazyck.postbuild.probe.group import Answer, Group, Probed, compile_one, first_error, object_key, rule_files
from lazyck.postbuild.probe.ir import probe_ir
from lazyck.postbuild.probe.one_group import Answers, probe_group
from lazyck.postbuild.probe.real_object import judge
from lazyck.postbuild.probe_cache import ProbeCache
from lazyck.postbuild.reasons import Reason, ReasonKind
from lazyck.settings.environment import environment
from lazyck.toolchains import Toolchain, native
from lazyck.toolchains.command import CompileCommand
from lazyck.toolchains.gnu import own_library_items
from lazyck.toolchains.gpu_runtimes import takes_late_managed


@dataclass(frozen=True)
class ProbeResult:
    probed: tuple[Probed, ...]
    eager: Mapping[CompileCommand, Reason]  # the blobs that must be compiled eagerly
    peak_rss_kib: int  # of the largest single process
    texts: tuple[tuple[Group, tuple[Path, ...]], ...] = ()  # preprocessed batches, which stay in the work directory
    keys: Mapping[CompileCommand, str] = field(default_factory=dict)  # over all that is read when a blob is compiled
    eager_seconds: float = 0.0  # of CPU, that went into objects that are linked
    clusters: tuple[Group, ...] = ()  # those of `texts`, apart by which headers their sources read


_MARKED = re.compile(r'^# \d+ "((?:[^"\\<]|\\.)+)"', re.MULTILINE)
# So many blobs in doubt may stay lazy although their own compile was spent on finding out what they
# define. The limit is this number, or an eighth of a link's blobs, so that the probe as a whole
# stays below a quarter of what compiling all costs. The objects of all others are linked, since
# they are there. The limit counts blobs rather than CPU seconds, since equal sources must give an
# equal library.
_ALLOWED = 8
_ALLOWED_SHARE = 8


def probe(blobs: Sequence[CompileCommand], work: Path, cache: ProbeCache, *, jobs: int) -> ProbeResult:
    """Probe `blobs`, with at most `jobs` compilers at a time. Every blob is in the answer once, in
    the order given. Writes below `work`, which the caller removes, and into `cache`, which has what
    earlier links found out. Raises `LazyckError` if a compiler cannot be started."""
    blobs = list(dict.fromkeys(blobs))
    groups = groups_of(blobs)
    with cache.turns(g.key for g in groups if g.key):
        return _probe_all(blobs, groups, work, cache, jobs)


def _probe_all(
    blobs: Sequence[CompileCommand], groups: Sequence[Group], work: Path, cache: ProbeCache, jobs: int
) -> ProbeResult:
    def one(i: int) -> Answers:
        group, at = groups[i], work / f"group{i}"
        if group.toolchain.written_in == "llvm-ir":
            return probe_ir(group, at, max(1, jobs // len(groups)))
        return probe_group(group, at, cache.answers(group.key) if group.key else {})

    with ThreadPoolExecutor(max(1, jobs)) as pool:
        found = list(pool.map(one, range(len(groups))))
        compiles = [(a, a.work / f"blob{i}.o", source) for a in found for i, source in enumerate(a.doubts)]
        begun = cpu_seconds()
        settled = list(pool.map(lambda job: _settle(*job), compiles))
        settling = cpu_seconds() - begun
        headers = list(pool.map(_headers, found))
    objects: dict[CompileCommand, Path] = {}
    for (answers, output, source), judged in zip(compiles, settled, strict=True):
        answers.found[source] = judged
        if judged.by_itself:
            objects[answers.group.sources[source][0]] = output
    probed: dict[CompileCommand, Probed] = {}
    reasons: dict[CompileCommand, Reason] = {}
    keys: dict[CompileCommand, str] = {}
    for answers, (files_of, unlisted, _) in zip(found, headers, strict=True):
        group = answers.group
        of_all = Reason(ReasonKind.NATIVE) if native.names_native(group.base) else None
        for source, answer in answers.found.items():
            is_protected = answers.protects and answer.private
            bound = of_all or (Reason(ReasonKind.PROTECTED, min(answer.private)) if is_protected else None)
            for blob in group.sources[source]:
                if bound or answer.eager or source in unlisted:
                    reasons[blob] = answer.eager or bound or Reason(ReasonKind.UNLISTED, unlisted[source])
                else:
                    probed[blob] = Probed(**vars(answer), blob=blob, headers=files_of[source])
        keys |= _content_keys(answers, files_of)
        if group.key:
            cache.keep_answers(group.key, answers.learnt())
    spent = [b for b in blobs if b in probed and probed[b].by_itself]
    for blob in spent[max(_ALLOWED, len(blobs) // _ALLOWED_SHARE) :]:
        reasons[blob] = Reason(ReasonKind.IN_DOUBT, probed.pop(blob).compiled)
    linked = objects.keys() & reasons.keys()
    eager_seconds = settling * len(linked) / max(1, len(compiles))
    for blob in linked:
        cache.keep_object(object_key(blob, keys.setdefault(blob, uuid.uuid4().hex)), objects[blob])
    for answers in found:
        for file in set(answers.work.iterdir()) - set(answers.texts):
            file.unlink()
    return ProbeResult(
        tuple(probed[b] for b in blobs if b in probed),
        {b: reasons[b] for b in blobs if b in reasons},
        max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_CHILDREN, resource.RUSAGE_SELF)),
        tuple((answers.group, tuple(answers.texts)) for answers in found),
        keys,
        eager_seconds,
        tuple(group for _, _, clusters in headers for group in clusters),
    )


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and of all children that it has waited for."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_CHILDREN, resource.RUSAGE_SELF))
    return sum(u.ru_utime + u.ru_stime for u in usages)


def groups_of(blobs: Sequence[CompileCommand]) -> list[Group]:
    """Group blobs by all that decides how their text is read."""
    env = environment()
    members: dict[tuple[object, ...], dict[str, dict[CompileCommand, None]]] = {}
    for blob in blobs:
        toolchain = toolchains.by_name(blob.call.toolchain)
        base = toolchain.base_words(blob)
        variables = toolchain.base_env(blob)
        cwd = blob.call.cwd if _reads_cwd(toolchain, base, variables) else ""
        suffix = os.path.splitext(blob.source)[1]
        key = (toolchain.name, base, toolchain.archs_of(blob, env), cwd, variables, suffix)
        members.setdefault(key, {}).setdefault(blob.source, {})[blob] = None
    groups = []
    for shared, sources in members.items():
        first = next(iter(next(iter(sources.values()))))
        toolchain = toolchains.by_name(first.call.toolchain)
        default = toolchain.default_arch
        is_cxx = toolchain.written_in == "c++"
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
                key=content_key.group_key(toolchain, first, [repr(shared)], env) if is_cxx else "",
                all_errors=toolchain.all_errors(first.call.argv[: first.call.prefix]) if is_cxx else (),
            )
        )
    return groups


@lru_cache(maxsize=256)
def _reads_cwd(toolchain: Toolchain, base: tuple[str, ...], variables: tuple[tuple[str, str], ...]) -> bool:
    """Return whether a word or variable may name a file relative to the working directory."""
    lists = (value for name, value in variables if value and name in (*toolchain.header_env, *toolchain.search_env))
    if any(not directory.startswith("/") for value in lists for directory in value.split(":")):
        return True
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


def _settle(answers: Answers, output: Path, source: str) -> Answer:
    """Compile one blob. Return what its object says, or the reason why it must be eager.

    The project's own command makes an object that can be linked as it is, if the blob must be
    eager. The object stays in `output`. The blob is compiled for the host alone if that object does
    not show what is asked (hidden symbols, LTO), or if it would cost a compile for each GPU.
    """
    group, doubt = answers.group, answers.doubts[source]
    own = answers.instances.get(source)
    if own is None:  # not preprocessed with the others
        batch, alone = output.with_suffix(f".batch{group.suffix}"), output.with_suffix(".ii")
        group.preprocess(batch, alone, preprocess.include_line(source) + "\n")
        alone.touch()  # it does not exist if the preprocessor failed
        split, whole = preprocess.split(alone, [source], group.cwd), preprocess.read_source(alone)
        text = split.texts.get(source, whole) if not split.odd else whole
        answers.protects |= preprocess.protects(whole)
        tied = preprocess.what_binds(text, takes_late_managed=takes_late_managed(group.toolchain.name))
        if reason := tied or next(iter(preprocess.what_always_binds(whole)), None):
            return Answer(eager=reason)
        own = instances(text)
    # The project's own host objects show all symbols and cost one compile, unless by LTO.
    items = group.toolchain.table.split(group.base[1:])
    by_itself = group.toolchain.name == toolchains.HOST.name and own_library_items(items) == list(items)
    result = (
        compile_one(group.sources[source][0], output, environment())
        if by_itself
        else group.compile(source, output, is_settling=True)
    )
    if result.status != 0:
        return Answer(eager=Reason(ReasonKind.NOT_COMPILED, first_error(result.stdout + result.stderr)))
    judged = judge(open_image(output), source, doubt.suspects, own_initializers=doubt.own_initializers, own=own)
    if not by_itself:
        output.unlink()
    return replace(judged, compiled=demangle.readable_lines([doubt.why])[0], by_itself=by_itself)


def _content_keys(answers: Answers, headers: Mapping[str, frozenset[str]]) -> dict[CompileCommand, str]:
    """Return the keys of all that is read when the group's blobs are compiled."""
    group = answers.group
    if group.toolchain.name == toolchains.HOST.name:
        return {blob: key for s, key in answers.keys.items() for blob in group.sources[s]}
    contents = FileDigests()
    chosen = [s for s in headers if s in answers.keys]  # `headers` has what the device passes of these read
    seen = {read: content_key.files_key(read, contents) for read in {headers[s] for s in chosen}}
    return {blob: answers.keys[s] + seen[headers[s]] for s in chosen for blob in group.sources[s]}


def _headers(answers: Answers) -> tuple[dict[str, frozenset[str]], dict[str, str], list[Group]]:
    """Return the files that each source reads which may be lazy, and the sources for which they
    cannot be listed, and why. Return also the group as several, of sources that read the same."""
    group, readers = answers.group, answers.readers()
    found, unlisted = dict(answers.headers), dict[str, str]()
    clusters = [[s for s in cluster if s in readers] for cluster in answers.clusters]
    for source in sorted(readers.difference(*clusters)):
        output = answers.work / "single.ii"
        result = group.preprocess(Path(source), output)
        if result.status != 0:
            unlisted[source] = first_error(result.stdout + result.stderr)
            continue
        marked = set(map(preprocess.marked_path, _MARKED.findall(preprocess.read_source(output))))
        paths = (os.path.join(group.cwd, f) for f in marked)
        found[source] = frozenset(filter(os.path.isfile, paths))  # a `#line` may name any other
        clusters.append([source])
    left_out = {"/dev/null"} | group.sources.keys() - frozenset[str]().union(*answers.headers.values())
    headers: dict[str, frozenset[str]] = {}
    for cluster in clusters:
        device = _device_files(group, answers.work, cluster, unlisted)
        plain = {
            read: frozenset(absolute(f, group.cwd) for f in read | device) - left_out
            for read in {found[source] for source in cluster}
        }
        headers |= {source: plain[found[source]] for source in cluster}
    return headers, unlisted, [replace(group, sources={s: group.sources[s] for s in c}) for c in clusters]


def _device_files(group: Group, work: Path, sources: Sequence[str], unlisted: dict[str, str]) -> set[str]:
    """Return what the device passes read, for all sources at once where that works."""
    if not sources:
        return set()
    batch, output = work / f"device{group.suffix}", work / "device.d"
    text = "".join(f"{preprocess.include_line(s)}\n" for s in sources)
    batch.write_text(text, encoding="utf-8", errors="surrogateescape")
    found: set[str] = set()
    for argv in group.toolchain.device_dependencies(group.of(batch, output)):
        result = group.run(argv)
        if result.status != 0:
            if len(sources) == 1:
                unlisted[sources[0]] = first_error(result.stdout + result.stderr)
                return set()
            half = len(sources) // 2
            return _device_files(group, work, sources[:half], unlisted) | _device_files(
                group, work, sources[half:], unlisted
            )
        found |= rule_files(output, group.cwd)
    return found - {str(batch), *sources}
