"""Finds the executable `lazyck-rt`, by which Python uses the runtime's own code."""

import platform
from collections.abc import Mapping
from pathlib import Path

from lazyck import abi
from lazyck.errors import ToolchainError
from lazyck.files import own_folder, private_directory
from lazyck.runtime.builder import OBJECTS, build_tool, shipped_tool
from lazyck.settings.environment import runtime_source, tools_dir
from lazyck.toolchains import HOST


def tool(env: Mapping[str, str], otherwise: Path | None = None) -> Path:
    """Return the executable `lazyck-rt`, which is compiled if it does not exist yet, below
    `otherwise` if that is given and there is no place in the user's directories. On a machine
    without a compiler it is the one that came with lazyck's wheel. Raises `ToolchainError`."""
    has_place = otherwise is None or own_folder(tools_dir(env), OBJECTS) is not None
    out = private_directory(tools_dir(env)) if has_place or otherwise is None else otherwise
    try:
        # It is for this machine, whatever the library is for: CXX may name a cross compiler.
        compiler = HOST.find_for(platform.machine(), env)
    except ToolchainError:
        if found := shipped_tool(out):
            return found
        raise
    return build_tool(out, compiler, runtime_source())


def limited(rt: Path, manifest: Path, blob: str) -> tuple[str, ...]:
    """Return the words in front of a command by which `rt`, a `lazyck-rt`, runs it as a compile of
    `blob`, in its environment and limited in what it may read."""
    return str(rt), abi.RT_LIMIT, abi.OPTION_FROM, str(manifest), "--", blob
