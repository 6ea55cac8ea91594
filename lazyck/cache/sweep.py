"""Verifies and trims a cache, both by the runtime's own code: `lazyck-rt verify` and `lazyck-rt
trim`."""

import contextlib
import json
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lazyck import abi, proc
from lazyck.errors import CommandError, LazyckError
from lazyck.formats.layout import EntryPath
from lazyck.postbuild.objects.elf import read_shared
from lazyck.postbuild.objects.embedded import read_manifest
from lazyck.prebuild import blob_names
from lazyck.prebuild.blob_entries import all_entries, listed
from lazyck.quantities import counted, show_size
from lazyck.runtime.tool import tool
from lazyck.visible import visible


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


def verify(cache: Path, env: Mapping[str, str]) -> dict[str, str]:
    """Read every entry in full. Return the paths of all entries, and of directories that were
    skipped, each with what is wrong with it: an empty string if nothing is. Raises `CommandError`
    if that cannot be done."""
    result, rows, error = _run("verifying the cache", [str(tool(env)), abi.RT_VERIFY, str(cache)], env)
    found = {str(r.get(abi.ROW_PATH, "")): str(r.get(abi.ROW_PROBLEM) or "") for r in rows}
    if result.status not in (0, 1) or (result.status == 1 and not any(found.values())):
        raise error
    return found


Expected = dict[tuple[str, str], tuple[Path, Sequence[str]]]


def expected_symbols(libraries: Iterable[Path], env: Mapping[str, str]) -> Expected:
    """Return what lazy libraries (or manifest files) expect of the entries of their blobs, for any
    archs: the library and the symbols, by the library's directory below `v1` and the name of the
    file. Raises `LazyckError`."""
    wanted: Expected = {}
    for library in libraries:
        manifest = read_manifest(library)
        symbols = {b.name: b.symbols for b in manifest.blobs}
        for e in all_entries(tool(env), library, blob_names.select(manifest, [], True), "", env):
            wanted[EntryPath.of(e.path).library, e.path.name] = library, symbols[e.name]
    return wanted


def check_symbols(found: Mapping[str, str], wanted: Expected) -> dict[str, str]:
    """Return what `verify` found, with a problem added for each whole entry that lacks a symbol
    which a library expects."""

    def problem_of(path: str) -> str:
        place = EntryPath.of(Path(path))
        library, symbols = wanted.get((place.library, place.name), (None, ()))
        try:
            missing = [s for s in symbols if s not in read_shared(path).defined]
        except LazyckError as e:
            return e.message
        return f"it does not define '{missing[0]}', which {library} expects of it" if missing else ""

    return {path: problem or problem_of(path) for path, problem in found.items()}


def trim(
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
    argv = [str(tool(env)), abi.RT_TRIM, str(cache)]
    argv += [abi.OPTION_MAX_SIZE, str(max_size)] if max_size is not None else []
    argv += [abi.OPTION_OLDER_THAN, str(older_than)] if older_than is not None else []
    argv += [abi.OPTION_DRY_RUN] if dry_run else []
    with contextlib.ExitStack() as stack:
        argv += stack.enter_context(listed(only, abi.OPTION_ONLY)) if only is not None else []
        result, rows, error = _run("trimming the cache", argv, env)
    if result.status != 0 or not rows or not rows[-1].keys() >= abi.TRIM_SUMS.keys():
        raise error
    sys.stderr.write(result.stderr)  # warnings about directories that were skipped
    total = {name: int(rows[-1][name]) for name in abi.TRIM_SUMS}
    return Trimmed(tuple(str(r.get(abi.ROW_PATH, "")) for r in rows[:-1]), **total)


def _run(
    what: str, argv: Sequence[str], env: Mapping[str, str]
) -> tuple[proc.Result, list[dict[str, Any]], CommandError]:
    """Return the result, the rows that the command printed, and the error if they make no sense."""
    result = proc.run(argv, env=env)
    error = CommandError(what, argv, result.status, result.stdout + result.stderr)
    try:
        rows = [json.loads(line) for line in result.stdout.splitlines()]
    except ValueError as e:
        raise error from e
    if not all(isinstance(r, dict) for r in rows):
        raise error
    return result, rows, error


def render_verified(found: Mapping[str, str], removed: Sequence[str]) -> str:
    """Return a line for each problem, and counts. `removed` are those that are gone."""
    lines = [f"{visible(path)}: {visible(problem)}" for path, problem in found.items() if problem]
    gone = f", {len(removed)} removed" if removed else ""
    end = f"{len(lines)} with a problem{gone}" if lines else "all whole"
    return "\n".join([*lines, f"{counted(len(found), 'entry', 'entries')}, {end}"])


def removal(cache: Path, libraries: Iterable[Path]) -> str:
    """Return a line of shell that removes what verifying `cache` against these libraries finds."""
    words = [word for library in libraries for word in ("--manifest", str(library.absolute()))]
    command = shlex.join(["lazyck", "cache", "verify", "--remove", *words])
    return f"{abi.ENV_CACHE_DIR}={shlex.quote(str(cache))} {command}"


def render_cleared(cleared: Trimmed, cache: Path) -> str:
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
    verb = "would be removed" if dry_run else "removed"
    removed = f"{counted(trimmed.removed, 'entry', 'entries')} ({show_size(trimmed.removed_bytes)}) {verb}"
    kept = f"{trimmed.kept} ({show_size(trimmed.kept_bytes)}) stay"
    return "\n".join([*(visible(p) for p in trimmed.paths), f"{removed}, {kept}"])
