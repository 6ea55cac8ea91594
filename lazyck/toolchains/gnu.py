"""Describe drivers with gcc's options: gcc and clang themselves, and hipcc, which is clang."""

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from lazyck import abi
from lazyck.abi import Role
from lazyck.toolchains.base import SourceCompile, Toolchain, accepts
from lazyck.toolchains.command import LinkCommand
from lazyck.toolchains.options import CommandItem, E, OptionTable, P, S, join

# Options whose value names a header, a directory of headers or another file that compiling reads.
# The shim follows those that have a role of their own when it looks for headers.
_PATHS = {
    Role.INCLUDE: "-I --include-directory",
    Role.INCLUDE_QUOTED: "-iquote",
    Role.INCLUDE_SYSTEM: "-isystem -cxx-isystem",
    Role.INCLUDE_AFTER: "-isystem-after -idirafter --include-directory-after",
    Role.INCLUDE_FILE: "-include --include -imacros --imacros",
    Role.FLAG: "-isysroot --sysroot -B -imultilib",  # where the compiler has headers itself
    Role.INCLUDE_OTHER: "-iprefix -iwithprefix -iwithprefixbefore -iframework -F -include-pch -ivfsoverlay",
}
PATHS = tuple(" ".join(_PATHS.values()).split())
_SEPARATE = (
    "-D -U -A -u -z -T -e -h -G -arch -framework -weak_framework "
    "-Xassembler -mllvm -Xcuda-ptxas -Xcuda-fatbinary -Xopenmp-target -Xoffload-linker -Xthinlto "
    "-Xanalyzer -aux-info -dumpbase -dumpbase-ext -dumpdir --param -Tbss -Tdata -Ttext -rpath -soname "
    "-gcc-toolchain -resource-dir -serialize-diagnostics --serialize-diagnostics -MJ "
    "--define-macro --undefine-macro -ccc-gcc-name -ccc-install-dir "
    "-dynamic-linker --dynamic-linker -imultiarch -bundle_loader -install_name"
)
_QUERIES = (
    "--version --help --target-help -dumpversion -dumpfullversion -dumpmachine -dumpspecs -print-search-dirs "
    "-print-libgcc-file-name -print-multi-directory -print-multi-lib -print-multi-os-directory -print-sysroot "
    "-print-resource-dir -print-target-triple -print-effective-triple -print-targets -print-supported-cpus "
    "-print-runtime-dir -print-rocm-search-dirs -print-multiarch -print-multi-flags -print-sysroot-headers-suffix "
    "--print-search-dirs --print-libgcc-file-name --print-multi-directory --print-resource-dir --print-targets "
    "--print-target-triple --print-supported-cpus --print-sysroot --help-hidden --autocomplete "
    # options of hipcc itself
    "--short-version --cxxflags --ldflags"
)
# Counters and notes are written beside the object, and profiles are found by its name.
PROFILING = (
    "--coverage -coverage -fcoverage-mapping -fcondition-coverage -ftest-coverage -fprofile-arcs -fprofile-generate "
    "-fcs-profile-generate -fprofile-use -fprofile-instr-generate -fprofile-instr-use -fprofile-sample-use "
    "-fauto-profile -fbranch-probabilities -fprofile-values -fvpt"
)
_PROFILING_VALUES = (
    "-fprofile-generate= -fcs-profile-generate= -fprofile-use= -fprofile-instr-generate= -fprofile-instr-use= "
    "-fprofile-sample-use= -fauto-profile= -fprofile-list="
)
_MODULE_OPTIONS = (
    "-fmodules -fmodules-ts -fcxx-modules -fmodule-only -fmodule-header -fmodule-output -fmodule-lazy "
    "-fimplicit-modules -fimplicit-module-maps -fbuiltin-module-map"
)
_MODULE_VALUES = (
    "-fmodule-file= -fmodule-header= -fmodule-output= -fmodule-mapper= -fmodule-map-file= -fprebuilt-module-path= "
    "-fmodule-name="
)
_VALUES = (
    (Role.DEPEND_FILE, "-MF"), (Role.DEPEND_TARGET, "-MT"), (Role.DEPEND_QUOTED, "-MQ"), (Role.LIBRARY, "-l"),
    (Role.LIBRARY_DIR, "-L"),
)  # fmt: skip
_ROWS = (
    # The real compiler runs whether or not these are options of a compile.
    (E, Role.REFUSE, _QUERIES, abi.WHY_QUERY),
    (P, Role.REFUSE, "--help= -print-file-name= -print-prog-name=", abi.WHY_QUERY),
    (P, Role.REFUSE, "--print-file-name= --print-prog-name=", abi.WHY_QUERY),
    (E, Role.REFUSE, "-E --preprocess", abi.WHY_PREPROCESS),
    (E, Role.REFUSE, "-S --assemble", abi.WHY_ASSEMBLY),
    (E, Role.REFUSE, "-M -MM --dependencies --user-dependencies", abi.WHY_DEPENDENCIES),
    (E, Role.REFUSE, "-fsyntax-only", abi.WHY_SYNTAX_ONLY),
    (E, Role.REFUSE, "-###", abi.WHY_DRY_RUN),
    (E, Role.REFUSE, "-emit-ast --analyze --precompile -rewrite-objc -verify-pch -extract-api", abi.WHY_OTHER_OUTPUT),
    (E, Role.REFUSE, "--genco --emit-static-lib", abi.WHY_OTHER_OUTPUT),
    (E, Role.REFUSE, "-cc1 -cc1as -cc1gen-reproducer --", abi.WHY_UNSUPPORTED_OPTION),
    (E, Role.REFUSE, "-r -Wl,-r -Wl,--relocatable", abi.WHY_RELOCATABLE_LINK),
    # The real compiler runs if it is a compile.
    (E, Role.REFUSE_COMPILE, PROFILING, abi.WHY_PROFILING),
    (P, Role.REFUSE_COMPILE, _PROFILING_VALUES, abi.WHY_PROFILING),
    (E, Role.REFUSE_COMPILE, _MODULE_OPTIONS, abi.WHY_MODULES),
    (P, Role.REFUSE_COMPILE, _MODULE_VALUES, abi.WHY_MODULES),
    (E, Role.REFUSE_COMPILE, "-emit-llvm --cuda-device-only --cuda-host-only", abi.WHY_OTHER_OUTPUT),
    (E, Role.REFUSE_COMPILE, "--offload-device-only --offload-host-only -fembed-bitcode", abi.WHY_OTHER_OUTPUT),
    (E, Role.REFUSE_COMPILE, "-fgpu-rdc -fcuda-rdc", abi.WHY_RELOCATABLE_DEVICE_CODE),
    (E, Role.REFUSE_COMPILE, "-gsplit-dwarf -gsplit-dwarf=split", abi.WHY_SPLIT_DEBUG),
    (E, Role.REFUSE_COMPILE, "-m32 -mx32 -m16 -miamcu -mabi=ilp32 -mbig-endian", abi.WHY_OTHER_MACHINE),
    (S, Role.REFUSE_COMPILE, "-working-directory -wrapper -specs", abi.WHY_UNSUPPORTED_OPTION),
    (P, Role.REFUSE_COMPILE, "-working-directory= -wrapper= -specs=", abi.WHY_UNSUPPORTED_OPTION),
    (E, Role.REFUSE_COMPILE, "-MG", abi.WHY_DEPENDENCIES),  # the compiler reports an error unless -M is there too
    (P, Role.FLAG, "-D -U -MJ -T -objcmt- -object", ""),  # the last two begin like -o
    (E, Role.COMPILE, "-c --compile", ""),
    (S, Role.OUTPUT, "-o --output", ""),
    (P, Role.OUTPUT, "-o --output=", ""),
    (S, Role.LANGUAGE, "-x --language", ""),
    (P, Role.LANGUAGE, "-x --language=", ""),
    (E, Role.DEPEND, "-MD --write-dependencies", ""),
    (E, Role.DEPEND_USER, "-MMD --write-user-dependencies", ""),
    (E, Role.DEPEND_PHONY, "-MP", ""),
    *((mode, role, text, "") for role, text in _VALUES for mode in (S, P)),
    (P, Role.DEPEND_WORDS, "-Wp,-MD,", ""),
    (P, Role.DEPEND_WORDS_USER, "-Wp,-MMD,", ""),
    (P, Role.INCLUDE_OTHER, "-Wp,", ""),
    (P, Role.LINKER, "-Wl,", ""),
    (S, Role.LINKER, "-Xlinker", ""),
    (E, Role.STATIC, "-static", ""),
    (S, Role.TARGET, "-target --target", ""),
    (P, Role.TARGET, "--target=", ""),
    *((S, role, texts, "") for role, texts in _PATHS.items()),
    *(
        (P, role, f"{text}=" if text.startswith("--") else text, "")
        for role, texts in _PATHS.items()
        for text in texts.split()
    ),
    (S, Role.INCLUDE_SYSTEM, "-stdlib++-isystem", ""),
    # The value is an option of another compiler, or of a part of this one.
    (S, Role.INCLUDE_OTHER, "-Xclang -Xpreprocessor -Xarch_device -Xarch_host", ""),
    (S, Role.FLAG, _SEPARATE, ""),
)
TABLE = OptionTable(_ROWS)
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
    _dropped = frozenset({
        "-MG", "-MV", "-save-temps", "--save-temps", "-aux-info", "-dumpbase", "-dumpbase-ext", "-dumpdir", "-MJ",
    })  # fmt: skip

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
_COMPILE_ONLY = (frozenset(PATHS) - {"-B", "--sysroot", "-isysroot"}) | frozenset(_OF_SOURCES.split())


def _is_for_compiling_only(item: CommandItem) -> bool:
    """Return whether a link has no use for `item`: `-x hip` would make it compile the library."""
    if item.name in _COMPILE_ONLY:
        return True
    word = item.words[0]
    return word.startswith("-W") and not word.startswith("-Wl,")
