"""Describe LLVM IR, as text (.ll) and bitcode (.bc). clang compiles it, or else lazyck-irc."""

import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import ClassVar

from lazyck import proc
from lazyck.errors import ToolchainError
from lazyck.toolchains import answers, lookup
from lazyck.toolchains.base import Found
from lazyck.toolchains.command import CompileCommand
from lazyck.toolchains.gnu import SOURCES, GnuToolchain, own_library_items
from lazyck.toolchains.options import join
from lazyck.toolchains.requirement import Requirement, RequirementState, try_out

SUFFIXES = (".ll", ".bc")
LANGUAGE = "ir"
IRC = "lazyck-irc"
_PIP = "pip install 'lazyck[llvm]'"
_MODULE = "define i32 @lazyck_doctor(i32 %x) {\n  %y = add i32 %x, 1\n  ret i32 %y\n}\n"


class LlvmToolchain(GnuToolchain):
    """clang, and lazyck-irc, which takes the same options. The machine's is the only arch."""

    name = "llvm"
    searched = f"CLANG, clang and clang-NN on PATH, {IRC} with llvmlite"
    tools = (IRC,)
    compiler_env = ("CLANG",)
    install: ClassVar[Mapping[str, str]] = {
        "apt": f"apt install clang (or: {_PIP})",
        "dnf": f"dnf install clang (or: {_PIP})",
        "zypper": f"zypper install clang (or: {_PIP})",
        "pacman": f"pacman -S clang (or: {_PIP})",
        "apk": "apk add clang",
        "any": _PIP,
    }
    written_in = "llvm-ir"
    source_suffixes = (*SUFFIXES, *(s for s in SOURCES if s != ".cu"))
    # Other sources that $CLANG compiles.
    foreign_suffixes: ClassVar[Mapping[str, str]] = {
        **{s: "host" for s in SOURCES if s not in (".cu", ".hip")},
        ".hip": "rocm",
    }
    languages: ClassVar[Mapping[str, str]] = {LANGUAGE: "", "none": "", "c": "host", "c++": "host", "hip": "rocm"}

    def find(self, env: Mapping[str, str]) -> Found | None:
        words = lookup.compiler_of("CLANG", env, lookup.with_versions(("clang",), env))
        if not words and (path := irc(env)) and proc.run([path, "--version"], env=env).status == 0:
            words = (path,)
        return Found(self, "", words) if words else None

    def checks(self, found: Found | None, env: Mapping[str, str]) -> list[Requirement]:
        done = super().checks(found, env)
        if found is None or done[0].state is not RequirementState.OK:
            return done
        is_irc = Path(found.compiler[0]).name == IRC
        others = [] if is_irc else [_irc_check(irc(env), env)]
        steps = (("-O2", "-fPIC", "-c", "t.ll", "-o", "t.o"), ("-shared", "t.o", "-o", "t.so"))
        commands = [(*found.compiler, *words) for words in steps]  # as the recipe of a blob
        module = try_out({"t.ll": _MODULE}, commands, env, "compiles and links", [("", "module", self.install)])
        return [*done, module, *others]

    def understands(self, compiler: Sequence[str], kind: str) -> bool:
        if Path(compiler[0]).name == IRC:
            return kind in (*SUFFIXES, LANGUAGE, "none")
        return reads_ir(compiler[0]) if kind in (*SUFFIXES, LANGUAGE) else True

    def _language(self, cmd: CompileCommand) -> str:
        return LANGUAGE

    def visibility(self, base: Sequence[str]) -> str:
        return "default"  # IR itself says what is hidden, whatever the command line says

    def disassemblers(self, base: Sequence[str]) -> list[tuple[str, ...]]:
        kept = join(own_library_items(self.table.split(base[1:])))
        itself = (base[0], *kept, "-w", "-Xclang", "-disable-llvm-passes", "-S", "-emit-llvm")
        # clang starts itself again for each file. LLVM's own tool reads all files in one process,
        # but stops at the first that it cannot read.
        beside = str(Path(base[0]).resolve().parent / "llvm-dis")
        return [(beside,), itself] if lookup.is_program(beside) else [itself]


def reads_ir(compiler: str) -> bool:
    """Return whether a driver compiles LLVM IR, as clang does and gcc does not. The driver is
    run for this, without compiling anything. If it does not exist, its name decides."""
    if not lookup.is_program(compiler):
        return "clang" in Path(compiler).name or Path(compiler).name == IRC
    return _takes_ir(str(Path(compiler).resolve()))  # clang and clang++ are one program


@lru_cache(maxsize=64)
def _takes_ir(compiler: str) -> bool:
    return answers.ask((compiler,), ("-###", "-x", LANGUAGE, "-c", "/dev/null", "-o", "/dev/null"))[0] == 0


def irc(env: Mapping[str, str]) -> str | None:
    """Return lazyck-irc from PATH, or from the directory of this Python's programs."""
    beside = str(Path(sys.executable).parent / IRC)
    return lookup.which(IRC, env) or (beside if lookup.is_program(beside) else None)


def _irc_check(program: str | None, env: Mapping[str, str]) -> Requirement:
    """Check whether lazyck's own IR compiler works, which is needed only if clang is missing."""
    name = "lazyck-irc"
    if program is None:
        return Requirement(name, RequirementState.NOTE, "not on PATH: only needed where clang is missing", _PIP)
    try:
        shown = proc.run([program, "--version"], env=env, timeout=60)
    except ToolchainError as e:
        return Requirement(name, RequirementState.NOTE, e.message, _PIP)
    if shown.status != 0:
        return Requirement(
            name, RequirementState.NOTE, "llvmlite is not installed: only needed where clang is missing", _PIP
        )
    return Requirement(name, RequirementState.OK, f"{program} ({', '.join(shown.stdout.strip().splitlines())})")


LLVM = LlvmToolchain()
