"""Describe what a toolchain tells `lazyck doctor`: checks, and how to install what is missing."""

import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from pathlib import Path

from lazyck import proc
from lazyck.errors import ToolchainError


class RequirementState(str, Enum):
    """How a check ended. The values are words of `lazyck doctor --json`."""

    OK = "ok"
    MISSING = "missing"  # the toolchain cannot compile blobs without it
    NOTE = "note"  # worth knowing (no GPU here, an optional part is missing), but the toolchain works


@dataclass(frozen=True)
class Requirement:
    """One thing that a toolchain needs: its name, how the check ended, what was seen, and the line
    that installs it."""

    name: str
    state: RequirementState
    detail: str = ""
    install: str = ""


def output_of(argv: Sequence[str], env: Mapping[str, str]) -> str:
    """Return what a program says on stdout, or an empty string if it cannot be run, fails, or does
    not end within a minute."""
    try:
        said = proc.run(argv, env=env, timeout=60)
    except ToolchainError:
        return ""
    return said.stdout if said.status == 0 else ""


def fault_of(argv: Sequence[str], env: Mapping[str, str], cwd: str) -> str:
    """Return what a program says about its failure, or an empty string if it succeeds."""
    try:
        done = proc.run(argv, env=env, cwd=cwd, timeout=120)
    except ToolchainError as e:
        return e.message
    said = (done.stderr + done.stdout).strip()
    return "" if done.status == 0 else said or f"the compiler ended with status {done.status}"


def error_line(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if re.search(r"error|fatal|not found|cannot", line)]
    return next(iter([*errors, *lines]), "")[:300]


def try_out(
    files: Mapping[str, str],
    commands: Iterable[Sequence[str]],
    env: Mapping[str, str],
    detail: str,
    complaints: Sequence[tuple[str, str, Mapping[str, str]]],
) -> Requirement:
    """Check whether `commands` succeed in a directory with `files`.

    Each of `complaints` has words of a failed command's output, what is missing if they are there,
    and how to install that. The last one has no words: it is for all other failures, and names the
    check.
    """
    with tempfile.TemporaryDirectory(prefix="lazyck-doctor-") as work:
        for name, text in files.items():
            Path(work, name).write_text(text)
        said = next((said for argv in commands if (said := fault_of(argv, env, work))), "")
    if not said:
        return Requirement(complaints[-1][1], RequirementState.OK, detail)
    _, name, lines = next(row for row in complaints if row[0] in said)
    return Requirement(name, RequirementState.MISSING, error_line(said), install_line(lines))


# ID or ID_LIKE in /etc/os-release → package manager
_MANAGERS = {
    "debian": "apt", "ubuntu": "apt", "fedora": "dnf", "rhel": "dnf", "centos": "dnf", "suse": "zypper",
    "opensuse": "zypper", "arch": "pacman", "alpine": "apk",
}  # fmt: skip


def install_line(lines: Mapping[str, str], manager: str | None = None) -> str:
    """Choose from `lines` (package manager, or `any` → command line) the one for this machine, or
    an empty string if none is known."""
    own = package_manager() if manager is None else manager
    return lines.get(own) or lines.get("any") or ""


@lru_cache(maxsize=1)
def package_manager() -> str:
    """Return the package manager of this machine's distribution, or an empty string."""
    for place in ("/etc/os-release", "/usr/lib/os-release"):
        if Path(place).is_file():
            return manager_of(Path(place).read_text(errors="replace"))
    return ""


def manager_of(os_release: str) -> str:
    """Return the package manager for the text of an os-release file, or an empty string."""
    fields = dict(re.findall(r"^(ID|ID_LIKE)=[\"']?([^\"'\n]*)", os_release, re.M))
    names = [fields.get("ID", ""), *fields.get("ID_LIKE", "").split()]
    return next((_MANAGERS[n.partition("-")[0]] for n in names if n.partition("-")[0] in _MANAGERS), "")
