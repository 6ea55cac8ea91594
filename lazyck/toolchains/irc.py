"""lazyck-irc: a compiler of LLVM IR for machines without clang, based on llvmlite. It takes clang's
options.

    lazyck-irc -c IN.ll|IN.bc... [-o OUT.o] [-O0..3] [--target=TRIPLE] [-mcpu=NAME] [-mattr=LIST]
               [-fPIC] [-MD -MF FILE]
    lazyck-irc -S [-emit-llvm] IN...        assembler, or IR again
    lazyck-irc -shared IN.o... -o OUT.so    linked by c++ or cc
"""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, NoReturn

from lazyck import proc
from lazyck.abi import Role
from lazyck.errors import LazyckError, ToolchainError, UsageError
from lazyck.machines import MACHINES
from lazyck.toolchains.gnu import TABLE
from lazyck.toolchains.options import CommandItem

# The version of the code that this compiler makes from an input. It is part of every key.
_VERSION = 1
_BITCODE = (b"BC\xc0\xde", b"\xde\xc0\x17\x0b")
_LEVELS = {"": 1, "0": 0, "1": 1, "2": 2, "3": 3, "4": 3, "s": 2, "z": 2, "g": 1, "fast": 3}
_RELOCATION = {"-fno-pic": "static", "-fno-PIC": "static", "-fno-pie": "static", "-fno-PIE": "static"}
# Options without a meaning for IR. clang ignores them too, or only warns.
_IGNORED_OPTIONS = (
    "-g -D -U -I -isystem -iquote -idirafter -include -imacros -isysroot --sysroot -std -w -v -pipe -ansi -pedantic "
    "-pthread -x --language -mtune -m64"
)
_IGNORED = frozenset(_IGNORED_OPTIONS.split())
_IGNORED_LEADS = ("-f", "-g", "-W")
_LINKING = ("-shared", "-rdynamic", "-pie", "-no-pie", "-nostdlib", "-s", "-z", "-MP")
_LINKING_ROLES = (Role.LIBRARY, Role.LIBRARY_DIR, Role.LINKER, Role.STATIC)


@dataclass
class ClangArguments:
    inputs: list[str] = field(default_factory=list)
    output: str = ""
    form: str = ""  # -c, -S, or an empty string for a link
    emits_ir: bool = False
    runs_passes: bool = True
    level: int = 0
    triple: str = ""
    cpu: str = ""
    features: list[str] = field(default_factory=list)
    abi: str = ""
    relocation: str = "pic"
    code_model: str = "default"
    llvm_options: list[str] = field(default_factory=list)
    writes_depfile: bool = False
    depfile: str = ""
    targets: list[str] = field(default_factory=list)
    link_words: list[str] = field(default_factory=list)


def parse(words: Sequence[str]) -> ClangArguments:
    """Parse a command line. Raises `UsageError`."""
    arguments = ClangArguments()
    for item in TABLE.split(words):
        if not item.name:
            arguments.inputs.append(item.words[0])
            arguments.link_words.append(item.words[0])
        elif not _is_of_code(arguments, item):
            arguments.link_words += item.words
            _take(arguments, item)
    if not arguments.inputs:
        raise UsageError("no input files")
    return arguments


def _is_of_code(arguments: ClangArguments, item: CommandItem) -> bool:
    """Take an option that says what code to make, of no interest to links. Returns whether so."""
    word, value = item.words[0], item.value or ""
    if item.name in ("-mcpu", "-march"):
        arguments.cpu = value
    elif item.name == "-mattr":
        arguments.features += [f for f in value.split(",") if f]
    elif item.name == "-mabi":
        arguments.abi = value
    elif item.name.startswith("--target=") or item.name in ("--target", "-target"):
        arguments.triple = value if item.name in ("--target", "-target") else word.partition("=")[2]
    elif item.name == "-mllvm":
        arguments.llvm_options.append(value)
    elif item.name == "-Xclang" and value == "-disable-llvm-passes":
        arguments.runs_passes = False
    elif word == "-emit-llvm":
        arguments.emits_ir = True
    else:
        return False
    return True


def _take(arguments: ClangArguments, item: CommandItem) -> None:
    word, value = item.words[0], item.value or ""
    if item.role is Role.OUTPUT:
        arguments.output = value
    elif word in ("-c", "-S"):
        arguments.form = word if arguments.form != "-S" else "-S"
    elif word.startswith("-O") and word[2:] in _LEVELS:
        arguments.level = _LEVELS[word[2:]]
    elif item.name == "-mcmodel":
        arguments.code_model = value
    elif word in _RELOCATION or word.lower() in ("-fpic", "-fpie"):
        arguments.relocation = _RELOCATION.get(word, "pic")
    elif item.role is Role.DEPEND:
        arguments.writes_depfile = True
    elif item.role is Role.DEPEND_FILE:
        arguments.depfile = value
    elif item.role in (Role.DEPEND_TARGET, Role.DEPEND_QUOTED):
        arguments.targets.append(value)
    elif word == "-flto" or item.name == "-flto":
        raise UsageError(f"{word}: makes machine code only", "leave out -flto")
    elif not (
        item.name in _IGNORED or item.role in _LINKING_ROLES or word in _LINKING or word.startswith(_IGNORED_LEADS)
    ):
        raise UsageError(
            f"unknown option: {' '.join(item.words)}", "leave it out: only clang's options for IR are known"
        )


def llvm() -> Any:
    """Return llvmlite's binding, initialized for every target. Raises `ToolchainError`."""
    try:
        from llvmlite import binding
    except ImportError as e:
        raise ToolchainError(f"llvmlite is not installed ({e})", "pip install 'lazyck[llvm]'") from e
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    binding.initialize_native_asmparser()
    return binding


def version_text() -> str:
    """Return the output of `--version`, which stands for this compiler in every key."""
    number = ".".join(map(str, llvm().llvm_version_info))
    return f"lazyck-irc {_VERSION} (llvmlite {metadata.version('llvmlite')})\nLLVM version {number}\n"


def compile_all(arguments: ClangArguments) -> None:
    """Compile every input. Raises `LazyckError` for one that fails after all others are done."""
    if arguments.output and len(arguments.inputs) > 1:
        raise UsageError("cannot specify -o when generating multiple output files")
    binding = llvm()
    for option in arguments.llvm_options:
        binding.set_option("lazyck-irc", option)
    machine = _machine(binding, arguments)
    suffix = {"-c": ".bc" if arguments.emits_ir else ".o", "-S": ".ll" if arguments.emits_ir else ".s"}[arguments.form]
    failed: LazyckError | None = None
    for source in arguments.inputs:
        output = arguments.output or f"{Path(source).stem}{suffix}"
        try:
            data = _compile(binding, machine, arguments, source)
        except LazyckError as e:
            sys.stderr.write(f"{failed.render()}\n" if failed else "")
            failed = e
            continue
        _write(output, data)
        if arguments.writes_depfile or arguments.depfile:
            rule = f"{' '.join(arguments.targets or [_quoted(output)])}: {_quoted(source)}\n"
            _write(arguments.depfile or f"{os.path.splitext(output)[0]}.d", rule.encode())
    if failed:
        raise failed


def _quoted(path: str) -> str:
    return path.replace("$", "$$").replace("#", "\\#").replace(" ", "\\ ")


def _write(path: str, data: bytes) -> None:
    try:
        if path == "-":
            sys.stdout.buffer.write(data)
            return
        Path(path).write_bytes(data)
    except OSError as e:
        raise LazyckError(f"unable to open output file '{path}': '{e.strerror}'") from e


def _machine(binding: Any, arguments: ClangArguments) -> Any:
    """Return the target machine. Raises `UsageError` for a target that LLVM does not know."""
    triple = arguments.triple or binding.get_default_triple()
    try:
        target = binding.Target.from_triple(triple)
    except RuntimeError as e:
        raise UsageError(f"--target={triple}: {e}", "give a triple such as aarch64-linux-gnu") from e
    cpu, features = arguments.cpu, ",".join(arguments.features)
    if cpu == "native":
        cpu = binding.get_host_cpu_name()
        features = ",".join(filter(None, (binding.get_host_cpu_features().flatten(), features)))
    known_features, abi = MACHINES[target.name].llvm_defaults if target.name in MACHINES else ("", "")
    if not cpu:
        features = ",".join(filter(None, (known_features, features)))
    return target.create_target_machine(
        cpu=cpu,
        features=features,
        opt=arguments.level,
        reloc=arguments.relocation,
        codemodel=arguments.code_model,
        abiname=arguments.abi or abi,
    )


def _compile(binding: Any, machine: Any, arguments: ClangArguments, source: str) -> bytes:
    """Return the bytes that one input compiles to. Raises `LazyckError`."""
    try:
        data = Path(source).read_bytes()
    except OSError as e:
        raise LazyckError(f"{source}: {e.strerror}") from e
    context = binding.create_context()
    try:
        if data[:4] in _BITCODE:
            module = binding.parse_bitcode(data, context)
        else:
            module = binding.parse_assembly(data.decode("utf-8"), context)
        module.verify()
    except (RuntimeError, UnicodeDecodeError) as e:
        raise LazyckError(_named(source, str(e))) from e
    triple = machine.triple
    if module.triple.partition("-")[0] not in ("", triple.partition("-")[0]):
        sys.stderr.write(f"{source}: warning: overriding the module target triple with {triple}\n")
    module.triple = triple
    module.data_layout = str(machine.target_data)
    if arguments.runs_passes and (arguments.level or not arguments.emits_ir):
        _optimise(binding, machine, arguments.level, module)
    if arguments.emits_ir:
        return module.as_bitcode() if arguments.form == "-c" else str(module).encode("utf-8", "surrogateescape")
    try:
        made = machine.emit_object(module) if arguments.form == "-c" else machine.emit_assembly(module).encode()
    except RuntimeError as e:
        raise LazyckError(_named(source, str(e))) from e
    return bytes(made)


def _named(source: str, said: str) -> str:
    """Return LLVM's complaint about a module in the words of a compiler."""
    said = said.removeprefix("LLVM IR parsing error\n").removeprefix("LLVM bitcode parsing error\n").strip()
    return said.replace("<string>:", f"{source}:", 1) if said.startswith("<string>:") else f"{source}: error: {said}"


def _optimise(binding: Any, machine: Any, level: int, module: Any) -> None:
    options = binding.create_pipeline_tuning_options(speed_level=level)
    options.loop_vectorization = options.slp_vectorization = options.loop_interleaving = level > 1
    builder = binding.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)


def link(arguments: ClangArguments) -> int:
    for name in arguments.inputs:
        if name.endswith((".ll", ".bc")):
            raise UsageError(f"{name}: compile it first", "lazyck-irc -c")
    program = proc.find_program("c++") or proc.find_program("cc")
    if program is None:
        raise ToolchainError("no c++ or cc on PATH to link with", "install one (Debian, Ubuntu: `apt install g++`)")
    return proc.passthrough([program, *arguments.link_words])


def main() -> NoReturn:
    words = sys.argv[1:]
    try:
        if "--version" in words:
            sys.stdout.write(version_text())
            sys.exit(0)
        arguments = parse(words)
        if not arguments.form:
            sys.exit(link(arguments))
        compile_all(arguments)
    except KeyboardInterrupt:
        proc.end_interrupted()
    except LazyckError as e:
        text = e.render()
        sys.stderr.write(f"{text}\n" if "error: " in text else f"lazyck-irc: error: {text}\n")
        sys.exit(1)
    sys.exit(0)


if __name__ == "__main__":
    main()
