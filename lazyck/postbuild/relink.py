"""The last step, shared by `build full` and `build quick`: runtime objects + kept objects → the lazy library, at the
place that the build asked for and in the install dir."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from lazyck import abi, proc
from lazyck.config import tools_dir
from lazyck.errors import BuildError, FormatError, LinkError, UsageError
from lazyck.files import private_directory, write_atomic
from lazyck.postbuild import elf
from lazyck.postbuild.bundle import deploy
from lazyck.postbuild.state import HERE, LinkState, library_dirs, load, resolve
from lazyck.runtime.build import OBJECTS, compile_objects

RUNTIME = "\x01X"  # a word of a link command that stands for all runtime objects
RESPONSE_FILE_ABOVE = 96 * 1024  # bytes of argv: a single exec may carry 128 KiB in one word and 2 MiB in all
ROOT_FIELD = 68  # offset of `root` in the manifest's header (see lazyck.manifest)


# What setuptools packs into a wheel: `build/lib.linux-x86_64-cpython-311/...`.
_WHEEL_TREE = re.compile(r"lib\.linux-[\w.-]+")


def runtime_objects(directory: Path, compiler: Sequence[str], source: Path, env: Mapping[str, str]) -> list[Path]:
    """The runtime's objects, each compiled once per user, or, where he has no place for them, once per tmp dir;
    `directory` is one library's."""
    tools = tools_dir(env)
    is_shared = is_ours(tools) and can_make(tools / OBJECTS)
    return compile_objects(tools / OBJECTS if is_shared else directory.parent.parent / "runtime", compiler, source)


def is_ours(directory: Path) -> bool:
    """Whether nobody else could have put objects there."""
    try:
        private_directory(directory)
    except (OSError, UsageError):
        return False
    return True


def can_make(directory: Path) -> bool:
    """Whether `directory` is there, or can be made, and can be written to."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(directory, os.W_OK)


def command(state: LinkState, directory: Path, objects: Sequence[Path]) -> list[str]:
    """The link command of `state`, as it is run from `directory` of today with the runtime's `objects`."""
    words: list[str] = []
    for word in state.words:
        words += [str(o) for o in objects] if word == RUNTIME else [resolve(word, directory)]
    return words


def relink(
    state: LinkState,
    directory: Path,
    objects: Sequence[Path],
    cwd: Path,
    env: Mapping[str, str],
    originals: Mapping[str, str] | None = None,
) -> proc.Result:
    """Run the link command of `state` in `cwd`, into the library's own directory; returns what the linker left.

    Inside the project's build, `originals` gives the project's names of kept copies, so that the linker says what it
    would say without lazyck. Raises `LinkError` there, else `CommandError`.
    """
    words = [_with_originals(w, originals) for w in state.words] if originals else state.words
    argv = command(replace(state, words=tuple(words)), directory, objects)
    if sum(len(w) + 1 for w in argv) > RESPONSE_FILE_ABOVE:
        response = directory / "link.rsp"
        write_atomic(response, os.fsencode("\n".join(_response_word(w) for w in argv[1:])))
        argv = [argv[0], *state.response[:-1], f"{state.response[-1]}{response}"]
    what = f"link of {state.file_name}"
    link_env = {**env, **dict(state.env)}
    if originals is None:
        return proc.check(what, argv, cwd=cwd, env=link_env)
    result = proc.run(argv, cwd=cwd, env=link_env)
    if result.status != 0:
        shown = directory / "link.failed"
        write_atomic(shown, os.fsencode(shlex.join(argv) + "\n"))
        repeat(result)
        raise LinkError(what, result.status, str(shown))
    return result


def repeat(result: proc.Result) -> None:
    """Say on the build's stdout and stderr what the linker said on its own."""
    for text, stream in ((result.stdout, sys.stdout), (result.stderr, sys.stderr)):
        stream.flush()
        stream.buffer.write(text.encode("utf-8", "replace"))
        stream.buffer.flush()


_COPY = re.compile(re.escape(f"{HERE}/objects/") + "[^,]+")


def _with_originals(word: str, originals: Mapping[str, str]) -> str:
    return _COPY.sub(lambda m: originals.get(m[0], m[0]), word)


def _response_word(word: str) -> str:
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"'


def output_path(state: LinkState, directory: Path) -> Path:
    """Where the build wanted the library."""
    return Path(os.path.normpath(directory / state.output))


def installed_path(state: LinkState, directory: Path) -> Path | None:
    """Where the install dir has the library, if there is one."""
    return Path(os.path.normpath(directory / state.installed)) / state.file_name if state.installed else None


def is_delivered(state: LinkState, directory: Path) -> bool:
    """Whether the linked library is already in all its places, unchanged."""
    linked = directory / state.file_name
    output, installed = output_path(state, directory), installed_path(state, directory)
    places = [p for p in (output if output.parent.is_dir() else None, installed) if p is not None]
    size = linked.stat().st_size
    return bool(places) and all(p.is_file() and p.stat().st_size == size and _newer(p, linked) for p in places)


def _newer(copy: Path, linked: Path) -> bool:
    # copy2 carries the time over: a copy of an older link has an older time, whatever the clock says now
    return copy.stat().st_mtime_ns >= linked.stat().st_mtime_ns


def deliver(state: LinkState, directory: Path) -> list[Path]:
    """Copy the linked library to where it belongs: the build's output path and the install dir.

    The installed copy looks for its bundle beside itself (the baked path of the build's own is taken out of it), unless
    the user gave it a root. Into a tree that setuptools packs into a wheel goes the bundle too, so that the wheel has
    it.
    Raises `BuildError` when the output's directory is gone, or the install dir holds another library of this name.
    """
    linked = directory / state.file_name
    delivered = []
    output, installed = output_path(state, directory), installed_path(state, directory)
    _check_install_dir(state, directory)
    bundle = directory / "bundle" / state.library
    if output.parent.is_dir():
        packed = bundle.is_dir() and (state.beside or any(_WHEEL_TREE.fullmatch(p) for p in output.parts))
        if packed:
            deploy(bundle, output.parent / "lazyck" / state.library)
        _replace(linked, output)
        delivered.append(output)
    elif installed is None:
        raise BuildError(
            f"{output.parent}: this directory, into which the build linked {state.file_name}, does not exist",
            "give --install-dir DIR, or move the tmp dir together with the build directory",
        )
    if installed is not None:
        installed.parent.mkdir(parents=True, exist_ok=True)
        if bundle.is_dir():
            deploy(bundle, installed.parent / "lazyck" / state.library)
        _replace(linked, installed, forget_root=not state.keeps_root)
        delivered.append(installed)
    return delivered


def _check_install_dir(state: LinkState, directory: Path) -> None:
    """An install dir has no room for two libraries of one name, as projects have whose modules are in packages."""
    output, installed = output_path(state, directory), installed_path(state, directory)
    for other in library_dirs(directory.parent.parent) if installed else []:
        try:
            known = load(other)
        except FormatError:
            continue  # of another lazyck's build
        if other == directory or known.library != state.library or installed_path(known, other) != installed:
            continue
        another = output_path(known, other)
        if another.exists() or not output.exists():  # else an earlier build's
            raise BuildError(
                f"{installed}: two libraries of this build would be installed there, {another} and {output}",
                "build without --install-dir; each library can be shipped from where the build put it, with a copy of "
                f"{directory / 'bundle' / state.library} as lazyck/{state.library} beside it",
            )


def _replace(source: Path, target: Path, *, forget_root: bool = False) -> None:
    # A running process may have the old file mapped: never write into it, always put a new one in its place.
    temporary = target.with_name(f".{target.name}.lazyck")
    shutil.copy2(source, temporary)
    if forget_root:
        at = elf.section_offset(temporary, abi.MANIFEST_SECTION)
        if at is not None:
            times = temporary.stat()
            with temporary.open("r+b") as f:
                f.seek(at + ROOT_FIELD)
                f.write(bytes(4))  # offset 0 of the string pool is ""
            os.utime(temporary, ns=(times.st_atime_ns, times.st_mtime_ns))
    temporary.replace(target)
