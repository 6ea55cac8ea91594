"""Parses the command line of hipcc: tables of its options, and what one command asks for."""

import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from fake_rocm.home import FakeRocmError


class Role(Enum):
    """Names the purpose of a part of the command, which decides which of the host compiler's runs
    get the part."""

    INPUT = "input"
    MODE = "mode"
    OUTPUT = "output"
    DEPENDENCY = "dependency"
    OTHER = "other"


@dataclass(frozen=True)
class Part:
    role: Role
    argv: tuple[str, ...]
    language: str | None = None  # for inputs: the host compiler's -x; None: by the file name
    is_hip: bool = False  # for inputs: whether it is a HIP source


class Mode(Enum):
    PREPROCESS = "-E"
    ASSEMBLY = "-S"
    OBJECT = "-c"
    SYNTAX = "-fsyntax-only"
    LINK = ""


@dataclass(frozen=True)
class Invocation:
    parts: tuple[Part, ...]
    mode: Mode
    archs: tuple[str, ...]
    device_only: bool = False
    dry_run: bool = False
    print_version: bool = False
    without_runtime: bool = False

    @property
    def inputs(self) -> list[Part]:
        return [part for part in self.parts if part.role is Role.INPUT]

    @property
    def output(self) -> str | None:
        outputs = [part.argv[-1] for part in self.parts if part.role is Role.OUTPUT]
        return outputs[-1] if outputs else None


HIP_SUFFIXES = {".hip", ".cu", ".cuh", ".cpp", ".cc", ".cxx", ".c++", ".C", ".cp", ".CPP"}
_HIP_LANGUAGES = {"hip", "cu", "cuda", "hip-cpp-output"}
_C_SUFFIXES = {".c"}
_PREPROCESSED_SUFFIXES = {".i", ".ii", ".s", ".S"}

_MODES = {
    "-E": Mode.PREPROCESS,
    "-M": Mode.PREPROCESS,
    "-MM": Mode.PREPROCESS,
    "-S": Mode.ASSEMBLY,
    "-c": Mode.OBJECT,
    "-fsyntax-only": Mode.SYNTAX,
}
_DEPENDENCY_FLAGS = {"-MD", "-MMD", "-MP", "-MG", "-MV"}
_DEPENDENCY_ARGUMENTS = ("-MF", "-MT", "-MQ")
# These options of the host compiler may have their argument in the next word.
_HOST_ARGUMENTS = {
    "-I", "-L", "-l", "-D", "-U", "-A", "-B", "-T", "-u", "-z", "-e",
    "-include", "-imacros", "-isystem", "-iquote", "-idirafter", "-iprefix", "-iwithprefix", "-isysroot",
    "-Xlinker", "-Xassembler", "-Xpreprocessor", "--param", "-aux-info", "-dumpbase", "-dumpdir", "-specs", "-wrapper",
}  # fmt: skip
_ARCH_OPTIONS = ("--offload-arch", "--amdgpu-target", "--cuda-gpu-arch")

# These options are for the device compiler, or about where ROCm is: they have no meaning here.
_DROPPED = {
    "--hip-link", "-fno-gpu-rdc", "-nogpulib", "-nogpuinc", "-nohipwrapperinc", "-fgpu-flush-denormals-to-zero",
    "-fno-gpu-flush-denormals-to-zero", "-fcuda-flush-denormals-to-zero", "-munsafe-fp-atomics", "-mcumode",
    "-mno-unsafe-fp-atomics", "-mno-cumode", "-mwavefrontsize64", "-mno-wavefrontsize64", "-mtgsplit", "-mno-tgsplit",
    "--offload-compress", "--no-offload-compress", "--offload-new-driver", "--no-offload-new-driver",
    "-fno-offload-uniform-block", "-foffload-uniform-block", "-fgpu-defer-diag", "-fgpu-allow-device-init",
    "-fgpu-exclude-wrong-side-overloads", "-ggpu", "--cuda-host-only", "--offload-host-only",
    "--cuda-compile-host-device", "--offload-host-device", "-fhip-new-launch-api", "-use-staging-buffer",
    "-fhip-kernel-arg-name", "-fhip-fp32-correctly-rounded-divide-sqrt", "-fno-hip-fp32-correctly-rounded-divide-sqrt",
    "-fuse-cuid", "-fno-hip-emit-relocatable",
}  # fmt: skip
_DROPPED_PREFIXES = (
    "--rocm-path=", "--rocm-device-lib-path=", "--hip-device-lib-path=", "--hip-device-lib=", "--hip-path=",
    "--hip-version=", "--hipstdpar", "-parallel-jobs=", "-amdgpu-", "-mcode-object-version=", "-fcuda-", "-fuse-cuid=",
    "-cuid=", "--gpu-max-threads-per-block=", "--gpu-instrument-lib=", "-fgpu-default-stream=", "-fhip-",
    "--gcc-toolchain=", "--gcc-install-dir=",
)  # fmt: skip
_DROPPED_WITH_ARGUMENT = {"-mllvm", "-Xoffload-linker", "-Xarch_device", "-Xcuda-ptxas", "-Xcuda-fatbinary"}

# g++ refuses these options of clang, which the real hipcc is.
_CLANG_ONLY = {
    "-Weverything", "-fcolor-diagnostics", "-fno-color-diagnostics", "-Qunused-arguments", "-fno-integrated-cc1",
    "-fansi-escape-codes", "-fintegrated-as", "-fcaret-diagnostics", "-fno-limit-debug-info", "-fstandalone-debug",
    "-fdelayed-template-parsing", "-fno-delayed-template-parsing", "-gline-tables-only", "-fno-approx-func",
}  # fmt: skip
_CLANG_ONLY_PREFIXES = (
    "-ferror-limit=", "-fbracket-depth=", "-fconstexpr-steps=", "-stdlib=", "-rtlib=", "--rtlib=", "--unwindlib=",
    "-unwindlib=", "-Rpass", "-fsave-optimization-record", "-fclang-abi-compat=", "-ftime-trace", "-flto=thin",
    "-fdenormal-fp-math", "-target=", "--target=", "-fdiagnostics-format=",
)  # fmt: skip
_CLANG_ONLY_WITH_ARGUMENT = {"-Xclang", "-target", "-MJ"}

_REFUSED = {
    "-fgpu-rdc": "relocatable device code (-fgpu-rdc) is not supported: there is no device code",
    "--genco": "code objects (--genco) are not supported: there is no device code",
    "-emit-llvm": "LLVM bitcode (-emit-llvm) is not supported: the host compiler makes none",
    "-fno-gnu-unique": "unknown argument: '-fno-gnu-unique' (clang, which the real hipcc is, does not know it)",
}


def expand_response_files(arguments: list[str], depth: int = 0) -> Iterator[str]:
    """Replace each readable @file by the words in it, as compilers do; other words that start with
    @ stay."""
    for argument in arguments:
        path = Path(argument[1:])
        if not argument.startswith("@") or depth > 10 or not path.is_file():
            yield argument
            continue
        lexer = shlex.shlex(path.read_text(), posix=True, punctuation_chars=False)
        lexer.whitespace_split = True
        lexer.commenters = ""
        yield from expand_response_files(list(lexer), depth + 1)


def parse(arguments: list[str], host_is_clang: bool) -> Invocation:
    parts: list[Part] = []
    archs: list[str] = []
    mode = Mode.LINK
    language: str | None = None
    switches: set[str] = set()
    words = iter(arguments)

    def argument_of(option: str) -> str:
        value = next(words, None)
        if value is None:
            raise FakeRocmError(f"argument to '{option}' is missing")
        return value

    for word in words:
        option, has_value, value = word.partition("=")
        if word in _REFUSED:
            raise FakeRocmError(_REFUSED[word])
        if option in _ARCH_OPTIONS:
            archs += (value if has_value else argument_of(option)).split(",")
        elif option == "--no-offload-arch":
            archs = [arch for arch in archs if value not in ("all", arch)]
        elif word in ("--version", "-###", "--cuda-device-only", "--offload-device-only", "-no-hip-rt", "--no-hip-rt"):
            switches.add(word)
        elif word in ("-nostdlib", "-nodefaultlibs", "-r"):
            switches.add("-no-hip-rt")
            parts.append(Part(Role.OTHER, (word,)))
        elif word.startswith("-Xarch_"):
            value = argument_of(word)
            if word == "-Xarch_host":
                parts.append(Part(Role.OTHER, (value,)))
        elif word in _DROPPED_WITH_ARGUMENT or (not host_is_clang and word in _CLANG_ONLY_WITH_ARGUMENT):
            argument_of(word)
        elif _is_dropped(word, host_is_clang):
            pass
        elif word in _MODES:
            # -E wins over -c, as in compilers: `-c ... -E` preprocesses.
            mode = _MODES[word] if mode is not Mode.PREPROCESS else mode
            parts.append(Part(Role.MODE, (word,)))
        elif word in _DEPENDENCY_FLAGS:
            parts.append(Part(Role.DEPENDENCY, (word,)))
        elif word.startswith(_DEPENDENCY_ARGUMENTS):
            argv = (word, argument_of(word)) if word in _DEPENDENCY_ARGUMENTS else (word[:3], word[3:])
            parts.append(Part(Role.DEPENDENCY, argv))
        elif word == "-x" or (word.startswith("-x") and len(word) > 2):
            language = argument_of(word) if word == "-x" else word[2:]
            language = None if language == "none" else language
        elif word == "-o":
            parts.append(Part(Role.OUTPUT, ("-o", argument_of(word))))
        elif word.startswith("-o"):
            parts.append(Part(Role.OUTPUT, ("-o", word[2:])))
        elif word in _HOST_ARGUMENTS or word in _CLANG_ONLY_WITH_ARGUMENT:
            parts.append(Part(Role.OTHER, (word, argument_of(word))))
        elif word.startswith("-") and word != "-":
            parts.append(Part(Role.OTHER, (word,)))
        else:
            parts.append(Part(Role.INPUT, (word,), language))
    return Invocation(
        parts=tuple(_with_language(part, mode) if part.role is Role.INPUT else part for part in parts),
        mode=mode,
        archs=tuple(dict.fromkeys(archs)),
        device_only=bool(switches & {"--cuda-device-only", "--offload-device-only"}),
        dry_run="-###" in switches,
        print_version="--version" in switches,
        without_runtime=bool(switches & {"-no-hip-rt", "--no-hip-rt"}),
    )


def _is_dropped(word: str, host_is_clang: bool) -> bool:
    if word in _DROPPED or word.startswith(_DROPPED_PREFIXES):
        return True
    return not host_is_clang and (word in _CLANG_ONLY or word.startswith(_CLANG_ONLY_PREFIXES))


def _with_language(part: Part, mode: Mode) -> Part:
    """Return the input with the language that its name implies if the command names none."""
    suffix = os.path.splitext(part.argv[0])[1]
    if part.language in _HIP_LANGUAGES or (part.language is None and suffix in HIP_SUFFIXES):
        return replace(part, language="c++", is_hip=True)
    if part.language is None and suffix in _C_SUFFIXES:
        return replace(part, language="c")
    if part.language is None and mode is Mode.PREPROCESS and suffix not in _PREPROCESSED_SUFFIXES:
        # This is for commands such as `hipcc -E -P /dev/null`: clang takes any file for C, g++
        # takes it for a linker input.
        return replace(part, language="c")
    return part
