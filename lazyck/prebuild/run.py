"""list, build and clean: what `lazyck prebuild` does, by driving the runtime's own code through `lazyck-rt`."""

from __future__ import annotations

import contextlib
import json
import platform
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import ninja

from lazyck import abi, proc
from lazyck.config import runtime_source, tools_dir
from lazyck.errors import BuildError, FormatError
from lazyck.files import private_directory, write_atomic
from lazyck.prebuild.names import Selection
from lazyck.runtime.build import build_tool
from lazyck.toolchains import HOST, by_name, parse_archs, resolve_native
from lazyck.visible import visible

_FAILED_HINT = "each failure above names its log; build again after mending it, what is cached is kept"


@dataclass(frozen=True)
class Entry:
    """One blob for one set of archs: where it is, or would be, in the cache. `archs` is what was asked for
    (none: the runtime's own choice)."""

    name: str
    archs: tuple[str, ...]
    shown_arch: str
    path: Path
    cached: bool


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
    """What the cache has of the selected blobs for one set of archs."""
    names = [b.name for b in selection.blobs]
    if broken := [n for n in names if not n or "\n" in n]:
        raise FormatError(
            f"{manifest_file}: a blob is called '{broken[0]}', and a name is one line",
            "the manifest is damaged, or not written by lazyck",
        )
    with tempfile.NamedTemporaryFile("w", prefix="lazyck-", suffix=".lst", errors="surrogateescape") as f:
        f.write("".join(f"{n}\n" for n in names))
        f.flush()
        argv = [*_rt_words(rt, "status", manifest_file, archs), "--blob-list", f.name]
        out = proc.check("reading the cache", argv, env=env).stdout
    rows = [json.loads(line) for line in out.splitlines()]
    return [Entry(r["name"], archs, r["arch"], Path(r["path"]), bool(r["cached"])) for r in rows]


def _rt_words(rt: Path, verb: str, manifest_file: Path, archs: Sequence[str]) -> list[str]:
    words = [str(rt), verb, "--from", str(manifest_file.absolute())]
    return words + [w for arch in archs for w in ("--arch", arch)]


def cached_archs(entry: Entry) -> dict[str, Path]:
    """Every arch directory that holds this entry: an entry's file name is the same for all of them."""
    found = entry.path.parent.parent.glob(f"*/{_glob_escape(entry.path.name)}")
    return {p.parent.name: p for p in sorted(found)}


def _glob_escape(name: str) -> str:
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)


def list_blobs(manifest_file: Path, selection: Selection, gpu_archs: str, env: Mapping[str, str]) -> list[str]:
    """Lines `name <tab> archs that are cached, or -`."""
    if not selection.blobs:
        return []
    rt = tool(env)
    wanted = {a for s in arch_sets(selection, gpu_archs, env) for a in s} if gpu_archs else set()
    lines = []
    for entry in entries(rt, manifest_file, selection, arch_sets(selection, gpu_archs, env)[0], env):
        have = sorted({d.partition("-")[0] for d in cached_archs(entry)})
        have = [a for a in have if not wanted or a in wanted]
        lines.append(f"{visible(entry.name)}\t{visible(' '.join(have)) or '-'}")
    return lines


def build_blobs(
    manifest_file: Path, selection: Selection, gpu_archs: str, jobs: int, verbose: bool, env: Mapping[str, str]
) -> int:
    """Compile what is not cached yet, `jobs` at a time, under ninja; returns the status to end with."""
    rt = tool(env)
    todo: list[tuple[Entry, str]] = []
    total = 0
    for archs in arch_sets(selection, gpu_archs, env):
        for entry in entries(rt, manifest_file, selection, archs, env):
            total += 1
            if not entry.cached:
                todo.append((entry, entry.shown_arch))
    print(f"lazyck: {total - len(todo)} of {total} entries are cached already, {len(todo)} to compile", flush=True)
    if not todo:
        return 0
    with tempfile.TemporaryDirectory(prefix="lazyck-prebuild-") as work:
        ninja_file = Path(work) / "build.ninja"
        write_atomic(ninja_file, render_ninja(rt, manifest_file, todo).encode("utf-8", "surrogateescape"))
        argv = [str(Path(ninja.BIN_DIR) / "ninja"), "-C", work, "-j", str(jobs), "-k", "0"]
        # to compile is what was asked for here, whatever jobs in this environment may do at run time
        own = {k: v for k, v in env.items() if k != abi.ENV_DISABLE_JIT} | {abi.ENV_JOBS: str(jobs)}
        status = proc.passthrough([*argv, *(["-v"] if verbose else [])], env=own)
    if status != 0:
        raise BuildError("not every blob could be compiled", _FAILED_HINT)
    return 0


def render_ninja(rt: Path, manifest_file: Path, todo: Sequence[tuple[Entry, str]]) -> str:
    """A ninja file with one edge per entry. The outputs are names that never exist: what is cached is not in here."""

    def quoted(words: Sequence[str]) -> str:
        return " ".join("'" + w.replace("'", "'\\''") + "'" for w in words).replace("$", "$$")

    lines = ["rule compile", "  command = $words", "  description = $name", ""]
    for i, (entry, arch) in enumerate(todo):
        words = [*_rt_words(rt, "compile", manifest_file, entry.archs), "--quiet", "--", entry.name]
        lines += [f"build entry{i}: compile", f"  words = {quoted(words)}"]
        lines += [f"  name = {visible(entry.name).replace('$', '$$')} ({visible(arch)})", ""]
    return "\n".join(lines)


def clean_blobs(manifest_file: Path, selection: Selection, gpu_archs: str, env: Mapping[str, str]) -> int:
    """Remove the entries of the selected blobs, with all that stands beside them; returns how many there were.

    A job that has one loaded keeps it: the file is unlinked, not written to.
    """
    rt = tool(env)
    wanted = {a for s in arch_sets(selection, gpu_archs, env) for a in s} if gpu_archs else set()
    removed = 0
    for entry in entries(rt, manifest_file, selection, arch_sets(selection, gpu_archs, env)[0], env):
        for directory, path in cached_archs(entry).items():
            if wanted and directory.partition("-")[0] not in wanted:
                continue
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
                removed += 1
            path.with_suffix(".log").unlink(missing_ok=True)
            for beside in path.parent.glob(f"{_glob_escape(path.name)}.*"):  # the note of a check, quarantined copies
                beside.unlink(missing_ok=True)
    return removed
