"""Find the entries that blobs have, or would have, in a cache. `lazyck-rt` tells."""

import contextlib
import json
import os
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import starmap
from pathlib import Path
from typing import Any

from lazyck import abi, proc
from lazyck.directory import Directory, find_root
from lazyck.errors import FormatError, ToolchainError
from lazyck.files import write_atomic
from lazyck.formats.layout import EntryPath, log_of, root_of, split_leaf
from lazyck.formats.manifest import BlobRecord, Recipe
from lazyck.postbuild.objects import elf
from lazyck.prebuild.blob_names import Selection, part_of, whole_of
from lazyck.runtime.tool import tool
from lazyck.toolchains import by_name, parse_archs, resolve_native
from lazyck.toolchains.identity import compiler_identity


@dataclass(frozen=True)
class BlobEntry:
    """One blob for one set of archs: where it is, or would be, in the cache. `archs` are those that
    make this entry (empty: it depends on none). Any cache, local or remote, has the entry under
    `key` and `place` (below `v1/`)."""

    name: str
    archs: tuple[str, ...]
    shown_arch: str
    path: Path
    cached: bool
    key: str = ""
    place: str = ""
    recipe: int = 0  # of the manifest, by which this machine compiles it

    @property
    def root(self) -> Path:
        return root_of(self.path)

    @property
    def relative(self) -> Path:
        """Return the entry's place in any cache: `v1/...`."""
        return self.path.relative_to(self.root)

    @property
    def cost_key(self) -> tuple[str, str, str]:
        return EntryPath.of(self.path).cost_key

    @property
    def log(self) -> Path:
        """Return the path of what the compiler printed, which exists after a failure too."""
        return log_of(self.path)


def arch_sets(
    selection: Selection, gpu_archs: str, env: Mapping[str, str]
) -> Iterator[tuple[tuple[str, ...], Selection]]:
    """Yield the sets of archs to compile for, one entry each, with the blobs that are compiled for
    them: those asked for; or else `LAZYCK_ARCHS`, as the runtime takes it; or else those that the
    build was asked for; or else, for each blob, those of its own command, since a job's GPU is one
    of them. Raises `UsageError` for a bad name."""
    manifest = selection.manifest
    archs = manifest.archs
    if gpu_archs:
        used = [by_name(name) for name in dict.fromkeys(r.toolchain for r in manifest.recipes)]
        found = [f for t in used if (f := t.find(env)) is not None] if "native" in gpu_archs else []
        _, archs = parse_archs(resolve_native(gpu_archs, found, env), used)
    elif env.get(abi.ENV_ARCHS):
        archs = ()
    elif not archs:
        own: dict[tuple[str, ...], list[BlobRecord]] = {}
        for blob in selection.blobs:
            for arch in manifest.recipes[blob.recipe].code_archs or ("",):
                own.setdefault((arch,) if arch else (), []).append(blob)
        yield from ((archs, replace(selection, blobs=tuple(blobs))) for archs, blobs in own.items())
        return
    yield from (((arch,), selection) for arch in archs) if archs else [((), selection)]


def entries(
    rt: Path, manifest_file: Path, selection: Selection, archs: tuple[str, ...], env: Mapping[str, str]
) -> list[BlobEntry]:
    """Return what the cache has of the blobs, for one set of archs. Cached entries are whole."""
    names = [b.name for b in selection.blobs]
    return status(rt, manifest_file, names, archs, env) if names else []


def status(
    rt: Path, manifest_file: Path, names: Collection[str], archs: Sequence[str], env: Mapping[str, str]
) -> list[BlobEntry]:
    found = []
    for r in _rows(abi.RT_STATUS, rt, manifest_file, names, archs, env):
        arch, path = r[abi.ROW_ARCH], Path(r[abi.ROW_PATH])
        own = () if arch == "any" else tuple(arch.split("+"))
        is_cached, key, entry = bool(r[abi.ROW_CACHED]), r[abi.ROW_KEY], r[abi.ROW_ENTRY]
        found.append(BlobEntry(r[abi.ROW_NAME], own, arch, path, is_cached, key, entry, r[abi.ROW_RECIPE]))
    return found


def _rows(
    verb: str, rt: Path, manifest_file: Path, names: Collection[str], archs: Sequence[str], env: Mapping[str, str]
) -> Iterator[dict[str, Any]]:
    if broken := [n for n in names if not n or "\n" in n]:
        raise FormatError(
            f"{manifest_file}: the blob name '{broken[0]}' is empty or has a line break",
            "the manifest is damaged, or not written by lazyck",
        )
    with listed(names) as words:
        out = proc.check("reading the cache", rt_words(rt, verb, manifest_file, archs, *words), env=env).stdout
    yield from map(json.loads, out.splitlines())


def known_kernels(
    rt: Path, manifest_file: Path, selection: Selection, gpu_archs: str, env: Mapping[str, str]
) -> Iterator[tuple[str, BlobRecord]]:
    """Yield the selected blobs' kernels, with the blob's name, as far as host units are cached."""
    blobs = {b.name: b for b in selection.blobs if b.units}
    with_units = replace(selection, blobs=tuple(blobs.values()))
    for archs, chosen in arch_sets(with_units, gpu_archs, env) if blobs else ():
        for row in _rows(abi.RT_KERNELS, rt, manifest_file, [b.name for b in chosen.blobs], archs, env):
            blob, symbols = row[abi.ROW_BLOB], (row[abi.ROW_SYMBOL],)
            yield blob, replace(part_of(blobs[blob], row[abi.ROW_NAME]), symbols=symbols)


def all_entries(
    rt: Path, manifest_file: Path, selection: Selection, gpu_archs: str, env: Mapping[str, str]
) -> list[BlobEntry]:
    """Return `entries` for every set of archs that `gpu_archs` means. A host blob, whose entry does
    not depend on these archs, is there once."""
    return entries_of_sets(rt, manifest_file, arch_sets(selection, gpu_archs, env), env)


def entries_of_sets(
    rt: Path, manifest_file: Path, sets: Iterable[tuple[tuple[str, ...], Selection]], env: Mapping[str, str]
) -> list[BlobEntry]:
    """Return the `entries` of all `arch_sets` that are given, each once."""
    found = (entry for archs, chosen in sets for entry in entries(rt, manifest_file, chosen, archs, env))
    return list({entry.path: entry for entry in found}.values())


def first_sets(selection: Selection, env: Mapping[str, str]) -> Iterator[tuple[tuple[str, ...], Selection]]:
    """Yield the first of the `arch_sets` of each blob: beside an entry for it are those for other
    archs (`cached_archs`)."""
    left = {b.name for b in selection.blobs}
    for archs, chosen in arch_sets(selection, "", env):
        some = replace(chosen, blobs=tuple(b for b in chosen.blobs if b.name in left))
        left -= {b.name for b in some.blobs}
        yield archs, some


def with_wholes(
    rt: Path, manifest_file: Path, selection: Selection, archs: tuple[str, ...], env: Mapping[str, str]
) -> list[tuple[BlobEntry, BlobEntry]]:
    """Return `entries`, each with the entry of its kernel's whole source (itself for a blob)."""
    wholes = whole_of(selection.manifest, selection.blobs)
    names = dict.fromkeys(b.name for b in selection.blobs)
    rows = status(rt, manifest_file, [*names, *(set(wholes.values()) - set(names))], archs, env) if names else []
    found = {(e.name, e.shown_arch): e for e in rows}
    return [(e, found[wholes.get(e.name, e.name), e.shown_arch]) for e in rows if e.name in names]


def needs_whole(entry: Path) -> bool:
    """Return whether a kernel's entry only says that the kernel takes its whole source."""
    return elf.section_offset(entry, abi.WHOLE_SOURCE_SECTION) is not None


def serving(own: BlobEntry, whole: BlobEntry) -> BlobEntry:
    """Return which of the two `with_wholes` entries serves a launch: a kernel that is not cached is
    served by its source if that is, as is one that cannot be compiled alone."""
    is_served = whole.cached if not own.cached else own is not whole and needs_whole(own.path)
    return whole if is_served else own


def all_serving(
    rt: Path, manifest_file: Path, selection: Selection, gpu_archs: str, env: Mapping[str, str]
) -> list[BlobEntry]:
    """Return the entries that serve the blobs, for every set of archs that `gpu_archs` means."""
    sets = arch_sets(selection, gpu_archs, env)
    pairs = (pair for archs, chosen in sets for pair in with_wholes(rt, manifest_file, chosen, archs, env))
    return list({e.path: e for e in starmap(serving, pairs)}.values())


def make_room(entry: BlobEntry) -> None:
    """Make the directories of an entry. The runtime refuses those that others can write to."""
    entry.root.mkdir(mode=0o700, parents=True, exist_ok=True)
    for directory in reversed(entry.path.parents[:3]):
        directory.mkdir(mode=0o700, exist_ok=True)


def keep_log(entry: BlobEntry, text: str) -> str:
    """Write what a compiler printed elsewhere where a local build would have it. Return the path,
    or an empty string if it printed nothing."""
    if not text:
        return ""
    write_atomic(entry.log, text.encode(errors="surrogateescape"), 0o600)
    return str(entry.log)


@contextlib.contextmanager
def listed(lines: Iterable[str], option: str = abi.OPTION_BLOB_LIST) -> Iterator[list[str]]:
    """Yield words of a `lazyck-rt` command that give many values of `option` in a file."""
    with tempfile.NamedTemporaryFile("w", prefix="lazyck-", suffix=".lst", errors="surrogateescape") as f:
        f.write("".join(f"{line}\n" for line in lines))
        f.flush()
        yield [option, f.name]


def rt_words(rt: Path, verb: str, manifest_file: Path, archs: Sequence[str], *more: str) -> list[str]:
    words = [str(rt), verb, abi.OPTION_FROM, str(manifest_file.absolute())]
    return [*words, *(w for arch in archs for w in (abi.OPTION_ARCH, arch)), *more]


def cached_archs(entry: BlobEntry) -> dict[str, Path]:
    """Map archs, as directories name them, to this entry, by the same toolchain and extra key."""
    build = EntryPath.of(entry.path).build
    found = {}
    for leaf in _leaves_beside(entry):
        archs, other = split_leaf(leaf.path.name)
        if other == build and leaf.has_file(entry.path.name):
            found[archs] = leaf.path / entry.path.name
    return found


def _leaves_beside(entry: BlobEntry) -> Iterator[Directory]:
    """Yield the directories with entries of its library, each open until the next. Raises
    `RefusedError` if the cache is refused. Refused directories below it are passed over."""
    root = find_root(entry.root)
    if root is None:
        return
    with contextlib.ExitStack() as stack:
        at: Directory | None = stack.enter_context(root)
        for name in entry.relative.parts[:2]:
            at = at.find(name) if at else None
            if at is not None:
                stack.enter_context(at)
        if at is not None:
            yield from at.directories()


def clean_blobs(manifest_file: Path, selection: Selection, gpu_archs: str, env: Mapping[str, str]) -> int:
    """Remove the entries of the selected blobs, with all their files beside them, and return how
    many there were.

    A job that has an entry loaded keeps it: the file is unlinked, not written to.
    """
    rt = tool(env)
    removed = 0
    sets = arch_sets(selection, gpu_archs, env) if gpu_archs else first_sets(selection, env)
    for entry in entries_of_sets(rt, manifest_file, sets, env):
        wanted = {abi.archs_in_name(entry.shown_arch)} if gpu_archs else set()
        # Entries of all toolchains are removed, since the blob is to go.
        for leaf in _leaves_beside(entry):
            if wanted and split_leaf(leaf.path.name)[0] not in wanted:
                continue
            removed += leaf.remove(entry.path.name)
            leaf.remove(entry.log.name)
            for name in leaf.names():  # notes of checks, quarantined copies
                if name.startswith(f"{entry.path.name}."):
                    leaf.remove(name)
    return removed


def local_compiler(recipe: Recipe, env: Mapping[str, str]) -> tuple[str, str]:
    """Return the compiler that a recipe runs here, and its identity, as keys have it. Raises
    `ToolchainError`, for example if its toolchain's home is not there."""
    home = recipe.home
    if home and not Path(home).is_dir():
        homes = (env.get(name, "") for name in recipe.home_env)
        home = next((h for h in homes if h and Path(h).is_dir()), "")
        if not home:
            raise ToolchainError(f"no {recipe.toolchain} toolchain: {recipe.home} is not there")
    words = recipe.compiler_words
    words = words[: words.index(abi.PH_ARCHS)] if abi.PH_ARCHS in words[1:] else words[:1]
    words = tuple(w.replace(abi.PH_TOOLCHAIN, home) for w in words)
    # The compiler does not need the bundle to say what it is.
    own = {k: v.replace(abi.PH_TOOLCHAIN, home) for k, v in recipe.env if abi.PH_ROOT not in v}
    own |= {"PATH": env.get("PATH", os.defpath), "LC_ALL": "C"}
    return words[0], compiler_identity(words, own, [p.replace(abi.PH_TOOLCHAIN, home) for p in recipe.programs])
