"""Describe drivers with gcc's options: gcc and clang themselves, and hipcc, which is clang."""

import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import ClassVar

from lazyck import abi, proc
from lazyck.abi import Role
from lazyck.toolchains.base import SourceCompile, Toolchain, accepts
from lazyck.toolchains.command import CompileCommand, LinkCommand
from lazyck.toolchains.gnu_options import PATHS, ROWS
from lazyck.toolchains.options import CommandItem, OptionTable, join

TABLE = OptionTable(ROWS)
SOURCES = (".c", ".cc", ".cp", ".cpp", ".cxx", ".c++", ".C", ".CC", ".CPP", ".cu", ".hip")
MODULES = (".cppm", ".ccm", ".cxxm", ".c++m", ".ixx", ".mpp", ".mxx")


def own_library_items(items: Iterable[CommandItem]) -> list[CommandItem]:
    """Drop options that would hide a blob's functions from `dlsym`, or make its object contain
    something other than code."""
    hiding = ("-fvisibility", "-fvisibility-inlines-hidden", "-flto", "-fwhole-program")
    gone = (*hiding, "-flto-jobs", "-ffat-lto-objects", "-fwhole-program-vtables", "-foffload-lto")
    return [i for i in items if i.name not in gone]


_CONFIGURATION = "Configuration file: "  # clang names those beside itself so
# Options that begin so do not change which programs a driver starts.
_SAME_PROGRAMS = ("-D", "-U", "-I", "-O", "-std=", "-g", "-m")


@lru_cache(maxsize=64)
def driver_programs(words: tuple[str, ...], language: str, env: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    """Return the programs that a driver of gcc's options starts to compile and link, the driver
    first, and the files of its own that it and these read, as `-###` shows them. `words` are the
    driver and its options."""
    how, found = dict(env), [words[0]]
    for line in driver_says(words, language, env):
        found += [line[len(_CONFIGURATION) :]] if line.startswith(_CONFIGURATION) else []
        first, *rest = command_words(line) or [""]
        found += [os.path.normpath(first) if "/" in first else first, *own_inputs(rest)]
    if any(os.path.basename(program) == "collect2" for program in found):  # which starts the linker
        chosen = next((w.removeprefix("-fuse-ld=") for w in reversed(words) if w.startswith("-fuse-ld=")), "")
        name = f"ld.{chosen}" if chosen else "ld"
        found.append(proc.run([*words, f"-print-prog-name={name}"], env=how).stdout.strip())
    return tuple(p for p in dict.fromkeys(found) if os.path.isfile(p) or proc.find_program(p, how))


@lru_cache(maxsize=64)
def driver_says(words: tuple[str, ...], language: str, env: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    """Return the lines with which a driver says what it would start; () if it fails."""
    shown = proc.run([*words, "-###", "-shared", "-x", language, "/dev/null", "-o", "/dev/null"], env=dict(env))
    return tuple(shown.stderr.splitlines()) if shown.status == 0 else ()


def command_words(line: str) -> list[str]:
    """Return the words of a command that a driver shows, or none for a line that is not one."""
    try:
        return shlex.split(line) if line.startswith(" ") else []
    except ValueError:
        return []


def drops_libraries(driver: tuple[str, ...], env: Mapping[str, str]) -> bool:
    """Return whether a driver by itself has the linker drop libraries that nothing before them
    needs. One that does not tell is taken to."""
    lines = driver_says(driver, "c", tuple(sorted(env.items())))
    words = next(filter(None, map(command_words, reversed(lines))), [])
    first = next((i for i, word in enumerate(words) if word.endswith(".o")), len(words))
    return not words or "--as-needed" in words[:first]


def own_inputs(words: Iterable[str]) -> list[str]:
    """Return the files with code that the driver itself gives to a program: start files, and
    libraries for devices."""
    given = (os.path.normpath(w.rpartition("=")[2]) for w in words if w.endswith((".o", ".bc")))
    return [path for path in given if os.path.isabs(path) and os.path.isfile(path)]


class GnuToolchain(Toolchain):
    table = TABLE
    path_options = frozenset(PATHS)
    source_suffixes: tuple[str, ...] = SOURCES
    languages: ClassVar[Mapping[str, str]] = {"c": "", "c++": "", "none": "", "c++-module": "!" + abi.WHY_MODULES}
    flag_env: tuple[str, ...] = (
        *Toolchain.header_env,
        "CCC_OVERRIDE_OPTIONS",
        "CLANG_NO_DEFAULT_CONFIG",
        "COMPILER_PATH",
        "GCC_EXEC_PREFIX",
        "LIBRARY_PATH",
        "SOURCE_DATE_EPOCH",
    )
    own_archives = frozenset({"libgcc.a", "libgcc_eh.a"})
    _dropped = frozenset({"-dumpbase", "-dumpbase-ext", "-dumpdir"})

    def host_preprocess_command(self, job: SourceCompile) -> tuple[str, ...]:
        return (*job.base, *self.host_only, "-w", "-E", job.source, "-o", job.output)

    def dependencies(self, job: SourceCompile) -> list[tuple[str, ...]]:
        return [(*job.base, *self.host_only, "-w", "-M", "-MG", "-MF", job.output, job.source)]

    def host_compile(self, job: SourceCompile, *, is_settling: bool = False) -> tuple[str, ...]:
        # -flto would leave no symbols to read, and sanitizers would only take time.
        kept = own_library_items(self.table.split(job.base[1:]))
        protecting = ("-fvisibility=protected",) if self.visibility(job.base) != "default" else ()
        flags = ("-fPIC",) if is_settling else ("-O0", "-g0")
        to = ("-w", "-c", job.source, "-o", job.output)
        return (job.base[0], *join(kept), *self.host_only, *protecting, *flags, *to)

    def programs(self, cmd: CompileCommand, env: Mapping[str, str]) -> tuple[str, ...]:
        return driver_programs(self._asked(cmd), self._language(cmd), tuple(sorted(env.items())))

    def _asked(self, cmd: CompileCommand) -> tuple[str, ...]:
        """Return the compiler of `cmd` and the options that may decide which programs it starts."""
        words, prefix = self.base_words(cmd), cmd.call.prefix
        items = (i for i in self.table.split(words[prefix:]) if i.role is not Role.LANGUAGE)
        return (*words[:prefix], *join(i for i in items if not i.words[0].startswith(_SAME_PROGRAMS)))

    def _language(self, cmd: CompileCommand) -> str:
        return "c" if self.is_c(cmd) else "c++"

    def all_errors(self, compiler: tuple[str, ...]) -> tuple[str, ...]:
        flags = ("-ferror-limit=0", "-fmax-errors=0")  # clang's and gcc's
        return next(((f, "-Wno-fatal-errors") for f in flags if accepts(compiler, (f,), "c++")), ())

    def recipe_words(self, base: Sequence[str]) -> tuple[str, ...]:
        items = self.table.split(base[1:])
        kept = own_library_items(items)
        # If the build hides the state of headers in the library, a blob's stays there too. Without
        # this option, gcc shares it across the whole process, but not in what LTO makes.
        flag = "-fno-gnu-unique"
        is_lto = ["-fno-lto", *(i.name for i in items if i.name in ("-flto", "-fno-lto"))][-1] == "-flto"
        is_shared = not (is_lto or self.hides_symbols(base))
        unique = (flag,) if not is_shared and accepts((base[0],), (flag,), "c++") else ()
        return (base[0], *join(kept), "-fPIC", *self._as_built(base, items), *unique, *self._naming_flags(base))

    def _as_built(self, base: Sequence[str], items: Sequence[CommandItem]) -> tuple[str, ...]:
        """Return options that let the compiler predefine beside `-fPIC` what it does with the
        options `items`."""
        return ()

    def _naming_flags(self, base: Sequence[str]) -> tuple[str, ...]:
        """Return options from which the compiler makes names that it would else make of the
        source's path, its process or the time."""
        return ()

    def link_words(self, base: Sequence[str], link: LinkCommand) -> tuple[str, ...]:
        kept = filter(is_for_links, self.table.split(base[1:]))
        own = ("-fPIC", "-shared", *self._link_flags(base), "-o", abi.PH_OUTPUT, abi.PH_INPUT)
        return (base[0], *join(kept), *own)

    def _link_flags(self, base: Sequence[str]) -> tuple[str, ...]:
        return ()


# What a blob's link has of its compile's options: those that choose machine, toolchain or
# libraries. Compiles ignore words for linkers, and the link by a driver that gets `-ffast-math` or
# `-mdaz-ftz` changes how the program computes, by one that gets `-mandroid` which libraries it has.
_FOR_LINKS = re.compile(
    r"--?(?:target|sysroot|isysroot|gcc-toolchain|gcc-install-dir|gcc-triple|stdlib|rtlib|unwindlib|resource-dir"
    r"|driver-mode|rocm-path|hip-path|cuda-path|fuse-ld|f(?:no-)?sanitize[\w-]*|fopen(?:mp|acc)[\w-]*|fgnu-tm|fsplit-stack"
    r"|pthreads?|m(?:64|abi|arch|arm|cmodel|cpu|float-abi|fpu|thumb|tune|little-endian|(?:no-)?fix-[\w-]*))"
)


def is_for_links(item: CommandItem) -> bool:
    """Return whether a blob's link has the option `item` of its compile."""
    return _FOR_LINKS.fullmatch(item.name) is not None
