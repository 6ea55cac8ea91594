"""Proves entries of a library: compiles them into an empty cache, and compares the bytes."""

import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lazyck import abi
from lazyck.directory import opened_in
from lazyck.errors import FormatError, LazyckError
from lazyck.formats import trailer
from lazyck.formats.layout import EntryPath
from lazyck.formats.manifest import Recipe
from lazyck.postbuild.objects.elf import ElfImage
from lazyck.prebuild import output, plan
from lazyck.prebuild.blob_entries import BlobEntry, all_entries, local_compiler
from lazyck.prebuild.blob_names import Selection, part_of
from lazyck.prebuild.listing import by_kernel
from lazyck.prebuild.progress import reporter
from lazyck.prebuild.run import LocalRun, PrebuildRequest
from lazyck.quantities import counted
from lazyck.visible import visible

PROVED, DIFFERS, IMPOSSIBLE = "proved", "differs", "impossible"


@dataclass(frozen=True)
class RebuildResult:
    """What compiling an entry again showed. `why` says what differs, or why it cannot be compiled;
    it is empty if the entry is proved."""

    entry: BlobEntry
    state: str
    why: str = ""


def prove(
    rt: Path, library: Path, chosen: Selection, archs: str, env: Mapping[str, str], parallel: int
) -> list[RebuildResult]:
    """Compile again what the caches that `env` names have of the chosen blobs. The compiles run
    without remotes, other caches and a launcher, which could have the results. Raises
    `LazyckError`."""
    # Blobs that are compiled in parts are followed by their host units and kernels.
    hosts = [part_of(b, f"{b.name}.host") for b in chosen.blobs if b.units]
    known = {b.name for b in chosen.blobs}
    kernels = [b for b in by_kernel(library, chosen, archs, env).blobs if b.name not in known]
    chosen = Selection(chosen.manifest, (*chosen.blobs, *hosts, *kernels))
    cached = [e for e in all_entries(rt, library, chosen, archs, env) if e.cached]
    recipes = {b.name: chosen.manifest.recipes[b.recipe] for b in chosen.blobs}
    hindrances = ((e, hindrance(recipes[e.name], e, env)) for e in cached)
    proofs = {e.path: RebuildResult(e, IMPOSSIBLE, why) for e, why in hindrances if why}
    jobs = tuple(plan.Job(e, None) for e in cached if e.path not in proofs)
    with tempfile.TemporaryDirectory(prefix="lazyck-rebuild-") as made:
        own = {k: v for k, v in env.items() if k not in (abi.ENV_REMOTE, abi.ENV_LAUNCHER)}
        own = output.environment_of(Path(made), own) | {abi.ENV_TEXT_KEYS: "0", abi.ENV_PREAMBLES: "0"}
        request = PrebuildRequest(library, chosen.manifest, plan.Plan(tuple(cached), jobs), own, reporter(len(jobs)))
        done = LocalRun(rt, request, parallel, again=True).build()
        if done.is_interrupted:
            raise KeyboardInterrupt
        failed = {f.job.entry.path: f"it does not compile: {f.error}" for f in done.failures}
        for job in jobs:
            e = job.entry
            if e.path in failed:
                proofs[e.path] = RebuildResult(e, IMPOSSIBLE, failed[e.path])
                continue
            if not (Path(made) / e.relative).exists():
                why = "the system's headers here are not those that it was compiled with"
                proofs[e.path] = RebuildResult(e, IMPOSSIBLE, why)
                continue
            with opened_in(e.root, e.path) as there, opened_in(Path(made), Path(made) / e.relative) as here:
                why = first_difference(there.read(), here.read())
            proofs[e.path] = RebuildResult(e, DIFFERS if why else PROVED, why)
    return [proofs[e.path] for e in cached]


def hindrance(recipe: Recipe, entry: BlobEntry, env: Mapping[str, str]) -> str:
    """Return why the recipe's compiler on this machine cannot prove an entry: it is missing, or
    another one than the entry's. An empty string means that it can."""
    try:
        program, found = local_compiler(recipe, env)
    except LazyckError as e:
        return f"no compiler: {e.message}"
    if not (built := EntryPath.of(entry.path).build).startswith(found):
        return f"another compiler: {program} is {found}, and the entry's was {built}"
    return ""


def first_difference(there: bytes, here: bytes) -> str:
    """Return the first part in which an entry differs from what was compiled here, or an empty
    string. In the trailer, only the key counts: the rest follows from the library, and whether the
    text was asked for."""
    ours, theirs = trailer.parse(here), trailer.parse(there)
    if ours is None or theirs is None or ours.key != theirs.key:
        return "its key"
    if there[: -trailer.SIZE] == here[: -trailer.SIZE]:
        return ""
    try:
        images = [ElfImage(data, "the entry") for data in (there, here)]
        old, new = ({s.name: image.content(s) for s in image.sections if s.name} for image in images)
    except FormatError as e:
        return e.message
    changed = [n for n in old if n in new and old[n] != new[n]]
    # A build id is a digest of all else.
    changed.sort(key=lambda name: name == ".note.gnu.build-id")
    lacking = [n for n in (*old, *new) if (n in old) != (n in new)]
    if lacking:
        return f"only one of them has the section {lacking[0]}"
    if not changed:
        return "the layout of its sections"
    sizes = len(old[changed[0]]), len(new[changed[0]])
    what = f"{sizes[0]} and {sizes[1]} bytes" if sizes[0] != sizes[1] else f"of {counted(sizes[0], 'byte')}"
    others = f", and {counted(len(changed) - 1, 'other section')}" if len(changed) > 1 else ""
    return f"the section {changed[0]} ({what}){others}"


def render(proofs: Sequence[RebuildResult]) -> str:
    words = {DIFFERS: "differs in", IMPOSSIBLE: "cannot be compiled again:"}
    lines = [
        f"{visible(p.entry.name)} ({visible(p.entry.shown_arch)}): {words[p.state]} {visible(p.why)}"
        for p in proofs
        if p.why
    ]
    count = Counter(p.state for p in proofs)
    parts = [f"proved {counted(count[PROVED], 'entry', 'entries')}"]
    parts += [f"{count[DIFFERS]} differ"] if count[DIFFERS] else []
    parts += [f"{count[IMPOSSIBLE]} cannot be compiled again"] if count[IMPOSSIBLE] else []
    return "\n".join([*lines, ", ".join(parts)])


def to_json(proofs: Iterable[RebuildResult]) -> list[dict[str, str]]:
    return [
        {"blob": p.entry.name, "arch": p.entry.shown_arch, "path": str(p.entry.path), "state": p.state, "why": p.why}
        for p in proofs
    ]
