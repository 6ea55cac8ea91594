"""The entries that blobs have, or would have, in a cache; asked of the runtime's own code, by way of `lazyck-rt`."""

from __future__ import annotations

import contextlib
import json
import platform
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lazyck import abi, proc
from lazyck.config import runtime_source, tools_dir
from lazyck.directory import Directory, find_root
from lazyck.errors import FormatError
from lazyck.files import private_directory
from lazyck.manifest import BlobRecord
from lazyck.prebuild.names import Selection, part_of
from lazyck.runtime.build import build_tool
from lazyck.toolchains import HOST, by_name, parse_archs, resolve_native

_DEPTH = 4  # <root>/v1/<library>/<archs>-<toolchain>/<entry>


@dataclass(frozen=True)
class Entry:
    """One blob for one set of archs: where it is, or would be, in the cache. `archs` is what was asked for
    (none: the runtime's own choice). `key` and `place` (below `v1/`) are what any cache, near or far, has it under."""

    name: str
    archs: tuple[str, ...]
    shown_arch: str
    path: Path
    cached: bool
    key: str = ""
    place: str = ""

    @property
    def root(self) -> Path:
        """The cache that it is in."""
        return self.path.parents[_DEPTH - 1]

    @property
    def relative(self) -> Path:
        """The same place in any cache: `v1/...`."""
        return self.path.relative_to(self.root)

    @property
    def cost_key(self) -> tuple[str, str, str]:
        """Library, blob and archs as `lazyck.costs` has them; the file's own name spells them so."""
        return self.path.parents[1].name, self.path.stem.rpartition("-")[0], self.path.parent.name.partition("-")[0]

    @property
    def log(self) -> Path:
        """What the compiler said, of a failure too."""
        return self.path.with_suffix(".log")


def arch_sets(selection: Selection, gpu_archs: str, env: Mapping[str, str]) -> list[tuple[str, ...]]:
    """The archs to compile for, one entry each: those asked for; else `LAZYCK_ARCHS`, as the runtime takes it; else
    each of the build's, since a job's GPU is one of them. Raises `UsageError` for a bad name."""
    if gpu_archs:
        used = [by_name(name) for name in dict.fromkeys(r.toolchain for r in selection.manifest.recipes)]
        found = [f for t in used if (f := t.find(env)) is not None] if "native" in gpu_archs else []
        _, archs = parse_archs(resolve_native(gpu_archs, found, env), used)
        return [(arch,) for arch in archs]
    if env.get(abi.ENV_ARCHS) or not selection.manifest.archs:
        return [()]
    return [(a,) for a in selection.manifest.archs]


def tool(env: Mapping[str, str]) -> Path:
    """The executable `lazyck-rt`, compiled when it is not there yet."""
    # of this machine, whatever the library is for: CXX may name a cross compiler
    return build_tool(private_directory(tools_dir(env)), HOST.find_for(platform.machine(), env), runtime_source())


def entries(
    rt: Path, manifest_file: Path, selection: Selection, archs: tuple[str, ...], env: Mapping[str, str]
) -> list[Entry]:
    """What the cache has of the selected blobs for one set of archs. Cached ones have been verified whole."""
    names = [b.name for b in selection.blobs]
    if not names:
        return []
    if broken := [n for n in names if not n or "\n" in n]:
        raise FormatError(
            f"{manifest_file}: a blob is called '{broken[0]}', and a name is one line",
            "the manifest is damaged, or not written by lazyck",
        )
    with listed(names) as words:
        argv = [*rt_words(rt, "status", manifest_file, archs), *words]
        out = proc.check("reading the cache", argv, env=env).stdout
    rows = [json.loads(line) for line in out.splitlines()]
    return [Entry(r["name"], archs, r["arch"], Path(r["path"]), bool(r["cached"]), r["key"], r["entry"]) for r in rows]


def known_kernels(
    rt: Path, manifest_file: Path, selection: Selection, gpu_archs: str, env: Mapping[str, str]
) -> Iterator[tuple[str, BlobRecord]]:
    """The kernels of the selected blobs, each behind its blob's name, as far as the blobs' host units are cached."""
    blobs = {b.name: b for b in selection.blobs if b.units}
    for archs in arch_sets(selection, gpu_archs, env) if blobs else []:
        with listed(blobs) as words:
            argv = [*rt_words(rt, "kernels", manifest_file, archs), *words]
            out = proc.check("reading the cache", argv, env=env).stdout
        for row in map(json.loads, out.splitlines()):
            yield row["blob"], replace(part_of(blobs[row["blob"]], row["name"]), symbols=(row["symbol"],))


def all_entries(
    rt: Path, manifest_file: Path, selection: Selection, gpu_archs: str, env: Mapping[str, str]
) -> list[Entry]:
    """The same for every set of archs that `gpu_archs` means. A host blob, whose entry has no such archs, is there
    once."""
    found: dict[Path, Entry] = {}
    for archs in arch_sets(selection, gpu_archs, env):
        for entry in entries(rt, manifest_file, selection, archs, env):
            found.setdefault(entry.path, entry)
    return list(found.values())


@contextlib.contextmanager
def listed(lines: Iterable[str], option: str = "--blob-list") -> Iterator[list[str]]:
    """Words of a `lazyck-rt` command that name many blobs, or what else `option` takes, by way of a file."""
    with tempfile.NamedTemporaryFile("w", prefix="lazyck-", suffix=".lst", errors="surrogateescape") as f:
        f.write("".join(f"{line}\n" for line in lines))
        f.flush()
        yield [option, f.name]


def rt_words(rt: Path, verb: str, manifest_file: Path, archs: Sequence[str]) -> list[str]:
    """The beginning of a `lazyck-rt` command."""
    words = [str(rt), verb, "--from", str(manifest_file.absolute())]
    return words + [w for arch in archs for w in ("--arch", arch)]


def cached_archs(entry: Entry) -> dict[str, Path]:
    """Archs, as directories name them → this entry for them, made by the same toolchain under the same extra key."""
    suffix = entry.path.parent.name.partition("-")[2]
    found = {}
    for leaf in _leaves_beside(entry):
        archs, _, end = leaf.path.name.partition("-")
        if end == suffix and leaf.has_file(entry.path.name):
            found[archs] = leaf.path / entry.path.name
    return found


def _leaves_beside(entry: Entry) -> Iterator[Directory]:
    """The directories of the entries of its library, each open until the next. Raises `RefusedError` for a refused
    cache; what is refused below it is passed over."""
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
    """Remove the entries of the selected blobs, with all that stands beside them; returns how many there were.

    A job that has one loaded keeps it: the file is unlinked, not written to.
    """
    rt = tool(env)
    wanted = {abi.archs_in_name(a) for s in arch_sets(selection, gpu_archs, env) for a in s} if gpu_archs else set()
    removed = 0
    for entry in entries(rt, manifest_file, selection, arch_sets(selection, gpu_archs, env)[0], env):
        # whatever toolchain made it: what is to go is the blob's
        for leaf in _leaves_beside(entry):
            if wanted and leaf.path.name.partition("-")[0] not in wanted:
                continue
            removed += leaf.remove(entry.path.name)
            leaf.remove(entry.log.name)
            for name in leaf.names():  # the note of a check, quarantined copies
                if name.startswith(f"{entry.path.name}."):
                    leaf.remove(name)
    return removed
