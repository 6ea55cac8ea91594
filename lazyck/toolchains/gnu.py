"""Drivers that speak the language of gcc: gcc and clang themselves, and hipcc, which is clang."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from lazyck import abi
from lazyck.command import LinkCommand
from lazyck.toolchains.base import Toolchain, accepts
from lazyck.toolchains.options import Item, Mode, OptionTable, Role, Rule, join

E, S, P = Mode.EXACT, Mode.SEPARATE, Mode.PREFIX

# Options whose value names a header, a directory of headers or another file that compiling reads.
_PATHS = (
    "-I -isystem -iquote -idirafter -include -imacros -isysroot -iprefix -iwithprefix -iwithprefixbefore -imultilib "
    "-cxx-isystem -iframework -F -include-pch -ivfsoverlay -isystem-after --sysroot -B "
    "--include-directory --include-directory-after --include --imacros"
)
PATHS = tuple(_PATHS.split())
# those that the shim follows when it looks for headers
_INCLUDES = {
    "-I": Role.INCLUDE,
    "--include-directory": Role.INCLUDE,
    "-iquote": Role.INCLUDE_QUOTED,
    "-isystem": Role.INCLUDE_SYSTEM,
    "-cxx-isystem": Role.INCLUDE_SYSTEM,
    "-isystem-after": Role.INCLUDE_AFTER,
    "-idirafter": Role.INCLUDE_AFTER,
    "--include-directory-after": Role.INCLUDE_AFTER,
    "-include": Role.INCLUDE_FILE,
    "--include": Role.INCLUDE_FILE,
    "-imacros": Role.INCLUDE_FILE,
    "--imacros": Role.INCLUDE_FILE,
}
_SEPARATE = (
    "-D -U -A -u -z -T -e -h -G -arch -framework -weak_framework -Xclang -Xpreprocessor "
    "-Xassembler -mllvm -Xcuda-ptxas -Xcuda-fatbinary -Xopenmp-target -Xoffload-linker -Xthinlto -Xarch_device "
    "-Xarch_host -Xanalyzer -aux-info -dumpbase -dumpbase-ext -dumpdir --param -Tbss -Tdata -Ttext -rpath -soname "
    "-gcc-toolchain -resource-dir -serialize-diagnostics --serialize-diagnostics -MJ "
    "--define-macro --undefine-macro -stdlib++-isystem -ccc-gcc-name -ccc-install-dir "
    "-dynamic-linker --dynamic-linker -imultiarch -bundle_loader -install_name"
)
_QUERIES = (
    "--version --help --target-help -dumpversion -dumpfullversion -dumpmachine -dumpspecs -print-search-dirs "
    "-print-libgcc-file-name -print-multi-directory -print-multi-lib -print-multi-os-directory -print-sysroot "
    "-print-resource-dir -print-target-triple -print-effective-triple -print-targets -print-supported-cpus "
    "-print-runtime-dir -print-rocm-search-dirs -print-multiarch -print-multi-flags -print-sysroot-headers-suffix "
    "--print-search-dirs --print-libgcc-file-name --print-multi-directory --print-resource-dir --print-targets "
    "--print-target-triple --print-supported-cpus --print-sysroot --help-hidden --autocomplete "
    # hipcc's own
    "--short-version --cxxflags --ldflags"
)
# (texts, reason): the real compiler runs whether or not it is a compile
_REFUSED = (
    ("-E --preprocess", "preprocess"),
    ("-S --assemble", "assembly"),
    ("-M -MM --dependencies --user-dependencies", "dependencies"),
    ("-fsyntax-only", "syntax-only"),
    ("-###", "dry-run"),
    (
        "-emit-ast --analyze --precompile -rewrite-objc -verify-pch -extract-api --genco --emit-static-lib",
        "other-output",
    ),
    ("-cc1 -cc1as -cc1gen-reproducer", "unsupported-option"),
    ("--", "unsupported-option"),
    ("-r -Wl,-r -Wl,--relocatable", "relocatable-link"),
)
# the real compiler runs if it is a compile
_REFUSED_COMPILE = (
    ("-emit-llvm", "other-output"),
    (
        "--cuda-device-only --cuda-host-only --offload-device-only --offload-host-only -fembed-bitcode",
        "other-output",
    ),
    ("-fgpu-rdc -fcuda-rdc", "relocatable-device-code"),
    ("-gsplit-dwarf -gsplit-dwarf=split", "split-debug"),
    ("-m32 -mx32 -m16 -miamcu -mabi=ilp32 -mbig-endian", "other-machine"),
)
_DEPEND = (
    (Role.DEPEND, "-MD --write-dependencies"),
    (Role.DEPEND_USER, "-MMD --write-user-dependencies"),
    (Role.DEPEND_PHONY, "-MP"),
)
_REFUSED_COMPILE_SEPARATE = (("-working-directory -wrapper -specs", "unsupported-option"),)


def rules() -> Iterable[Rule]:
    """The table of gcc-like drivers."""
    for text in PATHS:
        role = _INCLUDES.get(text, Role.FLAG)
        yield Rule(text, S, role)
        yield Rule(text + "=" if text.startswith("--") else text, P, role)
    for text in _SEPARATE.split():
        yield Rule(text, S)
    for text in ("-D", "-U", "-MJ", "-T"):
        yield Rule(text, P)
    for text in _QUERIES.split():
        yield Rule(text, E, Role.REFUSE, "query")
    for text in ("--help=", "-print-file-name=", "-print-prog-name=", "--print-file-name=", "--print-prog-name="):
        yield Rule(text, P, Role.REFUSE, "query")
    for table, role in ((_REFUSED, Role.REFUSE), (_REFUSED_COMPILE, Role.REFUSE_COMPILE)):
        for texts, reason in table:
            yield from (Rule(text, E, role, reason) for text in texts.split())
    for texts, reason in _REFUSED_COMPILE_SEPARATE:
        for text in texts.split():
            yield Rule(text, S, Role.REFUSE_COMPILE, reason)
            yield Rule(text + "=", P, Role.REFUSE_COMPILE, reason)
    yield from (Rule(text, E, Role.COMPILE) for text in ("-c", "--compile"))
    yield from (Rule(text, S, Role.OUTPUT) for text in ("-o", "--output"))
    yield from (Rule(text, P, Role.OUTPUT) for text in ("-o", "--output="))
    yield from (Rule(text, S, Role.LANGUAGE) for text in ("-x", "--language"))
    yield from (Rule(text, P, Role.LANGUAGE) for text in ("-x", "--language="))
    for role, texts in _DEPEND:
        yield from (Rule(text, E, role) for text in texts.split())
    yield Rule("-MG", E, Role.REFUSE_COMPILE, "dependencies")  # goes with -M only: the compiler says so
    for text, role in (("-MF", Role.DEPEND_FILE), ("-MT", Role.DEPEND_TARGET), ("-MQ", Role.DEPEND_QUOTED)):
        yield Rule(text, S, role)
        yield Rule(text, P, role)
    yield Rule("-Wp,-MD,", P, Role.DEPEND_WORDS)
    yield Rule("-Wp,-MMD,", P, Role.DEPEND_WORDS_USER)
    # options that begin like -l, -L, -x, -o without being them
    yield from (Rule(text, P) for text in ("-objcmt-", "-object"))
    for text, role in (("-l", Role.LIBRARY), ("-L", Role.LIBRARY_DIR)):
        yield Rule(text, S, role)
        yield Rule(text, P, role)
    yield Rule("-Wl,", P, Role.LINKER)
    yield Rule("-Xlinker", S, Role.LINKER)
    yield Rule("-static", E, Role.STATIC)
    yield from (Rule(text, S, Role.TARGET) for text in ("-target", "--target"))
    yield Rule("--target=", P, Role.TARGET)


TABLE = OptionTable(rules())
DEPEND_FLAGS = frozenset({"-MG", "-MV"})
SAVE_TEMPS = frozenset({"-save-temps", "--save-temps", "-aux-info", "-dumpbase", "-dumpbase-ext", "-dumpdir", "-MJ"})
SOURCES = (".c", ".cc", ".cp", ".cpp", ".cxx", ".c++", ".C", ".CC", ".CPP", ".cu", ".hip")
LANGUAGES: Mapping[str, str] = {"c": "", "c++": "", "none": ""}


def own_library_items(items: Iterable[Item]) -> list[Item]:
    """Without what would hide a blob's functions from `dlsym`, or make its object something else than code."""
    hiding = ("-fvisibility", "-fvisibility-inlines-hidden", "-fvisibility-ms-compat", "-flto", "-fwhole-program")
    gone = (*hiding, "-flto-jobs", "-ffat-lto-objects", "-fwhole-program-vtables", "-foffload-lto")
    return [i for i in items if i.name not in gone]


class GnuToolchain(Toolchain):
    """What gcc-like drivers share."""

    table = TABLE
    path_options = frozenset(PATHS)
    source_suffixes: tuple[str, ...] = SOURCES
    languages: ClassVar[Mapping[str, str]] = LANGUAGES
    flag_env: tuple[str, ...] = (
        "CPATH",
        "C_INCLUDE_PATH",
        "CPLUS_INCLUDE_PATH",
        "OBJC_INCLUDE_PATH",
        "CCC_OVERRIDE_OPTIONS",
        "COMPILER_PATH",
        "GCC_EXEC_PREFIX",
        "LIBRARY_PATH",
        "SOURCE_DATE_EPOCH",
    )
    _dropped = DEPEND_FLAGS | SAVE_TEMPS
    _host_flags: tuple[str, ...] = ()

    def host_preprocess_command(
        self,
        base: Sequence[str],
        source: str,
        output: str,
        archs: Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> tuple[str, ...]:
        return (*base, *self._host_only(base), "-w", "-E", source, "-o", output)

    def host_compile(self, base: Sequence[str], source: str, output: str, archs: Sequence[str]) -> tuple[str, ...]:
        # -flto would leave no symbols to read, sanitizers would only cost time
        kept = own_library_items(self.table.split(base[1:]))
        return (base[0], *join(kept), *self._host_only(base), "-O0", "-g0", "-w", "-c", source, "-o", output)

    def _host_only(self, base: Sequence[str]) -> tuple[str, ...]:
        return ()

    def recipe_words(self, base: Sequence[str]) -> tuple[str, ...]:
        kept = own_library_items(self.table.split(base[1:]))
        return (base[0], *join(kept), "-fPIC", *self._unique_flags(base))

    def _unique_flags(self, base: Sequence[str]) -> tuple[str, ...]:
        """What keeps statics of templates from being one for all libraries of a process."""
        flag = "-fno-gnu-unique"
        return (flag,) if accepts((base[0],), (flag,), "c++") else ()

    def link_words(self, base: Sequence[str], link: LinkCommand) -> tuple[str, ...]:
        kept = []
        for item in self.table.split(base[1:]):
            if not _is_for_compiling_only(item):
                kept.append(item)
        return (
            base[0],
            *join(own_library_items(kept)),
            "-fPIC",
            "-shared",
            *self._link_flags(base),
            "-Wl,-Bsymbolic",
            "-o",
            abi.PH_OUTPUT,
            abi.PH_INPUT,
            "-Wl,--no-as-needed",
            abi.PH_LIBRARY,
        )

    def _link_flags(self, base: Sequence[str]) -> tuple[str, ...]:
        return ()


_COMPILE_ONLY = (frozenset(PATHS) - {"-B", "--sysroot", "-isysroot"}) | {
    "-D",
    "-U",
    "-A",
    "-x",
    "--language",
    "-Xclang",
    "-Xpreprocessor",
    "-Xassembler",
    "-Xarch_device",
    "-Xarch_host",
    "-mllvm",
    "-std",
    "-nostdinc",
    "-nostdinc++",
    "-pedantic",
    "-pedantic-errors",
    "-w",
    "-ftemplate-depth",
    "-fconstexpr-depth",
    "--param",
    "-static",
    "-shared",
    "-pie",
    "-fpie",
    "-fPIE",
    "-no-pie",
}


def _is_for_compiling_only(item: Item) -> bool:
    """Whether a link has no use for `item`; `-x hip` above all would make it compile the library as a source."""
    if item.name in _COMPILE_ONLY:
        return True
    word = item.words[0]
    return word.startswith("-W") and not word.startswith("-Wl,")
