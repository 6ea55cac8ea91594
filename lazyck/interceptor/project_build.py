"""Runs the project's own build with the shims in front and reports the result (`lazyck build
full`), or prepares one that calls the shims by itself: one target of a CMake project."""

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lazyck import __version__, abi, proc
from lazyck.errors import LazyckError
from lazyck.files import write_if_different
from lazyck.interceptor import compile_commands, log
from lazyck.interceptor.log import LogLine, read_log
from lazyck.interceptor.reasons import SAYS
from lazyck.interceptor.setup import set_up, set_up_launcher
from lazyck.postbuild import main as postbuild
from lazyck.postbuild import summary
from lazyck.postbuild.build_options import BuildOptions, save_options
from lazyck.postbuild.link import early
from lazyck.postbuild.link.quick import Unchanged, deliver_unchanged
from lazyck.quantities import counted
from lazyck.runtime.builder import source_digest
from lazyck.settings.environment import runtime_source
from lazyck.toolchains import Found, Toolchain, archs_of_environment, parse_archs, resolve_native
from lazyck.visible import visible


@dataclass(frozen=True)
class BuildRequest:
    """The options of `lazyck build full`. `kernels` is None if each toolchain decides which
    sources it builds by kernel."""

    command: tuple[str, ...]
    blobs: tuple[str, ...]
    kernels: tuple[str, ...] | None
    toolchain: str
    archs: str
    options: BuildOptions
    compile_commands: Path | None = None  # its blobs are deferred before the command runs
    lazy_because: str = ""  # why the build fails if nothing in it is lazy; empty: it does not


@dataclass(frozen=True)
class BuildOutcome:
    """The exit status of the command, the text of the report, and what became of each library."""

    status: int
    report: str
    libraries: tuple[summary.LinkSummary, ...]


def prepare_target(
    options: BuildOptions, toolchain: str, archs: str, sources: Sequence[str], programs: Path, env: Mapping[str, str]
) -> None:
    """Make the launcher of one target, as `lazyck_library` of a CMake project asks for, and a stamp
    which changes when another lazyck would link another library. `programs` is a directory that
    targets share; `env` also names the project's compilers. Raises `LazyckError`."""
    found = set_up_launcher(options.tmp, toolchain, sources, env, python=sys.executable, programs=programs)
    _, chosen = chosen_archs(archs, found, env)
    save_options(with_toolchains(options, chosen, found, env))
    stamp = f"{__version__} {source_digest(runtime_source())}\n"
    write_if_different(options.tmp / "stamp", stamp.encode())


def chosen_archs(text: str, found: Sequence[Found], env: Mapping[str, str]) -> tuple[Toolchain | None, tuple[str, ...]]:
    """Return toolchain and archs of a list that may hold `native`. Raises `UsageError`."""
    if not text:
        return None, ()
    return parse_archs(resolve_native(text, found, env), [f.toolchain for f in found])


def with_toolchains(
    options: BuildOptions, archs: tuple[str, ...], found: Sequence[Found], env: Mapping[str, str]
) -> BuildOptions:
    return replace(
        options,
        archs=archs,
        env_archs=archs_of_environment(found, env),
        homes=tuple((f.toolchain.name, f.origin or f.home) for f in found),
        composed=tuple((f.home, f.origin) for f in found if f.origin),
    )


def full(request: BuildRequest, env: Mapping[str, str]) -> BuildOutcome:
    """Run the build. Raises `LazyckError` if the request is invalid or lazyck fails."""
    options = request.options
    options.tmp.mkdir(parents=True, exist_ok=True)
    for old in options.tmp.glob(f"libs/*/{summary.NAME}"):  # the report covers only the present build
        old.rename(old.with_name(summary.EARLIER))
    is_default = request.kernels is None
    globs = (*request.blobs, *(request.kernels or ()))
    interception = set_up(
        options.tmp,
        request.toolchain,
        request.blobs,
        env,
        python=sys.executable,
        verbose=options.verbose,
        units=request.kernels,
    )
    by_kernel = tuple(g for f in interception.found for g in f.toolchain.unit_globs) if is_default else request.kernels
    options = replace(options, blobs=request.blobs, kernels=by_kernel or ())
    # These shims already make lazy what would make itself lazy (lazyck.setuptools).
    build_env = {**interception.env, abi.ENV_LAZY: "0"}
    toolchain, archs = chosen_archs(request.archs, interception.found, env)
    if toolchain is not None:
        build_env = {**toolchain.arch_settings(archs), **build_env}
    options = replace(
        with_toolchains(options, archs, interception.found, env), shim_homes=tuple(interception.home_map.items())
    )
    save_options(options)
    imported: list[tuple[str, str]] = []
    if request.compile_commands is not None:
        imported = compile_commands.defer(request.compile_commands, options.tmp, globs, build_env, options.jobs)
    status = proc.passthrough(request.command, env=build_env)
    compile_commands.export(interception.compiles, options.tmp / compile_commands.NAME)
    lines = read_log(interception.log)
    resolvers = link_again(lines, options.tmp, env) if status == 0 else []
    libraries = tuple(summary.load(p) for p in sorted(options.tmp.glob(f"libs/*/{summary.NAME}")))
    unchanged = deliver_unchanged(options, env) if status == 0 else Unchanged()
    if status == 0 and options.install_dir:
        for library in filter(os.path.isfile, log.passed_libraries(lines)):
            os.makedirs(options.install_dir, exist_ok=True)
            shutil.copy2(library, options.install_dir)
    said = "\n".join([*resolvers, report(request, imported, lines, libraries, unchanged, status == 0)])
    is_lazy = libraries or unchanged.libraries or any(line.action == abi.DID_DEFER for line in lines)
    if status == 0 and request.lazy_because and not is_lazy:
        status, said = (
            1,
            (
                f"{said}\nlazyck: error: no blob was deferred, and {request.lazy_because} makes that an error\n"
                "  hint: see above why nothing is lazy, or say --no-require-lazy"
            ),
        )
    return BuildOutcome(status, said, (*libraries, *unchanged.libraries))


def link_again(lines: Sequence[LogLine], tmp: Path, env: Mapping[str, str]) -> list[str]:
    """Link the libraries again of which something that was linked after them may call functions
    before they can be lazy. Return warnings of those that cannot be linked again."""
    warnings = []
    linked = {line.output for line in lines if line.action in (abi.DID_PASS, abi.DID_LINK)}
    for directory in early.find(linked, tmp, env):
        record = tmp / "links" / f"{directory.name}.rec"
        shutil.copyfile(directory / early.RECORD, record)
        try:
            postbuild.run(record)
        except LazyckError as e:
            warnings.append(
                f"lazyck: warning: {visible(directory.name)}: a resolver (IFUNC) of another file may call its lazy "
                f"functions before they can be lazy, and it cannot be linked once more: {visible(e.message)}"
            )
    return warnings


def report(
    request: BuildRequest,
    imported: Sequence[tuple[str, str]],
    lines: Sequence[LogLine],
    libraries: Sequence[summary.LinkSummary],
    unchanged: Unchanged,
    is_whole: bool,
) -> str:
    """Return the report on a build. Objects that no link took count only if it `is_whole`."""
    found = [line for library in unchanged.libraries for line in summary.unchanged_lines(library)]
    found += [
        f"lazyck: warning: {visible(str(path))} is no longer lazy: it was rebuilt without lazyck. Remove it and build "
        "again"
        for path in unchanged.replaced
    ]
    if request.compile_commands is not None:
        found += imported_lines(imported, request.compile_commands)
    passed = log.passed_blobs(lines) if is_whole else {}  # a failed build has said why
    if any(line.action == abi.DID_DEFER for line in lines) or libraries:
        intercept = sum(line.microseconds for line in lines if line.action == abi.DID_DEFER) / 1e6
        left = unlinked(lines, request.options.tmp) if is_whole else []
        found += [summary.render(libraries, intercept, left), *passed_lines(passed)]
    elif passed:
        number = sum(count for count, _ in passed.values())
        none = f"none of the {number} compiled blobs is" if number > 1 else "the one blob that was compiled is not"
        found += [f"lazyck: {none} lazy", *passed_lines(passed)]
    elif unchanged.libraries:
        pass  # its lazy libraries are reported above
    elif is_whole or stands_for_nvcc(lines):
        found.append(nothing_deferred(lines, request.blobs))
    return "\n".join(text for text in found if text)


def passed_lines(passed: Mapping[str, tuple[int, Sequence[str]]]) -> list[str]:
    """Return two lines for each reason why the real compiler compiled blobs, with some of them."""
    return [
        f"lazyck: {counted(count, 'blob')} compiled by the real compiler, {reason}: {shown_names(sources)}\n"
        f"lazyck:   {code}: the call {SAYS[code]}"
        for reason, (count, sources) in passed.items()
        for code in [reason.partition(":")[0]]
    ]


def imported_lines(imported: Sequence[tuple[str, str]], file: Path) -> list[str]:
    reasons = [reason for _, reason in imported]
    lines = [f"lazyck: {counted(reasons.count(abi.WHY_BLOB), 'blob')} deferred from {file}"]
    for reason in dict.fromkeys(reason for reason in reasons if reason != abi.WHY_BLOB):
        sources = [source for source, why in imported if why == reason]
        lines.append(f"lazyck: {len(sources)} of its blobs not deferred, {reason}: {shown_names(sources)}")
    return lines


def shown_names(sources: Sequence[str]) -> str:
    return ", ".join(map(os.path.basename, sources[:4])) + (", ..." if len(sources) > 4 else "")


def nothing_deferred(lines: Sequence[LogLine], blobs: Sequence[str]) -> str:
    """Return the message for a build in which lazyck saw no call of a compiler, or none matched."""
    if not lines:
        return (
            "lazyck: the build called no compiler that lazyck stands in for: nothing is lazy\n"
            "  hint: was everything up to date, or is a compiler's absolute path configured (CMake caches it)? Make "
            "configuring part of COMMAND, in a fresh build directory (sh -c 'cmake -B build && cmake --build build')"
        )
    reasons = ", ".join(f"{count} {reason}" for reason, count in log.passed_reasons(lines)[:5])
    if stands_for_nvcc(lines):
        return (
            f"lazyck: hipcc ran nvcc, and lazyck does not defer its compiles: nothing is lazy ({reasons})\n"
            "  hint: set HIP_PLATFORM=amd if this build is for AMD GPUs; for NVIDIA's, build with nvcc itself"
        )
    return (
        f"lazyck: no compile matched --blobs {' '.join(blobs)}: nothing is lazy "
        f"({counted(len(lines), 'compiler call')}: {reasons})\n"
        "  hint: --blobs is a shell pattern for the sources' absolute paths; intercept.log in the tmp dir lists them"
    )


def stands_for_nvcc(lines: Sequence[LogLine]) -> bool:
    return any(line.reason == abi.WHY_HIP_ON_NVIDIA for line in lines)


def unlinked(lines: Sequence[LogLine], tmp: Path) -> list[str]:
    """Return the objects that this build deferred and that no intercepted link took."""
    deferred = {line.output for line in lines if line.action == abi.DID_DEFER}
    for taken in tmp.glob("libs/*/taken"):
        deferred -= set(os.fsdecode(taken.read_bytes()).split("\0"))
    return sorted(deferred)
