"""Keeps what compilers answer to questions about themselves, from one command to the next.

Such a question (`-dumpmachine`, or whether an option is known) reads nothing of the user's, and a
build asks dozens of them: together they can cost more than all that lazyck does itself. The answer
is kept under the program's real path, size and times. What says which compiler it is, `--version`,
is part of cache keys, and is always asked.
"""

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from lazyck import proc
from lazyck.files import digest, encode, own_folder, write_atomic
from lazyck.settings.environment import environment, tools_dir
from lazyck.toolchains import lookup

# Variables by which a driver finds its parts, or that change its options.
_VARIABLES = (
    *("PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "GCC_EXEC_PREFIX", "COMPILER_PATH", "LIBRARY_PATH"),
    *("CCC_OVERRIDE_OPTIONS", "CLANG_CONFIG_FILE_SYSTEM_DIR", "CLANG_CONFIG_FILE_USER_DIR"),
)


def ask(compiler: Sequence[str], question: Sequence[str]) -> tuple[int, str]:
    """Return the exit status and standard output of `compiler` (an argv prefix) with the words
    `question`, possibly from an earlier command.

    Raises `ToolchainError` if the compiler cannot be started, or does not end within 20 seconds.
    """
    argv = [*compiler, *question]
    kept = _place(argv)
    if kept is not None:
        with contextlib.suppress(OSError, ValueError):
            status, _, said = kept.read_text("utf-8").partition("\n")
            return int(status), said
    shown = proc.run(argv, timeout=20)
    if kept is not None and shown.status >= 0:
        with contextlib.suppress(OSError):
            write_atomic(kept, f"{shown.status}\n{shown.stdout}".encode())
    return shown.status, shown.stdout


def _place(argv: Sequence[str]) -> Path | None:
    """Return the file for an answer, or None if it is not to be kept: a script, or a program of
    another name, may start any other program."""
    program = os.path.realpath(argv[0])
    if not lookup.is_compiler(Path(program).name) or not lookup.is_binary(program):
        return None
    env = environment()
    try:
        info = os.stat(program)
    except OSError:
        return None
    folder = own_folder(tools_dir(env), "answers")
    state = (program, *map(str, (info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)))
    words = (*state, *(env.get(name, "") for name in _VARIABLES), *argv)
    return folder / digest(*map(encode, words)) if folder else None
