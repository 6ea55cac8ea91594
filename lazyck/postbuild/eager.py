"""Eager blobs: compiled at the link by the project's own command, as if lazyck were not there."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from lazyck import proc
from lazyck.command import CompileCommand
from lazyck.errors import CommandError
from lazyck.files import encode
from lazyck.toolchains import by_name
from lazyck.toolchains.options import Role, join


@dataclass(frozen=True)
class EagerObject:
    """A blob compiled ahead of time: `error` is the compiler's failure, or None."""

    blob: CompileCommand
    reason: str
    object: Path
    error: CommandError | None


def writing_to(blob: CompileCommand, target: Path) -> list[str]:
    """The project's own command for `blob`, with another output."""
    call = blob.call
    items = by_name(call.toolchain).table.split(call.argv[call.prefix :])
    kept = join(item for item in items if item.role is not Role.OUTPUT)
    return [*call.argv[: call.prefix], *kept, "-o", str(target)]


def compile_eagerly(
    blobs: Sequence[tuple[CompileCommand, str]], into: Path, env: Mapping[str, str], jobs: int
) -> list[EagerObject]:
    """Compile (blob, reason) pairs into `into`, `jobs` at a time; failures are returned, not raised."""
    into.mkdir(parents=True, exist_ok=True)

    def one(pair: tuple[CompileCommand, str]) -> EagerObject:
        blob, reason = pair
        tag = hashlib.sha256(encode(blob.source)).hexdigest()[:8]
        target = into / f"{blob.stem[:150]}-{tag}.o"
        argv = writing_to(blob, target)
        result = proc.run(argv, cwd=blob.call.cwd, env=by_name(blob.call.toolchain).tool_env(blob, env))
        error = None
        if result.status != 0:
            error = CommandError(
                f"{blob.source}: compiled eagerly ({reason}), and", argv, result.status, result.stdout + result.stderr
            )
        return EagerObject(blob, reason, target, error)

    with ThreadPoolExecutor(max_workers=max(1, jobs)) as pool:
        return list(pool.map(one, blobs))
