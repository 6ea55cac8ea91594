"""List the options of gcc, clang and hipcc, which is clang. A compile with an option that has no
row here is not deferred.

A row may be a family: the rules say which words it takes (`abi.Mode`). What an option without a
value, or with a number, means to code is in the words, and these are in the recipe and in the key.
It can neither name a file nor a program, unless a row of its own says so.
"""

from collections.abc import Iterable, Iterator

from lazyck import abi
from lazyck.abi import Mode, Role

E, S, P, F, N = Mode.EXACT, Mode.SEPARATE, Mode.PREFIX, Mode.FAMILY, Mode.NUMERIC
Row = tuple[Mode, Role, str, str]

# Options whose value names a header, a directory of headers or another file that compiling reads.
# The shim follows those that have a role of their own when it looks for headers.
_PATHS = {
    Role.INCLUDE: "-I --include-directory",
    Role.INCLUDE_QUOTED: "-iquote",
    Role.INCLUDE_SYSTEM: "-isystem -cxx-isystem",
    Role.INCLUDE_AFTER: "-isystem-after -idirafter --include-directory-after",
    Role.INCLUDE_FILE: "-include --include -imacros --imacros",
    Role.FLAG: "-isysroot --sysroot -imultilib",  # where the compiler has headers itself
    Role.INCLUDE_OTHER: "-iprefix -iwithprefix -iwithprefixbefore -iframework -F",
}
PATHS = tuple(" ".join(_PATHS.values()).split())
_SEPARATE = (
    "-D -U -A -u -z -T -e -h -G -arch -framework -weak_framework -dumpbase -dumpbase-ext -dumpdir --param "
    "-Tbss -Tdata -Ttext -rpath -soname -gcc-toolchain -resource-dir --define-macro --undefine-macro "
    "-dynamic-linker --dynamic-linker -imultiarch -bundle_loader -install_name -mthread-model -meabi"
)
_QUERIES = (
    "--version --help --target-help -help -dumpversion -dumpfullversion -dumpmachine -dumpspecs -print-search-dirs "
    "-print-libgcc-file-name -print-multi-directory -print-multi-lib -print-multi-os-directory -print-sysroot "
    "-print-resource-dir -print-target-triple -print-effective-triple -print-targets -print-supported-cpus "
    "-print-runtime-dir -print-rocm-search-dirs -print-multiarch -print-multi-flags -print-sysroot-headers-suffix "
    "--print-search-dirs --print-libgcc-file-name --print-multi-directory --print-resource-dir --print-targets "
    "--print-target-triple --print-supported-cpus --print-sysroot --help-hidden --autocomplete "
    # options of hipcc itself
    "--short-version --cxxflags --ldflags"
)
# Counters and notes are written beside the object, and profiles are found by its name.
_PROFILING = (
    "--coverage -coverage -fcoverage-mapping -fcondition-coverage -ftest-coverage -fprofile-arcs -fprofile-generate "
    "-fcs-profile-generate -fprofile-use -fprofile-instr-generate -fprofile-instr-use -fprofile-sample-use "
    "-fauto-profile -fbranch-probabilities -fprofile-values -fvpt -fmemory-profile -fprofile-list -fprofile-dir "
    "-fprofile-note -fprofile-remapping-file -fpseudo-probe-for-profiling"
)
_MODULES = (
    "-fmodule -fcxx-modules -fimplicit-module -fbuiltin-module-map -fprebuilt- -fdeps- -gmodules -Mmodules "
    "-module-file-info"
)
# The compiler writes other files than the object, which a step of the build may read.
_SIDE_OUTPUTS = (
    "-save-temps --save-temps -save-stats -fstack-usage -fcallgraph-info -fdump- -fsave-optimization-record "
    "-foptimization-record-file -ftime-trace -fproc-stat-report -fcompare-debug -gen-reproducer -fthin-link-bitcode "
    "-time= -aux-info= -MJ"
)
_SIDE_OUTPUTS_SEPARATE = (
    "-aux-info -MJ -serialize-diagnostics --serialize-diagnostics -dependency-dot -dependency-file "
    "-gen-cdb-fragment-path -module-dependency-dir"
)
# These load code or configuration that is not in the command line.
_LOADED = "-fplugin= -fpass-plugin= -B -specs= --specs= --config --no-default-config -wrapper= -fplugin-arg-"
_LOADED_SEPARATE = "-B -specs --specs -wrapper -ccc-gcc-name -ccc-install-dir -include-pch -ivfsoverlay -vfsoverlay"
# Blobs are libraries of their own, which are loaded later than the program. Of the models of
# thread-local variables, they can have one.
_AT_START = "-ftls-model= -mcmodel=kernel"
# They fill sections that a library reads as a whole.
_OF_WHOLE_LIBRARIES = "-fpatchable-function-entry= -mrecord-mcount -mrecord-return -fxray-instrument"
# Options of code generation and of messages, whatever their value is: it is a word, not a file.
_VALUED = (
    "-fcf-protection= -fdebug-prefix-map= -ffile-prefix-map= -fmacro-prefix-map= -fprofile-prefix-map= "
    "-fcoverage-prefix-map= -fdebug-compilation-dir= -ffile-compilation-dir= -fdiagnostics-color= "
    "-fdiagnostics-show-location= -fdiagnostics-urls= -fdiagnostics-column-unit= -fdiagnostics-path-format= "
    "-fdiagnostics-escape-format= -fexcess-precision= -fexec-charset= -finput-charset= -fwide-exec-charset= "
    "-ffp-contract= -ffp-model= -ffp-eval-method= -ffp-exception-behavior= -fpermitted-flt-eval-methods= "
    "-fcomplex-arithmetic= -fdenormal-fp-math -fira-algorithm= -fira-region= -flive-patching= -flto= "
    "-flto-partition= -foffload-lto= -fopenmp= -frandom-seed= -freorder-blocks-algorithm= "
    "-fsanitize= -fno-sanitize= -fsanitize-recover= -fno-sanitize-recover= -fsanitize-trap= -fno-sanitize-trap= "
    "-fsimd-cost-model= -fvect-cost-model= -fstack-check= -fstack-reuse= -fstack-limit-symbol= -fsso-struct= "
    "-falign- -ftrivial-auto-var-init= -fvisibility -fzero-call-used-regs= -fzero-init-padding-bits= "
    "-fclang-abi-compat= -fgpu-default-stream= -flax-vector-conversions= -fms-compatibility-version= "
    "-fobjc-runtime= -fshow-overloads= -ftrap-function= -ftrapv-handler= -fuse-ld= -fuse-cuid= -fveclib= "
    "-fbinutils-version= -fc++-abi= -fgnuc-version= -femit-struct-debug-detailed= -femit-dwarf-unwind= "
    "-fbasic-block-sections=all -fbasic-block-sections=none -fstrub= -fcrash-diagnostics="
)
# Words of which nothing but code and messages follows.
_PLAIN = (
    "-ansi --ansi -pedantic -pedantic-errors --pedantic --pedantic-errors -w --no-warnings -v --verbose -pipe "
    "-pthread -pthreads -H --trace-includes -undef -trigraphs --trigraphs -traditional-cpp --traditional-cpp "
    "--all-warnings --extra-warnings "
    "-Qunused-arguments -Qn -Qy -nostdinc -nostdinc++ --no-standard-includes -nobuiltininc -nogpulib -nogpuinc "
    "-nohipwrapperinc -canonical-prefixes -no-canonical-prefixes -no-integrated-cpp -p -pg --profile -s -shared -pie "
    "-no-pie -static-pie -rdynamic -no-hip-rt --hip-link --offload-compress --no-offload-compress "
    "--offload-new-driver --no-offload-new-driver --no-gpu-bundle-output --cuda-compile-host-device "
    "--offload-host-device --cuda-noopt-device-debug --no-cuda-noopt-device-debug --no-cuda-version-check "
    "--cuda-path-ignore-env --hipstdpar --hipstdpar-interpose-alloc --start-no-unused-arguments "
    "--end-no-unused-arguments --verify-debug-info -ftls-model=global-dynamic"
)
# Words that begin so, with any value. An arch, a library's place in a toolchain and a standard are
# in the recipe, with the toolchain's place in place of a path in it.
_FAMILIES = (
    "-W -O --optimize -g --debug -m -std= --std= -stdlib= -rtlib= -unwindlib= -cl- -static-lib "
    "-shared-lib -nostartfiles -nodefaultlibs -nostdlib -nolibc -nopie -parallel-jobs= --param= --define-macro= "
    "--undefine-macro= "
    "--assert= --offload-arch= --no-offload-arch= --cuda-gpu-arch= --no-cuda-gpu-arch= --amdgpu-target= "
    "--offload= --offload-jobs= --offload-compression-level= --gpu-max-threads-per-block= --cuda-feature= "
    "--cuda-include-ptx= --no-cuda-include-ptx= --hip-version= --rocm-path= --hip-path= --rocm-device-lib-path= "
    "--cuda-path= --gcc-toolchain= --gcc-install-dir= --gcc-triple= --driver-mode= -cuid= --system-header-prefix= "
    "--no-system-header-prefix="
)
# They change preprocessed text, by whose line markers the probe tells blobs apart.
_OF_TEXT = (
    "-P -C -CC --comments --comments-in-macros --no-line-commands -fdebug-cpp -fdirectives-only -fuse-line-directives "
    "-fkeep-system-includes -fminimize-whitespace -frewrite-includes -frewrite-imports"
)
_VALUES = (
    (Role.DEPEND_FILE, "-MF"), (Role.DEPEND_TARGET, "-MT"), (Role.DEPEND_QUOTED, "-MQ"), (Role.LIBRARY, "-l"),
    (Role.LIBRARY_DIR, "-L"),
)  # fmt: skip
# Options of clang's compiler proper that its driver has, too.
_CODE = ((N, Role.FLAG, "-f", ""), (F, Role.FLAG, _VALUED, ""), (F, Role.FLAG, "-W -O -g -std=", ""))
# The real compiler runs if it is a compile.
_REFUSED = (
    (F, Role.REFUSE_COMPILE, _PROFILING, abi.WHY_PROFILING),
    (F, Role.REFUSE_COMPILE, _MODULES, abi.WHY_MODULES),
    (F, Role.REFUSE_COMPILE, _SIDE_OUTPUTS, abi.WHY_OTHER_OUTPUT),
    (S, Role.REFUSE_COMPILE, _SIDE_OUTPUTS_SEPARATE, abi.WHY_OTHER_OUTPUT),
    (E, Role.REFUSE_COMPILE, "-emit-llvm --cuda-device-only --cuda-host-only -fdriver-only", abi.WHY_OTHER_OUTPUT),
    (E, Role.REFUSE_COMPILE, "--offload-device-only --offload-host-only", abi.WHY_OTHER_OUTPUT),
    (F, Role.REFUSE_COMPILE, "-fembed-bitcode -fhip-emit-relocatable", abi.WHY_OTHER_OUTPUT),
    (E, Role.REFUSE_COMPILE, "-fgpu-rdc -fcuda-rdc", abi.WHY_RELOCATABLE_DEVICE_CODE),
    (F, Role.REFUSE_COMPILE, "-gsplit-dwarf", abi.WHY_SPLIT_DEBUG),
    (E, Role.REFUSE_COMPILE, "-m32 -mx32 -m16 -miamcu -mabi=ilp32 -mbig-endian", abi.WHY_OTHER_MACHINE),
    (F, Role.REFUSE_COMPILE, f"{_LOADED} {_AT_START} {_OF_WHOLE_LIBRARIES} -remap", abi.WHY_UNSUPPORTED_OPTION),
    (E, Role.REFUSE_COMPILE, _OF_TEXT, abi.WHY_UNSUPPORTED_OPTION),
    (
        F,
        Role.REFUSE_COMPILE,
        "-fpreprocessed -fvisibility-ms-compat",
        abi.WHY_UNSUPPORTED_OPTION,
    ),  # the probe's units are not
    (S, Role.REFUSE_COMPILE, _LOADED_SEPARATE, abi.WHY_UNSUPPORTED_OPTION),
)


def _below(lead: str, rows: Iterable[Row]) -> Iterator[Row]:
    """Yield `rows` for words that another program passes on: with `lead` before their texts."""
    for mode, role, texts, reason in rows:
        yield mode, role, " ".join(lead + text for text in texts.split()), reason


ROWS: tuple[Row, ...] = (
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
    (S, Role.REFUSE, "-working-directory", abi.WHY_UNSUPPORTED_OPTION),
    (P, Role.REFUSE, "-working-directory=", abi.WHY_UNSUPPORTED_OPTION),
    (E, Role.REFUSE, "-r -Wl,-r -Wl,--relocatable", abi.WHY_RELOCATABLE_LINK),
    *_REFUSED,
    (E, Role.REFUSE_COMPILE, "-MG", abi.WHY_DEPENDENCIES),  # the compiler reports an error unless -M is there too
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
    (P, Role.FLAG, "-D -U -A -T -R", ""),
    (P, Role.UNKNOWN, "-objcmt- -object", ""),  # they begin like -o
    (E, Role.FLAG, _PLAIN, ""),
    (F, Role.FLAG, _FAMILIES, ""),
    (N, Role.FLAG, "-f", ""),
    (F, Role.FLAG, _VALUED, ""),
    (S, Role.FLAG, _SEPARATE, ""),
    # Words for a part of this compiler, or for one of its passes.
    (P, Role.WORDS, "-Wp,", ""),
    (S, Role.WORDS, "-Xpreprocessor -Xarch_host -Xarch_device", ""),
    (P, Role.WORDS, "-Wa,", "as:"),
    (S, Role.WORDS, "-Xassembler", "as:"),
    (N, Role.FLAG, "as:--", ""),
    (F, Role.FLAG, "as:-m as:-g as:-W as:--compress-debug-sections as:--gdwarf-", ""),
    (S, Role.WORDS, "-Xclang", "clang:"),
    (P, Role.WORDS, "-Xclang=", "clang:"),
    *_below("clang:", (*_CODE, *_REFUSED)),
    (S, Role.FLAG, "clang:-mllvm clang:-target-feature clang:-target-cpu clang:-target-abi", ""),
    (E, Role.FLAG, "clang:-disable-llvm-passes clang:-opaque-pointers clang:-no-opaque-pointers", ""),
    (S, Role.WORDS, "-mllvm", "llvm:"),
    (P, Role.WORDS, "-mllvm=", "llvm:"),
    (N, Role.FLAG, "llvm:-", ""),
    (S, Role.WORDS, "-Xcuda-ptxas", "ptxas:"),
    (N, Role.FLAG, "ptxas:-", ""),
    (S, Role.WORDS, "-Xcuda-fatbinary", "fatbin:"),
    (N, Role.FLAG, "fatbin:-", ""),
    (S, Role.UNKNOWN, "-Xopenmp-target -Xoffload-linker -Xthinlto -Xanalyzer -mmlir -iapinotes-modules", ""),
)
