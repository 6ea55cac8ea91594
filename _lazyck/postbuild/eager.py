"""Compiles eager blobs at the link, by the project's own command, as if lazyck were not there."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from _lazyck.command import CompileCommand
from _lazyck.errors import CommandError
from _lazyck.files import digest, encode
from _lazyck.postbuild.host_units import BY_KERNEL, HostUnit, HostUnits
from _lazyck.postbuild.job import LinkJob
from _lazyck.postbuild.probe.own_command import compile_one, writing_to
from _lazyck.postbuild.reasons import Reason, readable, sentence


@dataclass(frozen=True)
class EagerObject:
    """Describes a blob compiled ahead of time, and why. `error` is the compiler's failure, or None.
    With a `unit` the object is the blob's host unit, and its kernels are compiled when they are
    first used."""

    blob: CompileCommand
    reasons: tuple[Reason, ...]
    object: Path
    error: CommandError | None
    unit: HostUnit | None = None


def object_key(blob: CompileCommand, content: str) -> str:
    """Return the key of what `compile_one` makes of a blob that has the key `content`."""
    words = writing_to(blob, Path("object.o"))
    return digest(*map(encode, (content, blob.call.cwd, *words)))


def compile_eagerly(
    job: LinkJob,
    blobs: Mapping[CompileCommand, Reason],
    into: Path,
    keys: Mapping[CompileCommand, str],
    units: HostUnits,
) -> list[EagerObject]:
    """Compile `blobs`, each with the reason, into `into`, in parallel. Failures are returned, not
    raised. Objects that the store has are taken from there. `keys` are the keys of what compiling
    the blobs reads. A blob that has a host unit is compiled to that."""
    env, store = job.env, job.store
    into.mkdir(parents=True, exist_ok=True)
    shown = readable(list(blobs.values()), env)

    def one(blob: CompileCommand, reason: Reason) -> EagerObject:
        tag = digest(*map(encode, (blob.source, blob.output, *blob.call.argv)))[:8]
        target = into / f"{blob.stem[:150]}-{tag}.o"
        if unit := units.make(blob, target):
            return EagerObject(blob, (reason,), target, None, unit)
        refused = units.refused.get(blob)
        reasons = tuple(dict.fromkeys(r for r in (reason, refused) if r and (not refused or r != BY_KERNEL)))
        key = object_key(blob, keys[blob]) if blob in keys else ""
        with store.turns([key] if key else []):
            if key and store.take_object(key, target):
                return EagerObject(blob, reasons, target, None)
            result = compile_one(blob, target, env)
            if key and result.status == 0:
                store.keep_object(key, target)
        if result.status == 0:
            return EagerObject(blob, reasons, target, None)
        what = f"{blob.source} {sentence(reasons)}, so it is compiled with the library"
        error = CommandError(what, writing_to(blob, target), result.status, result.stdout + result.stderr)
        return EagerObject(blob, reasons, target, error)

    with ThreadPoolExecutor(max_workers=max(1, job.settings.jobs)) as pool:
        return list(pool.map(one, blobs, shown))
