"""Describe the host's C and C++ compilers: gcc and clang, under any name on PATH."""

import os
import platform
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import ClassVar

from lazyck import abi, proc
from lazyck.errors import ToolchainError
from lazyck.toolchains import answers, host_text, listed, llvm, lookup
from lazyck.toolchains.base import Found, SourceCompile, TextCompile, accepts, machine_for, target, unknown_ones
from lazyck.toolchains.command import CompileCommand
from lazyck.toolchains.gnu import MODULES, SOURCES, GnuToolchain, command_words, driver_says
from lazyck.toolchains.options import CommandItem
from lazyck.toolchains.requirement import Requirement, RequirementState, try_out

_POSITION = re.compile(r"-f(?:no-)?(?:pic|PIC|pie|PIE)")  # whether code may lie anywhere
_TEMPORARY = re.compile(r"/tmp/(?:cc\w{6}|null-\w+)")
_LINKERS = ("ld", "ld.gold", "ld.lld", "ld.mold")
_TRIAL = """#include <filesystem>
#include <mutex>
#include <string_view>
std::once_flag once;
bool exists(std::string_view path) { std::call_once(once, [] {}); return std::filesystem::exists(path); }
"""


# What decides no commands, but how they are shown or what they write.
_QUIET = {"LC_ALL": "C", "TMPDIR": "/tmp", "SOURCE_DATE_EPOCH": "0"}


def _commands(lines: Iterable[str]) -> Iterator[str]:
    """Yield the words of the commands in what a driver says, without those for temporary files,
    directories of libraries and the present directory."""
    for word in chain.from_iterable(map(command_words, lines)):
        if not word.startswith(("-L", "-fdiagnostics-", "-fcolor-diagnostics")):
            yield _TEMPORARY.sub("", word.partition("-compilation-dir=")[0])


def _told(words: Sequence[str], env: Mapping[str, str], cwd: str, source: str, output: str) -> list[str]:
    """Return what a compiler says it would start to compile `source` in the directory `cwd`,
    without the places and names of the files, or nothing if it fails."""
    shown = proc.run([*words, source, "-o", output], cwd=cwd, env={**env, **_QUIET})
    said = list(_commands(shown.stderr.splitlines())) if shown.status == 0 else []
    names = {source, output, os.path.basename(source), Path(source).stem}
    dumps = {i + k for i, word in enumerate(said) if word == "-dumpdir" for k in (0, 1)}
    return [word for i, word in enumerate(said) if word not in names and i not in dumps]


class HostToolchain(GnuToolchain):
    """`c++` and its kin. A blob is plain C++ and has no arch but the machine's."""

    name = "host"
    searched = "CXX, and c++, g++, clang++ on PATH"
    tools = ("c++", "g++", "clang++", "cc", "gcc", "clang", "amdclang++", "amdclang")
    install: ClassVar[Mapping[str, str]] = {
        "apt": "apt install g++",
        "dnf": "dnf install gcc-c++",
        "zypper": "zypper install gcc-c++",
        "pacman": "pacman -S gcc",
        "apk": "apk add g++",
    }
    default_arch = platform.machine()
    # CUDAHOSTCXX is nvcc's host compiler, with which CMake links CUDA targets.
    compiler_env = ("CXX", "CC", "CUDAHOSTCXX")
    # clang itself compiles HIP and LLVM IR; such a blob follows the recipes of rocm or llvm. There
    # are none for CUDA compiled by clang.
    languages: ClassVar[Mapping[str, str]] = {
        **GnuToolchain.languages,
        "hip": "rocm",
        "cuda": "!" + abi.WHY_CUDA_BY_CLANG,
        llvm.LANGUAGE: "llvm",
    }
    source_suffixes = (*SOURCES, *llvm.SUFFIXES, *MODULES)
    foreign_suffixes: ClassVar[Mapping[str, str]] = {
        ".hip": "rocm",
        ".cu": "!" + abi.WHY_CUDA_BY_CLANG,
        **dict.fromkeys(llvm.SUFFIXES, "llvm"),
        **dict.fromkeys(MODULES, "!" + abi.WHY_MODULES),
    }

    def text_compile(self, job: SourceCompile, *, is_c: bool) -> TextCompile | None:
        *words, compile_only, source, to, output = self.host_compile(job)
        more = (*self.all_errors(job.base[:1]), *host_text.fewer_collections(job.base[:1]))
        return TextCompile((*words, *more, compile_only, *host_text.language(is_c=is_c), source, to, output))

    def _as_built(self, base: Sequence[str], items: Sequence[CommandItem]) -> tuple[str, ...]:
        given = [i.name for i in items if _POSITION.fullmatch(i.name)]
        if given[-1:] == ["-fPIC"]:
            return ()
        status, said = answers.ask((base[0], *given), ("-dM", "-E", "-x", "c", "/dev/null"))
        if status != 0 or "#define" not in said:
            return ()
        built = dict(re.findall(r"#define (__(?:pic|PIC|pie|PIE)__) (\d)", said))
        now = {"__pic__": "2", "__PIC__": "2"}
        names = [name for name in (*now, "__pie__", "__PIE__") if built.get(name) != now.get(name)]
        changed = [(f"-U{name}", *([f"-D{name}={built[name]}"] if name in built else [])) for name in names]
        return tuple(word for words in changed for word in words)

    def _naming_flags(self, base: Sequence[str]) -> tuple[str, ...]:
        seed = f"-frandom-seed={abi.PH_NAME}"
        return (seed,) if accepts((base[0],), (seed,), "c++") else ()

    def steps(self, cmd: CompileCommand, env: Mapping[str, str]) -> tuple[str, ...] | None:
        is_script = not lookup.is_binary(cmd.call.argv[cmd.call.prefix - 1])
        if not is_script and not any(name in self.search_env for name, _ in self.base_env(cmd)):
            return ()
        lines = driver_says(self._asked(cmd), self._language(cmd), tuple(sorted({**env, **_QUIET}.items())))
        return tuple(_commands(lines)) or None

    def starts_otherwise(self, cmd: CompileCommand, env: Mapping[str, str], closed: Mapping[str, str]) -> bool:
        if lookup.is_binary(cmd.call.argv[cmd.call.prefix - 1]):
            return False
        words = [*self.base_words(cmd), "-###", "-c"]
        with tempfile.TemporaryDirectory() as place:
            other = Path(place, f"other{os.path.splitext(cmd.source)[1]}")
            other.touch()
            spelled = [next((w for w in cmd.call.argv if cmd.call.path(w) == p), p) for p in (cmd.source, cmd.output)]
            built = _told(words, env, cmd.call.cwd, *spelled)
            return not built or built != _told(words, closed, place, str(other), f"{place}/other.o")

    def find(self, env: Mapping[str, str]) -> Found | None:
        words = lookup.compiler_of("CXX", env, self.tools[:3])
        return Found(self, "", words) if words else None

    def find_for(self, machine: str, env: Mapping[str, str], others: Iterable[tuple[str, ...]] = ()) -> tuple[str, ...]:
        """Return a C++ compiler (argv prefix) that makes code for `machine`: the one that `find`
        gives if it does, else the first that does among `others` and the compilers on PATH. Raises
        `ToolchainError`.

        A build's `CXX` may be no compiler, or a script with words of its own, which runs in the
        build's directory alone. Such a one is passed over.
        """
        found = self.find(env)
        is_known = found and lookup.is_compiler(Path(lookup.without_launchers(found.compiler)[0]).name)
        is_wrapper = found and len(found.compiler) == 1 and target(found.compiler)
        first = (found.compiler,) if found and (is_known or is_wrapper) else ()
        named = (*self.tools[:3], f"{machine}-linux-gnu-g++")
        on_path = ((path,) for path in (lookup.which(name, env) for name in named) if path)
        for compiler in chain(first, others, on_path):
            if machine_for(compiler) == machine:
                return compiler
        cross = f"g++-{machine.replace('_', '-')}-linux-gnu"
        package = "g++" if machine == platform.machine() else cross
        raise ToolchainError(
            f"no C++ compiler for {machine} found (looked at {self.searched})",
            f"install one (Debian, Ubuntu: {package}) or set CXX",
        )

    def checks(self, found: Found | None, env: Mapping[str, str]) -> list[Requirement]:
        done = super().checks(found, env)
        if found is None or done[0].state is not RequirementState.OK:
            return done
        argv = [*found.compiler, "-std=c++17", "-shared", "-fPIC", "-pthread", "t.cpp", "-o", "t.so", "-ldl"]
        good = "compiles and links, as lazyck's runtime needs it"
        linkers = [path for name in _LINKERS if (path := lookup.which(name, env))]
        rows = [unknown_ones(Path(path).name, *listed.unknown_linker_options(path)) for path in linkers]
        trial = try_out({"t.cpp": _TRIAL}, [argv], env, good, [("", "C++17 library", self.install)])
        return [*done, *chain(*rows), trial]

    def understands(self, compiler: Sequence[str], kind: str) -> bool:
        return llvm.reads_ir(compiler[0]) if kind in (*llvm.SUFFIXES, llvm.LANGUAGE) else True


HOST = HostToolchain()
