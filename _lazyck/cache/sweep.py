"""Verifies and trims a cache, both by the runtime's own code: `lazyck-rt verify` and `lazyck-rt
trim`."""

import contextlib
import json
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from _lazyck import abi, proc
from _lazyck.errors import CommandError, LazyckError
from _lazyck.layout import ENTRY, Place
from _lazyck.manifest import Manifest
from _lazyck.postbuild.objects.elf import read_shared
from _lazyck.prebuild import blob_names
from _lazyck.prebuild.entries import all_entries, listed
from _lazyck.quantities import counted, show_size
from _lazyck.visible import visible


@dataclass(frozen=True)
class Verified:
    """All entries of a cache, each with its path and what is wrong with it, an empty string if
    nothing is."""

    entries: tuple[tuple[str, str], ...]

    @property
    def problems(self) -> list[tuple[str, str]]:
        """The entries and directories with a problem."""
        return [(path, problem) for path, problem in self.entries if problem]

    @property
    def damaged(self) -> list[str]:
        """The entries with a problem, without directories that were skipped."""
        return [path for path, _ in self.problems if path.endswith(ENTRY)]


@dataclass(frozen=True)
class Trimmed:
    """What was removed, or would be, and what stays, in entries and bytes. `removed_logs` counts
    logs of failures."""

    paths: tuple[str, ...] = ()
    kept: int = 0
    kept_bytes: int = 0
    removed: int = 0
    removed_bytes: int = 0
    removed_logs: int = 0
    removed_preambles: int = 0
    removed_texts: int = 0


def verify(rt: Path, cache: Path, env: Mapping[str, str]) -> Verified:
    """Read every entry in full. Raises `CommandError` if that cannot be done."""
    what, argv = "verifying the cache", [str(rt), "verify", str(cache)]
    result = proc.run(argv, env=env)
    rows = _rows(what, argv, result)
    found = tuple((str(r.get("path", "")), str(r.get("problem") or "")) for r in rows)
    if result.status not in (0, 1) or (result.status == 1 and not any(problem for _, problem in found)):
        raise CommandError(what, argv, result.status, result.stdout + result.stderr)
    return Verified(found)


@dataclass(frozen=True)
class Expected:
    """What a library expects of the entries of a blob, for any archs. `directory` is the library's
    directory below `v1`, and `name` is the file name of the entries."""

    library: Path
    directory: str
    name: str
    symbols: tuple[str, ...]


def expected_symbols(rt: Path, library: Path, manifest: Manifest, env: Mapping[str, str]) -> list[Expected]:
    """Return one for each blob of a lazy library, or of a manifest file. Raises `LazyckError`."""
    everything = blob_names.select(manifest, [], True)
    symbols = {b.name: b.symbols for b in manifest.blobs}
    return [
        Expected(library, Place.of(e.path).library, e.path.name, tuple(symbols[e.name]))
        for e in all_entries(rt, library, everything, "", env)
    ]


def check_symbols(verified: Verified, expected: Iterable[Expected]) -> Verified:
    """Return `verified` with a problem added for each whole entry that lacks a symbol which a
    library expects."""
    wanted = {(e.directory, e.name): e for e in expected}

    def problem_of(path: str, problem: str) -> str:
        place = Place.of(Path(path))
        one = wanted.get((place.library, place.name))
        if problem or one is None:
            return problem
        try:
            missing = [s for s in one.symbols if s not in read_shared(path).defined]
        except LazyckError as e:
            return e.message
        return f"it does not define '{missing[0]}', which {one.library} expects of it" if missing else ""

    return Verified(tuple((path, problem_of(path, problem)) for path, problem in verified.entries))


def trim(
    rt: Path,
    cache: Path,
    max_size: int | None,
    older_than: int | None,
    dry_run: bool,
    env: Mapping[str, str],
    only: Iterable[str] | None = None,
) -> Trimmed:
    """Remove entries that were not used for `older_than` seconds, then those unused for the longest
    time until the rest fits into `max_size` bytes (0: all).

    With `only`, just the entries of these paths, and the entries in the directories of these paths,
    are considered. Raises `CommandError`.
    """
    what, argv = "trimming the cache", [str(rt), "trim", str(cache)]
    argv += ["--max-size", str(max_size)] if max_size is not None else []
    argv += ["--older-than", str(older_than)] if older_than is not None else []
    argv += ["--dry-run"] if dry_run else []
    with contextlib.ExitStack() as stack:
        argv += stack.enter_context(listed(only, "--only")) if only is not None else []
        result = proc.run(argv, env=env)
    rows = _rows(what, argv, result)
    if result.status != 0 or not rows or "kept" not in rows[-1]:
        raise CommandError(what, argv, result.status, result.stdout + result.stderr)
    sys.stderr.write(result.stderr)  # warnings about directories that were skipped
    total = {f.name: int(rows[-1].get(f.name, 0)) for f in fields(Trimmed)[1:]}
    return Trimmed(tuple(str(r.get("path", "")) for r in rows[:-1]), **total)


def _rows(what: str, argv: Sequence[str], result: proc.Result) -> list[dict[str, Any]]:
    try:
        rows = [json.loads(line) for line in result.stdout.splitlines()]
    except ValueError:
        rows = [None]
    if not all(isinstance(r, dict) for r in rows):
        raise CommandError(what, argv, result.status, result.stdout + result.stderr)
    return rows


def render_verified(verified: Verified, removed: Sequence[str]) -> str:
    """Return a line for each problem, and counts. `removed` are entries with a problem that are
    gone."""
    problems = verified.problems
    lines = [f"{visible(path)}: {visible(problem)}" for path, problem in problems]
    count = counted(len(verified.entries), "entry", "entries")
    gone = f", {len(removed)} removed" if removed else ""
    return "\n".join([*lines, f"{count}, {len(problems)} with a problem{gone}" if problems else f"{count}, all whole"])


def removal(cache: Path, libraries: Iterable[Path]) -> str:
    """Return a line of shell that removes what verifying `cache` against these libraries finds."""
    words = [word for library in libraries for word in ("--manifest", str(library.absolute()))]
    command = shlex.join(["lazyck", "cache", "verify", "--remove", *words])
    return f"{abi.ENV_CACHE_DIR}={shlex.quote(str(cache))} {command}"


def render_cleared(cleared: Trimmed, cache: Path) -> str:
    """Return what was removed and what stays, for people."""
    gone = [f"{counted(cleared.removed, 'entry', 'entries')} ({show_size(cleared.removed_bytes)})"]
    for count, one, many in (
        (cleared.removed_logs, "log of a failure", "logs of failures"),
        (cleared.removed_preambles, "precompiled preamble", ""),
        (cleared.removed_texts, "text", ""),
    ):
        gone += [counted(count, one, many)] if count else []
    stays = f"; {cleared.kept} ({show_size(cleared.kept_bytes)}) stay" if cleared.kept_bytes else ""
    return f"{visible(str(cache))}: {', '.join(gone)} removed{stays}"


def render_trimmed(trimmed: Trimmed, dry_run: bool) -> str:
    """Return each removed entry, and the sums, for people."""
    verb = "would be removed" if dry_run else "removed"
    removed = f"{counted(trimmed.removed, 'entry', 'entries')} ({show_size(trimmed.removed_bytes)}) {verb}"
    kept = f"{trimmed.kept} ({show_size(trimmed.kept_bytes)}) stay"
    return "\n".join([*(visible(p) for p in trimmed.paths), f"{removed}, {kept}"])
