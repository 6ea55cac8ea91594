"""Keeps what `lazyck build quick` starts from: a JSON file per library, with relative paths.

In the words of the link command, inputs that lazyck keeps copies of are written as
`HERE/objects/file`, where `HERE` stands for the library's directory in the tmp dir, so that the tmp
dir can be moved. `output`, `installed` and `cwd` are relative to that directory too.
"""

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lazyck.errors import FormatError
from lazyck.files import write_atomic

STATE_VERSION = 2
HERE = "\x01D"  # the library's directory in the tmp dir
_NEW, _OLD = ".new", ".old"  # beside a directory


@dataclass(frozen=True)
class LinkState:
    """Says how to link one library again."""

    library: str
    file_name: str
    output: str
    installed: str
    cwd: str  # the directory of the link command, relative to the library's
    words: tuple[str, ...]  # the whole link command; the output is `HERE/<file name>`
    runtime: str  # the digest of the runtime sources that the library was linked with
    runtime_compiler: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    response: tuple[str, ...] = ("@",)  # how the driver is given a response file, whose name is joined to the last word
    keeps_root: bool = False  # the user chose the bundle's root that is baked in, so that an installed copy keeps it
    not_for_runtime: tuple[str, ...] = ()  # symbols of archives and libraries that its calls must not bring in
    beside: bool = False  # the bundle goes beside the library, in the build too
    version: int = STATE_VERSION


def save(state: LinkState, directory: Path) -> None:
    write_atomic(directory / "state.json", json.dumps(vars(state), indent=1).encode())


def load(directory: Path) -> LinkState:
    """Read the state of one library. Raises `FormatError`."""
    path = directory / "state.json"
    try:
        raw = tuples(json.loads(path.read_text()))
        if raw["version"] != STATE_VERSION:
            raise FormatError(f"{path}: written by another lazyck", "run `lazyck build full` again")
        return LinkState(**raw)
    except (OSError, ValueError, TypeError, KeyError) as e:
        raise FormatError(f"{path}: damaged state ({e})", "run `lazyck build full` again") from e


def tuples(raw: Any) -> Any:
    """Return JSON with tuples for its lists, as frozen values have them."""
    if isinstance(raw, dict):
        return {name: tuples(value) for name, value in raw.items()}
    return tuple(map(tuples, raw)) if isinstance(raw, list) else raw


def library_dirs(tmp: Path) -> list[Path]:
    return sorted(p.parent for p in tmp.glob("libs/*/state.json") if p.parent.suffix not in (_NEW, _OLD))


def staging(directory: Path, lead: str = "") -> Path:
    """Make an empty directory beside `directory`, for files that `commit` moves there.
    Its relative paths stay valid, because it has the depth of `directory`."""
    new = directory.with_name(f"{lead}{directory.name}{_NEW}")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    return new


def commit(new: Path, directory: Path) -> None:
    """Put what was made in `new`, a `staging`, in the place of `directory`."""
    old = new.with_suffix(_OLD)
    shutil.rmtree(old, ignore_errors=True)
    if directory.exists():
        directory.rename(old)
    new.rename(directory)
    shutil.rmtree(old, ignore_errors=True)


def relative(path: str, directory: Path) -> str:
    """Return `path` relative to the library's directory. An empty path stays empty."""
    return os.path.relpath(path, directory) if path else ""


def resolve(word: str, directory: Path) -> str:
    """Return a word of the link command with `HERE` replaced by the library's present directory."""
    return word.replace(HERE, str(directory))
