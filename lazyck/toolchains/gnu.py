"""Describe drivers with gcc's options: gcc and clang themselves, and hipcc, which is clang."""

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from lazyck import abi
from lazyck.toolchains.base import SourceCompile, Toolchain, accepts
from lazyck.toolchains.command import LinkCommand
from lazyck.toolchains.gnu_options import PATHS, ROWS
from lazyck.toolchains.options import CommandItem, OptionTable, join

TABLE = OptionTable(ROWS)
SOURCES = (".c", ".cc", ".cp", ".cpp", ".cxx", ".c++", ".C", ".CC", ".CPP", ".cu", ".hip")
MODULES = (".cppm", ".ccm", ".cxxm", ".c++m", ".ixx", ".mpp", ".mxx")


def own_library_items(items: Iterable[CommandItem]) -> list[CommandItem]:
    """Drop options that would hide a blob's functions from `dlsym`, or make its object contain
    something other than code."""
    hiding = ("-fvisibility", "-fvisibility-inlines-hidden", "-fvisibility-ms-compat", "-flto", "-fwhole-program")
    gone = (*hiding, "-flto-jobs", "-ffat-lto-objects", "-fwhole-program-vtables", "-foffload-lto")
    return [i for i in items if i.name not in gone]


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
        protecting = ("-fvisibility=protected",) if self.hides_symbols(job.base) else ()
        flags = ("-fPIC",) if is_settling else ("-O0", "-g0")
        to = ("-w", "-c", job.source, "-o", job.output)
        return (job.base[0], *join(kept), *self.host_only, *protecting, *flags, *to)

    def all_errors(self, compiler: tuple[str, ...]) -> tuple[str, ...]:
        flags = ("-ferror-limit=0", "-fmax-errors=0")  # clang's and gcc's
        return next(((f, "-Wno-fatal-errors") for f in flags if accepts(compiler, (f,), "c++")), ())

    def recipe_words(self, base: Sequence[str]) -> tuple[str, ...]:
        kept = own_library_items(self.table.split(base[1:]))
        # If the build hides the state of headers in the library, a blob's stays there too. Without
        # this option, gcc shares it across the whole process.
        flag = "-fno-gnu-unique"
        unique = (flag,) if self.hides_symbols(base) and accepts((base[0],), (flag,), "c++") else ()
        return (base[0], *join(kept), "-fPIC", *unique, *self._naming_flags(base))

    def _naming_flags(self, base: Sequence[str]) -> tuple[str, ...]:
        """Return options from which the compiler makes names that it would else make of the
        source's path, its process or the time."""
        return ()

    def link_words(self, base: Sequence[str], link: LinkCommand) -> tuple[str, ...]:
        kept = own_library_items(i for i in self.table.split(base[1:]) if not _is_for_compiling_only(i))
        own = ("-fPIC", "-shared", *self._link_flags(base), "-o", abi.PH_OUTPUT, abi.PH_INPUT)
        return (base[0], *join(kept), *own, "-Wl,--no-as-needed", abi.PH_LIBRARY)

    def _link_flags(self, base: Sequence[str]) -> tuple[str, ...]:
        return ()


_OF_SOURCES = (
    "-D -U -A -x --language -Xclang -Xpreprocessor -Xassembler -Xarch_device -Xarch_host -mllvm -std -nostdinc "
    "-nostdinc++ -pedantic -pedantic-errors -w -ftemplate-depth -fconstexpr-depth --param -static -shared -pie -fpie "
    "-fPIE -no-pie"
)
_COMPILE_ONLY = (frozenset(PATHS) - {"--sysroot", "-isysroot"}) | frozenset(_OF_SOURCES.split())


def _is_for_compiling_only(item: CommandItem) -> bool:
    """Return whether a link has no use for `item`: `-x hip` would make it compile the library."""
    if item.name in _COMPILE_ONLY:
        return True
    word = item.words[0]
    return word.startswith("-W") and not word.startswith("-Wl,")
