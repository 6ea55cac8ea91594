"""Eager blobs: compiled at the link by the project's own command, as if lazyck were not there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from lazyck import proc
from lazyck.command import CompileCommand
from lazyck.errors import CommandError
from lazyck.files import digest, encode
from lazyck.postbuild.store import Store
from lazyck.toolchains import by_name
from lazyck.toolchains.base import DEPEND_ROLES
from lazyck.toolchains.options import Role, join


@dataclass(frozen=True)
class EagerObject:
    """A blob compiled ahead of time: `error` is the compiler's failure, or None."""

    blob: CompileCommand
    reason: str
    object: Path
    error: CommandError | None


def writing_to(blob: CompileCommand, target: Path) -> list[str]:
    """The project's own command for `blob`, with another output. The shim wrote the depfile: one of this command would
    name another target."""
    call = blob.call
    items = by_name(call.toolchain).table.split(call.argv[call.prefix :])
    kept = join(i for i in items if i.role is not Role.OUTPUT and i.role not in DEPEND_ROLES)
    return [*call.argv[: call.prefix], *kept, "-o", str(target)]


def compile_one(blob: CompileCommand, target: Path, env: Mapping[str, str], more: Sequence[str] = ()) -> proc.Result:
    """Make the object of `blob` by the project's own command, with the options `more`."""
    tool_env = by_name(blob.call.toolchain).tool_env(blob, env)
    return proc.run([*writing_to(blob, target), *more], cwd=blob.call.cwd, env=proc.anchored(tool_env, blob.call.cwd))


def object_key(blob: CompileCommand, content: str) -> str:
    """The key of what `compile_one` makes of a blob that has the key `content`."""
    words = writing_to(blob, Path("object.o"))
    return digest(*map(encode, (content, blob.call.cwd, *words)))


def compile_eagerly(
    blobs: Sequence[tuple[CompileCommand, str]],
    into: Path,
    env: Mapping[str, str],
    jobs: int,
    store: Store,
    keys: Mapping[CompileCommand, str],
) -> list[EagerObject]:
    """Compile (blob, reason) pairs into `into`, `jobs` at a time; failures are returned, not raised. Objects that
    `store` has are taken from there; `keys` are those of what compiling the blobs reads."""
    into.mkdir(parents=True, exist_ok=True)

    def one(pair: tuple[CompileCommand, str]) -> EagerObject:
        blob, reason = pair
        tag = digest(*map(encode, (blob.source, blob.output, *blob.call.argv)))[:8]
        target = into / f"{blob.stem[:150]}-{tag}.o"
        key = object_key(blob, keys[blob]) if blob in keys else ""
        with store.turns([key] if key else []):
            if key and store.take_object(key, target):
                return EagerObject(blob, reason, target, None)
            result = compile_one(blob, target, env)
            if key and result.status == 0:
                store.keep_object(key, target)
        if result.status == 0:
            return EagerObject(blob, reason, target, None)
        what = f"{blob.source}: compiled eagerly ({reason}), and"
        error = CommandError(what, writing_to(blob, target), result.status, result.stdout + result.stderr)
        return EagerObject(blob, reason, target, error)

    with ThreadPoolExecutor(max_workers=max(1, jobs)) as pool:
        return list(pool.map(one, blobs))
