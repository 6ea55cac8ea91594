"""Makes the objects of the blobs that are compiled with the library: each as a host unit, whose
kernels are compiled at their first use, or as a whole."""

import os
import platform
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from lazyck import abi, proc
from lazyck.errors import CommandError
from lazyck.files import digest, encode, own_folder
from lazyck.postbuild.build_options import BuildOptions
from lazyck.postbuild.bundle import FileDigests
from lazyck.postbuild.cxx import demangle
from lazyck.postbuild.link_context import LinkContext
from lazyck.postbuild.objects import elf
from lazyck.postbuild.probe.group import compile_one, first_error, object_key, writing_to
from lazyck.postbuild.probe_cache import PROBE_CACHE, ProbeCache
from lazyck.postbuild.reasons import Reason, ReasonKind, readable, sentence
from lazyck.settings.environment import tools_dir
from lazyck.toolchains import HOST, by_name
from lazyck.toolchains.command import CompileCommand
from lazyck.toolchains.options import join
from lazyck.units.program import build_program, source_digest

_OWN_NAME = re.compile(f"{abi.MODULE_ID}[0-9a-f]{{{abi.MODULE_ID_DIGITS}}}")
BY_KERNEL = Reason(ReasonKind.BY_KERNEL)  # as the build asks for


@dataclass(frozen=True)
class Program:
    """Describes `lazyck-unit`: where it is, and a digest of what it does."""

    path: Path
    digest: str


def unit_program(options: BuildOptions, compiler: Sequence[str], env: Mapping[str, str]) -> Program:
    """Return the program that splits sources, compiled by the C++ compiler `compiler`."""
    folder = own_folder(tools_dir(env), "programs") or options.tmp / "programs"
    return Program(build_program(folder, compiler), source_digest())


def make_early(blob: CompileCommand, options: BuildOptions, env: Mapping[str, str]) -> Reason | None:
    """Make the host unit of `blob` where its build compiles it, and keep it for the link. Return
    why there is none. Raises `LazyckError`."""
    if not can_be(blob):
        return None
    cache = ProbeCache(options.tmp / PROBE_CACHE)
    program = unit_program(options, HOST.find_for(platform.machine(), env), env)
    with TemporaryDirectory(dir=options.tmp) as work:
        units = HostUnits(cache, program, env)
        units.make(blob, Path(work) / "unit.o")
    return units.refused.get(blob)


@dataclass(frozen=True)
class HostUnit:
    """Describes what the host unit of `blob` registers under `name`, as device code names it."""

    blob: CompileCommand
    name: str
    kernels: tuple[str, ...]  # a line for each: its symbol, a tab, what compiling it takes (see units/src/units.h)
    whole: str  # the line that stands for all kernels
    files: frozenset[str]  # all files that the source reads, as absolute paths


def unit_name(blob: CompileCommand) -> str:
    """Return the name under which a host unit registers its kernels. Each compile has its own."""
    return digest(*map(encode, (blob.source, blob.output, blob.call.cwd, *blob.call.argv)))[:16]


def read_unit(blob: CompileCommand, made: Path) -> HostUnit | None:
    """Return the host unit that the object `made` is, or None if it is an ordinary object."""
    section = elf.read_section(made, abi.KERNELS_SECTION)
    if section is None:
        return None
    rows: dict[str, list[str]] = {
        abi.TABLE_WHOLE: [""], abi.TABLE_KERNEL: [], abi.TABLE_VARIABLE: [], abi.TABLE_FILE: [],
    }  # fmt: skip
    for line in os.fsdecode(section).splitlines():
        kind, _, rest = line.partition("\t")
        rows.setdefault(kind, []).append(rest)
    tail = "".join(f"\t{device_name(name)}" for name in rows[abi.TABLE_VARIABLE])
    kernels = tuple(device_name(line) + tail for line in rows[abi.TABLE_KERNEL])
    files = frozenset(map(blob.call.path, rows[abi.TABLE_FILE])) - {blob.source}
    return HostUnit(blob, unit_name(blob), kernels, rows[abi.TABLE_WHOLE][-1], files)


def device_name(text: str) -> str:
    """Return names as device code has them: without what makes a host unit's names unique."""
    return _OWN_NAME.sub(abi.MODULE_ID + "0" * abi.MODULE_ID_DIGITS, text)


def can_be(blob: CompileCommand) -> bool:
    """Return whether there may be a host unit of `blob`. Only device code has one."""
    toolchain = by_name(blob.call.toolchain)
    return bool(toolchain.entry_verb) and os.path.splitext(blob.source)[1] in toolchain.unit_suffixes


class HostUnits:
    """Makes the host units of one link. Those of earlier links are found in `cache`, by the
    contents of the files that they read. `program` is None if no host units are to be made.

    A host unit has all of its source's host code, compiled by the project's own compiler, and
    registers every kernel and variable as usual. In place of device code it has its name.
    `lazyck-unit` makes it from the steps that the compiler itself says it would take. If these are
    not the known ones, the source is compiled as a whole.
    """

    def __init__(self, cache: ProbeCache, program: Program | None, env: Mapping[str, str]) -> None:
        self._cache, self._program, self._env = cache, program, env
        self._contents = FileDigests()
        self.refused: dict[CompileCommand, Reason] = {}  # blobs that have no host unit, and why

    def make(self, blob: CompileCommand, target: Path) -> HostUnit | None:
        """Make the host unit of `blob` at `target`. Return None if it has none (see `refused`)."""
        if self._program is None or not can_be(blob) or blob in self.refused:
            return None
        group = self._group(blob)
        known = self._cache.answers(f"{group}-unit").get("files")
        key = self._key(group, known) if isinstance(known, list) else ""
        if key and self._cache.take_object(key, target):
            return read_unit(blob, target)
        toolchain = by_name(blob.call.toolchain)
        written = writing_to(blob, target)
        items = toolchain.table.split(written[blob.call.prefix :])
        named = (i.words[0] for i in items if not i.name and blob.call.path(i.words[0]) == blob.source)
        words = [*written[: blob.call.prefix], *join(i for i in items if i.name not in toolchain.hinders_units)]
        source = next(named, blob.source)
        argv = [str(self._program.path), toolchain.unit_verbs[0], unit_name(blob), source, str(target), "--", *words]
        env = proc.anchored(toolchain.tool_env(blob, self._env), blob.call.cwd)
        result = proc.run(argv, cwd=blob.call.cwd, env=env)
        unit = read_unit(blob, target) if result.status == 0 else None
        if unit is None:
            (error,) = demangle.readable_lines([first_error(result.stdout + result.stderr)])
            self.refused[blob] = Reason(ReasonKind.NOT_BY_KERNEL, error)
            return None
        files = sorted({*unit.files, blob.source})
        if key := self._key(group, files):
            self._cache.keep_answers(f"{group}-unit", {"files": files})
            self._cache.keep_object(key, target)
        return unit

    def _group(self, blob: CompileCommand) -> str:
        call = blob.call
        toolchain = by_name(call.toolchain)
        variables = sorted(toolchain.tool_env(blob, self._env).items())
        own = [f"{k}={v}" for k, v in variables if k in toolchain.flag_env]
        compiler = proc.find_program(call.argv[0]) or call.argv[0]
        changed = Path(compiler).stat().st_mtime_ns if os.path.isfile(compiler) else 0
        made_by = (self._program.digest if self._program else "", f"{os.path.realpath(compiler)} {changed}")
        return digest(*map(encode, (*made_by, call.cwd, blob.source, *call.argv, "", *own)))

    def _key(self, group: str, files: Sequence[str]) -> str:
        try:
            contents = [part for f in files for part in (f, self._contents.of_file(f))]
        except OSError:
            return ""
        return digest(*map(encode, (group, *contents)))


@dataclass(frozen=True)
class EagerObject:
    """Describes a blob compiled ahead of time, and why."""

    blob: CompileCommand
    reasons: tuple[Reason, ...]
    object: Path
    error: CommandError | None  # the compiler's failure
    unit: HostUnit | None = None  # what the object is if its kernels are compiled at first use


def compile_eagerly(
    context: LinkContext,
    blobs: Mapping[CompileCommand, Reason],
    into: Path,
    keys: Mapping[CompileCommand, str],
    units: HostUnits,
) -> list[EagerObject]:
    """Compile `blobs`, each with the reason, into `into`, in parallel. Failures are returned, not
    raised. Objects that the cache has are taken from there. `keys` are the keys of what compiling
    the blobs reads. A blob that has a host unit is compiled to that."""
    env, cache = context.env, context.cache
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
        with cache.turns([key] if key else []):
            if key and cache.take_object(key, target):
                return EagerObject(blob, reasons, target, None)
            result = compile_one(blob, target, env)
            if key and result.status == 0:
                cache.keep_object(key, target)
        if result.status == 0:
            return EagerObject(blob, reasons, target, None)
        what = f"{blob.source} {sentence(reasons)}, so it is compiled with the library"
        error = CommandError(what, writing_to(blob, target), result.status, result.stdout + result.stderr)
        return EagerObject(blob, reasons, target, error)

    with ThreadPoolExecutor(max_workers=max(1, context.options.jobs)) as pool:
        return list(pool.map(one, blobs, shown))
