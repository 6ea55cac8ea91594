"""Write compile_commands.json from what the shims saw, and read one to defer what it lists."""

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lazyck import abi, proc
from lazyck.errors import BuildError, FormatError, UsageError
from lazyck.files import write_atomic
from lazyck.formats.record import decode_records
from lazyck.interceptor import shims
from lazyck.quantities import counted
from lazyck.toolchains.command import CompileCommand

NAME = "compile_commands.json"


@dataclass(frozen=True)
class CommandObject:
    """Describe one compile: its working directory (absolute), its words, and its source as written
    there. `output` is empty if the file does not state it separately.
    """

    directory: str
    arguments: tuple[str, ...]
    file: str
    output: str


def export(records: Path, target: Path) -> int:
    """Bring `target` up to date with the compiles in `records`, and return how many it lists.

    An earlier entry stays unless its output was made again or its source is gone, because an
    incremental build calls few compilers. Raises `FormatError` for damaged records.
    """
    try:
        earlier = load(target)
    except (OSError, FormatError):
        earlier = []
    kept = [e for e in earlier if os.path.exists(os.path.join(e.directory, e.file))]
    made = records.read_bytes() if records.exists() else b""
    if not made and earlier and len(kept) == len(earlier):
        return len(kept)
    merged = {entry.output or entry: entry for entry in kept}
    for record in decode_records(made, str(records)):
        if isinstance(record, CompileCommand):
            entry = CommandObject(record.call.cwd, record.call.argv, record.source, record.output)
            merged.pop(entry.output or entry, None)
            merged[entry.output or entry] = entry
    items = ({k: v for k, v in vars(entry).items() if v or k != "output"} for entry in merged.values())
    rows = ",\n".join(map(json.dumps, items))
    write_atomic(target, f"[\n{rows}\n]\n".encode())
    return len(merged)


def load(path: Path) -> list[CommandObject]:
    """Return the entries of a compile_commands.json. Raises `FormatError` for anything else."""
    hint = "give the file that CMake (CMAKE_EXPORT_COMPILE_COMMANDS=ON), ninja (-t compdb) or bear writes"
    try:
        raw = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as e:
        raise FormatError(f"{path}: not JSON ({e})", hint) from e
    if not isinstance(raw, list):
        raise FormatError(f"{path}: not a list of compile commands", hint)
    base = os.path.dirname(os.path.abspath(path))
    found = []
    for number, item in enumerate(raw, 1):
        try:
            found.append(_entry(item, base))
        except (ValueError, TypeError, KeyError) as e:
            said = f"no {e}" if isinstance(e, KeyError) else str(e)
            raise FormatError(f"{path}: entry {number} is not a compile command ({said})", hint) from e
    return found


def _entry(item: Any, base: str) -> CommandObject:
    if not isinstance(item, dict):
        raise TypeError("not an object")
    words = item["arguments"] if "arguments" in item else shlex.split(_text(item, "command"))
    if not isinstance(words, list) or not words or not all(isinstance(w, str) and "\0" not in w for w in words):
        raise TypeError("`arguments` is not a list of words")
    for word in words:
        os.fsencode(word)  # raises if half a surrogate pair is in it, which no command line can have
    output = _text(item, "output") if "output" in item else ""
    return CommandObject(os.path.join(base, _text(item, "directory")), tuple(words), _text(item, "file"), output)


def _text(item: Mapping[str, Any], key: str) -> str:
    value = item[key]
    if not isinstance(value, str) or "\0" in value:
        raise TypeError(f"`{key}` is not a string")
    os.fsencode(value)
    return value


def defer(path: Path, tmp: Path, blobs: Sequence[str], env: Mapping[str, str], jobs: int) -> list[tuple[str, str]]:
    """Call the shim for each entry of `path`. Those that match `blobs` become deferred objects at
    their outputs. Return their sources, each with `blob` or the reason why it was not deferred.

    Nothing is compiled. Raises `UsageError` if no entry matches `blobs` or the compiler of a blob
    is not known, and `BuildError` if an object cannot be written.
    """
    entries = load(path)
    program = str(tmp / "bin" / shims.LAUNCHER)
    with ThreadPoolExecutor(max_workers=jobs) as pool:
        answers = list(pool.map(lambda e: _defer_entry(program, e, env), entries))
    found = [(e, reason) for e, (reason, count) in zip(entries, answers, strict=True) if count]
    unknown = [e for e, reason in found if reason == abi.WHY_UNKNOWN_COMPILER]
    if unknown:
        raise UsageError(
            f"{path}: {unknown[0].file}: lazyck does not know the compiler {unknown[0].arguments[0]!r}, "
            f"or it is not there ({counted(len(unknown), 'such entry', 'such entries')})",
            "the file must name a gcc, clang, hipcc or nvcc of this machine",
        )
    if not found:
        raise UsageError(
            f"{path}: no source of its {counted(len(entries), 'entry', 'entries')} matches --blobs {' '.join(blobs)}",
            "--blobs is a shell pattern for the sources' absolute paths",
        )
    return [(e.file, reason) for e, reason in found]


def _defer_entry(program: str, entry: CommandObject, env: Mapping[str, str]) -> tuple[str, int]:
    """Return the shim's answer: the reason (`blob`: deferred), and how many blobs the entry
    compiles.
    """
    if not os.path.isdir(entry.directory):
        os.makedirs(entry.directory, exist_ok=True)  # a build directory that does not exist yet
    argv = [program, abi.OPTION_DEFER, entry.output, *entry.arguments]
    said = proc.run(argv, cwd=entry.directory, env=proc.anchored(env, entry.directory))
    reason, _, count = said.stdout.strip().partition(" ")
    if said.status != 0 or not count.isdigit():
        raise BuildError(f"{entry.file}: cannot be deferred: {(said.stderr or said.stdout).strip()}")
    return reason, int(count)
