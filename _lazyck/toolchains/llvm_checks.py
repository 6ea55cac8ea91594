"""Check LLVM IR for doctor: compile and link a module of three lines, and try the compiler that
could stand in."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from _lazyck import proc
from _lazyck.errors import ToolchainError
from _lazyck.toolchains.check import Check, State, install_line

PIP = "pip install 'lazyck[llvm]'"
INSTALL = {
    "apt": f"apt install clang (or: {PIP})",
    "dnf": f"dnf install clang (or: {PIP})",
    "zypper": f"zypper install clang (or: {PIP})",
    "pacman": f"pacman -S clang (or: {PIP})",
    "apk": "apk add clang",
    "any": PIP,
}
_SECONDS = 60.0
_MODULE = "define i32 @lazyck_doctor(i32 %x) {\n  %y = add i32 %x, 1\n  ret i32 %y\n}\n"


def try_module(compiler: Sequence[str], env: Mapping[str, str]) -> Check:
    """Compile and link a module as the recipe of a blob does."""
    with tempfile.TemporaryDirectory(prefix="lazyck-doctor-") as work:
        Path(work, "t.ll").write_text(_MODULE)
        for words in (("-O2", "-fPIC", "-c", "t.ll", "-o", "t.o"), ("-shared", "t.o", "-o", "t.so")):
            try:
                done = proc.run([*compiler, *words], cwd=work, env=env, timeout=_SECONDS)
            except ToolchainError as e:
                return Check("module", State.MISSING, e.message, install_line(INSTALL))
            if done.status != 0:
                said = (done.stderr + done.stdout).strip().splitlines()
                what = next((line for line in said if "error" in line), f"{words[0]}: status {done.status}")
                return Check("module", State.MISSING, what.strip(), install_line(INSTALL))
    return Check("module", State.OK, "compiles and links")


def irc_check(program: str | None, env: Mapping[str, str]) -> Check:
    """Check whether lazyck's own IR compiler works, which is needed only if clang is missing."""
    name = "lazyck-irc"
    if program is None:
        return Check(name, State.NOTE, "not on PATH: only needed where clang is missing", PIP)
    try:
        shown = proc.run([program, "--version"], env=env, timeout=_SECONDS)
    except ToolchainError as e:
        return Check(name, State.NOTE, e.message, PIP)
    if shown.status != 0:
        return Check(name, State.NOTE, "llvmlite is not installed: only needed where clang is missing", PIP)
    return Check(name, State.OK, f"{program} ({', '.join(shown.stdout.strip().splitlines())})")
