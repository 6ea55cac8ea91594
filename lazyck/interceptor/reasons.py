"""Says what each reason code of the shims means, and what to change if a source could be lazy."""

from lazyck import abi

# The call is the subject of each text. The order is that of the table in docs/interceptor.md.
SAYS = {
    abi.WHY_BLOB: "is deferred",
    abi.WHY_DEFERRED_INPUT: "is a link that takes a deferred object",
    abi.WHY_QUERY: "asks the compiler about itself: `--version`, `-dumpmachine`, `-print-…`",
    abi.WHY_DRY_RUN: "has `-###`, `--dryrun`",
    abi.WHY_PREPROCESS: "has `-E`",
    abi.WHY_ASSEMBLY: "has `-S`, or an assembler source",
    abi.WHY_DEPENDENCIES: "has `-M`, `-MM`, `-MG` (`-MD`, `-MMD` are no reason)",
    abi.WHY_SYNTAX_ONLY: "has `-fsyntax-only`, `-fdevice-syntax-only`",
    abi.WHY_OTHER_OUTPUT: (
        "makes something other than an object of host and device code (`-emit-llvm`, `--ptx`, "
        "`--cuda-device-only`, `--genco`), or other files besides (`-save-temps`, `--keep`, `-fstack-usage`, "
        "`-ftime-trace`, `-MJ`…)"
    ),
    abi.WHY_RELOCATABLE_DEVICE_CODE: (
        "has `-fgpu-rdc`, `-rdc=true` or `-dc` (CMake's CUDA_SEPARABLE_COMPILATION): such an object needs a "
        "device link, so it is not deferred. If no kernel uses device functions or variables of another "
        "source, build without separable compilation"
    ),
    abi.WHY_DEVICE_LINK: "has `-dlink`",
    abi.WHY_ARCHIVE: "is `nvcc -lib`",
    abi.WHY_HIP_ON_NVIDIA: (
        "is of a `hipcc` that would run nvcc: `HIP_PLATFORM=nvidia`, or it is not set and hipcc finds an nvcc "
        "but no clang"
    ),
    abi.WHY_RELOCATABLE_LINK: "has `-r`: records of deferred inputs are joined, like sections",
    abi.WHY_MODULES: (
        "takes part in C++20 modules (`-fmodules-ts`, `-fmodule-file=`, `-x c++-module`, `.cppm`, `.ixx`…): "
        "other compiles read what it writes besides the object. With some compilers, CMake adds such options "
        "to every C++20 source: pass `-DCMAKE_CXX_SCAN_FOR_MODULES=OFF` if there are no modules"
    ),
    abi.WHY_PROFILING: (
        "instruments for coverage or a profile, or reads a profile (`--coverage`, `-fprofile-arcs`, "
        "`-fprofile-use`…): counters and notes belong beside the object"
    ),
    abi.WHY_SPLIT_DEBUG: "has `-gsplit-dwarf`: the `.dwo` file would be missing. Leave the option out",
    abi.WHY_STDIN: "reads stdin or `/dev/null`, or writes to stdout or `/dev/null`: a feature probe",
    abi.WHY_STDOUT: "reads stdin or `/dev/null`, or writes to stdout or `/dev/null`: a feature probe",
    abi.WHY_DEV_NULL: "reads stdin or `/dev/null`, or writes to stdout or `/dev/null`: a feature probe",
    abi.WHY_TRY_COMPILE: (
        "compiles below CMake's `CMakeFiles/CMakeScratch`, `CMakeTmp`, `CompilerId…`, below `meson-private`, "
        "or `conftest.*`"
    ),
    abi.WHY_NO_INPUT: "has no input",
    abi.WHY_NO_SOURCE: "compiles a file that by its name is no source (a header)",
    abi.WHY_SEVERAL_SOURCES: "compiles several sources: compile each by itself, with `-c` and `-o`",
    abi.WHY_NO_OUTPUT: "has no `-o`: name the object with it",
    abi.WHY_UNUSUAL_OUTPUT: "writes to a directory, a device or a pipe",
    abi.WHY_OTHER_MACHINE: (
        "compiles for a machine for which lazyck has no stubs: `-m32`, `--target=loongarch64-…`, or a "
        "compiler for such a machine. lazyck has stubs for x86-64, little-endian aarch64 and riscv64"
    ),
    abi.WHY_LANGUAGE: "has `-x` with a language that has no recipe",
    abi.WHY_CUDA_BY_CLANG: "compiles CUDA with clang: only nvcc has recipes",
    abi.WHY_NOT_A_BLOB: "compiles a source that no `--blobs` pattern matches",
    abi.WHY_NOT_BY_KERNEL: (
        "compiles a source that cannot be compiled by kernel, for the reason behind the colon. Where that is "
        "managed variables, textures or surfaces, move them into another file. Otherwise lazyck does not know "
        "the steps of this compiler: use a release that its documentation names"
    ),
    abi.WHY_SOURCE_UNREADABLE: "has a source that is missing or unreadable: the compiler says so",
    abi.WHY_UNSUPPORTED_OPTION: (
        "has an option that lazyck does not follow: `--`, `-working-directory`, one without its value; one by "
        "which the compiler loads code or configuration (`-fplugin=`, `-B`, `-specs`, `--config`, "
        "`-include-pch`); one that a library of its own, loaded later, cannot have "
        "(`-ftls-model=`, `-mcmodel=kernel`)"
    ),
    abi.WHY_UNKNOWN_OPTION: (
        "has an option that no row of lazyck's tables knows (`lazyck/toolchains/gnu_options.py`, "
        "`nvcc_options.py`), or hands such a word to another program (`-Xcompiler`, `-Xclang`, `-Wa,`, "
        "`-mllvm`, `-Xptxas`…). What such an option reads, writes or means is not known. Options of code "
        "(`-f…`, `-mllvm -…`) with no value or with a number are known; those whose value may be a file are "
        "listed one by one"
    ),
    abi.WHY_RESPONSE_FILE: "has a response file that is a pipe or a directory, or names itself",
    abi.WHY_COMPILE_AND_LINK: "compiles and links at once: compile with `-c` and `-o` first",
    abi.WHY_LINK_WITHOUT_BLOBS: "is a link without deferred inputs",
    abi.WHY_NO_CWD: "runs in a directory that is gone",
    abi.WHY_UNKNOWN_COMPILER: "runs a program, by `lazyck-launch`, that lazyck does not know as a compiler",
    abi.WHY_UNSEEN_LINK: (
        "compiles CUDA, by `lazyck-launch`, with an nvcc and a host compiler that are both named by their "
        "paths: name one of them by its plain name"
    ),
    abi.WHY_CANNOT_WRITE: "cannot write the object or depfile (`fail`)",
}
