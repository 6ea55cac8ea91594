"""`lazyck doctor`: shows what this machine has to build with."""

import json
import os
import platform
import shutil
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from lazyck import __version__, abi, proc
from lazyck.commands.shared_options import JSON
from lazyck.directory import stranger_of
from lazyck.errors import LazyckError, ToolchainError, UsageError
from lazyck.interceptor.shims import c_compiler
from lazyck.library.process import landlock_version
from lazyck.quantities import show_size
from lazyck.settings.environment import cache_dir, environment, tools_dir
from lazyck.toolchains import ALL, HOST, Found, Toolchain
from lazyck.toolchains.identity import compiler_identity
from lazyck.toolchains.requirement import Requirement, RequirementState, install_line

_LEAST_FREE = 512 << 20  # bytes


@dataclass(frozen=True)
class Health:
    """One toolchain on this machine. `archs` are those that it knows, `gpus` those present."""

    name: str
    found: bool
    home: str
    compiler: tuple[str, ...]
    identity: str
    archs: tuple[str, ...]
    gpus: tuple[str, ...]
    checks: tuple[Requirement, ...]

    @property
    def usable(self) -> bool:
        """Whether blobs can be compiled with this toolchain."""
        return self.found and all(c.state is not RequirementState.MISSING for c in self.checks)


@dataclass(frozen=True)
class DoctorReport:
    toolchains: tuple[Health, ...]
    own: tuple[Requirement, ...]

    @property
    def healthy(self) -> bool:
        """Whether a library can be built. That takes the host toolchain, which compiles the
        runtime, and what lazyck itself needs."""
        host = next(t for t in self.toolchains if t.name == HOST.name)
        return host.usable and all(c.state is not RequirementState.MISSING for c in self.own)


@click.command("doctor")
@JSON
def command(as_json: bool) -> None:
    """Show which toolchains are here and for which archs, what is missing, and the command that
    installs it.

    Ends with status 0 if a library can be built here, else 1.
    """
    found = examine(environment())
    click.echo(json.dumps(to_json(found), indent=1) if as_json else render_text(found))
    sys.exit(0 if found.healthy else 1)


def examine(env: Mapping[str, str]) -> DoctorReport:
    """Examine all toolchains and what lazyck needs. Never raises if something is missing."""
    own = (c_compiler_check(env), unpacking_check(env), reading_check(), *directories(env))
    return DoctorReport(tuple(examine_toolchain(t, env) for t in ALL), own)


def examine_toolchain(toolchain: Toolchain, env: Mapping[str, str]) -> Health:
    found: Found | None = None
    try:
        found = toolchain.find(env)
        checks = toolchain.checks(found, env)
    except LazyckError as e:  # a variable has a bad value, or a compiler does not run
        checks = [Requirement("compiler", RequirementState.MISSING, e.message, e.hint)]
    if found is None:
        return Health(toolchain.name, False, "", (), "", (), (), tuple(checks))
    try:
        identity = compiler_identity(found.compiler, env)
    except ToolchainError:
        identity = ""
    archs, gpus = toolchain.known_archs(found, env), toolchain.present_archs(found, env)
    return Health(toolchain.name, True, found.home, found.compiler, identity, archs, gpus, tuple(checks))


def c_compiler_check(env: Mapping[str, str]) -> Requirement:
    try:
        return Requirement("C compiler", RequirementState.OK, " ".join(c_compiler(env)))
    except LazyckError as e:
        return Requirement("C compiler", RequirementState.MISSING, e.message, e.hint)


def unpacking_check(env: Mapping[str, str]) -> Requirement:
    """Check the programs by which the runtime, not a build, unpacks a deployed bundle."""
    missing = [name for name in ("tar", "gzip") if not proc.find_program(name, env)]
    if not missing:
        return Requirement("unpacking", RequirementState.OK, "tar, gzip")
    words = " ".join(missing)
    lines = {m: f"{m} install {words}" for m in ("apt", "dnf", "zypper")}
    lines |= {"pacman": f"pacman -S {words}", "apk": f"apk add {words}"}
    detail = f"no {' and no '.join(missing)}: what the cache lacks cannot be compiled from a deployed bundle"
    return Requirement("unpacking", RequirementState.NOTE, detail, install_line(lines))


def reading_check() -> Requirement:
    """Check whether the runtime can limit what a compile reads."""
    if version := landlock_version():
        return Requirement("reads of compiles", RequirementState.OK, f"limited by Landlock, version {version}")
    detail = "not limited: this kernel has no Landlock (Linux 5.13), or it is forbidden here"
    return Requirement("reads of compiles", RequirementState.NOTE, detail)


def directories(env: Mapping[str, str]) -> list[Requirement]:
    try:
        cache = cache_dir(env)
    except UsageError as e:
        return [Requirement("cache directory", RequirementState.MISSING, e.message, e.hint)]
    if cache is None:
        hint = f"set {abi.ENV_CACHE_DIR} (or HOME)"
        return [Requirement("cache directory", RequirementState.MISSING, "no variable says where it is", hint)]
    return [_directory("cache directory", cache, is_trusted=True), _directory("tools directory", tools_dir(env))]


def _directory(name: str, path: Path, *, is_trusted: bool = False) -> Requirement:
    """Check whether files can be created there, and for a cache that other users cannot do so."""
    hint = f"repair it, or name another with {abi.ENV_CACHE_DIR}" if is_trusted else "set XDG_CACHE_HOME to another"
    place = path
    while not os.path.lexists(place) and place != place.parent:
        place = place.parent
    if is_trusted and place == path and path.is_symlink():
        return Requirement(name, RequirementState.MISSING, f"{path} is a symbolic link: it is refused", hint)
    if not place.is_dir():
        return Requirement(name, RequirementState.MISSING, f"{place} is not a directory", hint)
    if not os.access(place, os.W_OK | os.X_OK):
        return Requirement(name, RequirementState.MISSING, f"{path}: {place} cannot be written", hint)
    if is_trusted and place == path and stranger_of(path.stat()):
        return Requirement(
            name, RequirementState.MISSING, f"{path} belongs to, or can be written by, others: it is refused", hint
        )
    free = shutil.disk_usage(place).free
    shown = f"{path} ({show_size(free)} free)"
    return Requirement(name, RequirementState.OK if free >= _LEAST_FREE else RequirementState.NOTE, shown)


def to_json(report: DoctorReport) -> dict[str, object]:
    return {
        "version": __version__,
        "machine": platform.machine(),
        "healthy": report.healthy,
        "toolchains": [{**asdict(t), "usable": t.usable} for t in report.toolchains],
        "own": [asdict(c) for c in report.own],
    }


def render_text(report: DoctorReport) -> str:
    lines = [f"lazyck {__version__} on {platform.machine()}"]
    for t in report.toolchains:
        lines += ["", f"{t.name}: {'usable' if t.usable else 'not usable' if t.found else 'not found'}"]
        rows = (("home", t.home), ("archs", " ".join(t.archs)), ("GPUs", " ".join(t.gpus)))
        lines += [f"  {label:<8}{value}" for label, value in rows if value]
        lines += [line for check in t.checks for line in _lines(check)]
    lines += ["", "lazyck itself:"]
    lines += [line for check in report.own for line in _lines(check)]
    return "\n".join(lines)


def _lines(check: Requirement) -> list[str]:
    lines = [f"  {check.state.value:<8}{check.name}{': ' if check.detail else ''}{check.detail}"]
    return lines + (
        [f"          → {check.install}"] if check.install and check.state is not RequirementState.OK else []
    )
