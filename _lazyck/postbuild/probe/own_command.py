"""Compiles a blob by the project's own command, as if lazyck were not there."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from _lazyck import proc
from _lazyck.abi import Role
from _lazyck.command import CompileCommand
from _lazyck.toolchains import by_name
from _lazyck.toolchains.base import DEPEND_ROLES
from _lazyck.toolchains.options import join


def writing_to(blob: CompileCommand, target: Path) -> list[str]:
    """Return the project's own command for `blob`, with another output. It writes no depfile: the
    shim has written one, and this command's would name another target."""
    call = blob.call
    items = by_name(call.toolchain).table.split(call.argv[call.prefix :])
    kept = join(i for i in items if i.role is not Role.OUTPUT and i.role not in DEPEND_ROLES)
    return [*call.argv[: call.prefix], *kept, "-o", str(target)]


def compile_one(blob: CompileCommand, target: Path, env: Mapping[str, str], more: Sequence[str] = ()) -> proc.Result:
    """Make the object of `blob` by the project's own command, with the options `more`."""
    tool_env = by_name(blob.call.toolchain).tool_env(blob, env)
    return proc.run([*writing_to(blob, target), *more], cwd=blob.call.cwd, env=proc.anchored(tool_env, blob.call.cwd))
