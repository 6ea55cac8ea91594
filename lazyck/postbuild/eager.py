"""Eager blobs: compiled at the link by the project's own command, as if lazyck were not there."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from lazyck import proc
from lazyck.command import CompileCommand
from lazyck.errors import CommandError
from lazyck.files import encode


@dataclass(frozen=True)
class EagerObject:
    """A blob compiled ahead of time: `error` is the compiler's failure, or None."""

    blob: CompileCommand
    reason: str
    object: Path
    error: CommandError | None


def output_words(words: Sequence[str], output: str, cwd: str, new: str) -> list[str]:
    """`words` with the value of `-o` that names `output` replaced by `new`, in whatever form it was written."""
    out: list[str] = []
    it = iter(words)
    for word in it:
        if word in ("-o", "--output-file"):
            next(it, "")
            out += ["-o", new]
        elif word.startswith(("--output-file=", "--output=")) or (
            word.startswith("-o") and os.path.normpath(os.path.join(cwd, word[2:])) == output
        ):
            out += ["-o", new]
        else:
            out.append(word)
    return out


def compile_eagerly(
    blobs: Sequence[tuple[CompileCommand, str]], into: Path, env: Mapping[str, str], jobs: int
) -> list[EagerObject]:
    """Compile (blob, reason) pairs into `into`, `jobs` at a time; failures are returned, not raised."""
    into.mkdir(parents=True, exist_ok=True)

    def one(pair: tuple[CompileCommand, str]) -> EagerObject:
        blob, reason = pair
        tag = hashlib.sha256(encode(blob.source)).hexdigest()[:8]
        target = into / f"{blob.stem[:150]}-{tag}.o"
        argv = output_words(blob.call.argv, blob.output, blob.call.cwd, str(target))
        result = proc.run(argv, cwd=blob.call.cwd, env={**env, **dict(blob.call.env)})
        error = None
        if result.status != 0:
            error = CommandError(
                f"{blob.source}: compiled eagerly ({reason}), and", argv, result.status, result.stdout + result.stderr
            )
        return EagerObject(blob, reason, target, error)

    with ThreadPoolExecutor(max_workers=max(1, jobs)) as pool:
        return list(pool.map(one, blobs))
