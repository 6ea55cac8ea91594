"""Implements hipcc: turns a HIP compile or link command into commands of the host C++ compiler, and
runs them."""

import os
import shlex
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from fake_rocm import device_text, passes
from fake_rocm.archs import check_archs, common_wave_size, device_archs
from fake_rocm.build import library_dir, source_digest
from fake_rocm.home import HIP_VERSION, HOME, VERSION_LABEL, FakeRocmError, HostCompiler, find_host_compiler
from fake_rocm.options import Invocation, Mode, Part, Role, expand_response_files, parse
from fake_rocm.rewrite import may_need_rewrite, rewrite

# Longer commands go to the host compiler in a response file.
_LONGEST_COMMAND = 100_000

_DEDUCTION_HINT = (
    "hipcc: note: fake_rocm_home launches kernel<<<...>>>(...) through a function pointer: an overloaded kernel, or a "
    "kernel template whose arguments are not spelled out, cannot be launched that way"
)


def main(arguments: list[str]) -> int:
    try:
        return _run(list(expand_response_files(arguments)))
    except FakeRocmError as error:
        print(f"hipcc: error: {error}", file=sys.stderr)
        return 1


def _run(arguments: list[str]) -> int:
    host = find_host_compiler()
    if arguments[:1] == ["-fake-rocm-bundle"]:
        directory = library_dir()
        return passes.bundle(arguments[1:], [*host.argv, f"-L{directory}", f"-Wl,-rpath,{directory}", "-lamdhip64"])
    if arguments[:1] == ["-cc1"]:
        return _run_pass(passes.Pass(arguments[1:]), host)
    invocation = parse(arguments, host.is_clang)
    if invocation.print_version:
        print(version_text(host))
        return 0
    invocation = _with_appended_flags(arguments, invocation, host)
    check_archs([arch for arch in invocation.archs if arch != "native"])
    if invocation.device_only and invocation.mode is not Mode.PREPROCESS:
        raise FakeRocmError("device-only compilation makes no sense here: there is no device code (-E works)")
    stdin = sys.stdin.read() if any(part.argv[0] == "-" for part in invocation.inputs) else None
    if invocation.dry_run:
        print(version_text(host), file=sys.stderr)
        shown = [_host_argv(invocation, host)]
        if passes.can_be_shown(invocation):
            shown = passes.steps(arguments, invocation, _archs(invocation))
        for step in shown:
            print(" " + " ".join(map(_quoted, step)), file=sys.stderr)
        return 0
    if invocation.inputs and invocation.mode in (Mode.OBJECT, Mode.LINK):
        # The library is built when something is compiled, since another driver may do the link.
        library_dir()
    if not any(part.is_hip for part in invocation.inputs) or invocation.mode is Mode.PREPROCESS:
        return _call(_host_argv(invocation, host), stdin).returncode
    return _compile_hip(invocation, host, stdin)


def _with_appended_flags(arguments: list[str], invocation: Invocation, host: HostCompiler) -> Invocation:
    extra: list[str] = []
    if any(part.is_hip for part in invocation.inputs):
        extra += shlex.split(os.environ.get("HIPCC_COMPILE_FLAGS_APPEND", ""))
    if invocation.mode is Mode.LINK and invocation.inputs:
        extra += shlex.split(os.environ.get("HIPCC_LINK_FLAGS_APPEND", ""))
    return parse([*arguments, *extra], host.is_clang) if extra else invocation


def version_text(host: HostCompiler) -> str:
    done = subprocess.run([*host.argv, "--version"], stdout=subprocess.PIPE, text=True)
    host_version = (done.stdout.splitlines() or [f"{host.argv[0]} (no version)"])[0]
    return "\n".join(
        [
            f"HIP version: {VERSION_LABEL}",
            # With the digest, a cache whose keys contain this text notices when the home changes.
            f"clang version {HIP_VERSION} (fake_rocm_home {source_digest()[:12]} on {host_version})",
            f"Target: {os.uname().machine}-unknown-linux-gnu",
            "Thread model: posix",
            f"InstalledDir: {HOME}/bin",
        ]
    )


def _compile_hip(invocation: Invocation, host: HostCompiler, stdin: str | None) -> int:
    """Compiles as plain C++ first; sources with syntax that C++ lacks go through rewrite()."""
    if not any(may_need_rewrite(_source_text(part, stdin)) for part in invocation.inputs if part.is_hip):
        plain = _call(_host_argv(invocation, host), stdin, capture=True)
        if plain.returncode == 0:
            sys.stderr.write(plain.stderr)
            return 0
    else:
        plain = None
    with tempfile.TemporaryDirectory(prefix="fake_hipcc.") as scratch:
        parts: list[Part] = []
        changed = False
        for number, part in enumerate(invocation.parts):
            if part.role is Role.INPUT and part.is_hip:
                text = _preprocess(invocation, part, host, Path(scratch), stdin)
                if text is None:
                    return 1
                rewritten = rewrite(text)
                changed |= rewritten != text
                # Each file has its own directory, so that it can keep its name, from which the
                # default output's name comes.
                path = Path(scratch) / str(number) / (_stem(part) + ".ii")
                path.parent.mkdir()
                path.write_text(rewritten)
                part = Part(Role.INPUT, (str(path),), "c++-cpp-output")
            if part.role is not Role.DEPENDENCY:
                parts.append(part)
        if plain is not None and not changed:
            sys.stderr.write(plain.stderr)
            return plain.returncode
        argv = _host_argv(replace(invocation, parts=tuple(parts)), host)
        done = _call([*argv, "-Qunused-arguments"] if host.is_clang else argv, None, capture=True)
        sys.stderr.write(done.stderr)
        if "fake_rocm::Configured" in done.stderr:
            print(_DEDUCTION_HINT, file=sys.stderr)
        return done.returncode


def _run_pass(step: passes.Pass, host: HostCompiler) -> int:
    """Run one of the passes that `-###` shows."""
    invocation = parse(step.arguments, host.is_clang)
    invocation = _with_appended_flags(step.arguments, invocation, host)
    if invocation.mode is Mode.PREPROCESS:
        return _call(_host_argv(invocation, host), None).returncode
    (part,) = invocation.inputs
    kept = [p for p in invocation.parts if p.role is Role.OTHER and not p.argv[0].startswith("-flto")]
    kept.append(Part(Role.OTHER, ("-DFAKE_ROCM_IN_PASSES=1",)))
    with tempfile.TemporaryDirectory(prefix="fake_hipcc.") as scratch:
        preprocessing = [*kept, *(p for p in invocation.parts if p.role is Role.DEPENDENCY)]
        text = _preprocess(replace(invocation, parts=tuple(preprocessing)), part, host, Path(scratch), None)
        if text is None:
            return 1
        if device_text.has_managed(text):
            raise FakeRocmError("managed variables: they have one place only if all is compiled at once")
        source, assembly = Path(scratch, f"{_stem(part)}.ii"), Path(scratch, "made.s")
        text = device_text.with_signs(rewrite(text), for_host=not step.is_device)
        source.write_text(text, errors="surrogateescape")
        # Functions stay apart, each under its own name. The host's compile gives the warnings about
        # the source.
        more = ["-w", "-fPIC", "-ffunction-sections", "-fdata-sections"] if step.is_device else ["-w"]
        # clang's own assembler would keep no comments; gcc would merge two kernels that are alike.
        more += ["-fno-integrated-as"] if host.is_clang else ["-fno-ipa-icf"]
        compiling = [*kept, *(Part(Role.OTHER, (word,)) for word in more), Part(Role.MODE, ("-S",))]
        compiling += [Part(Role.OUTPUT, ("-o", str(assembly))), Part(Role.INPUT, (str(source),), "c++-cpp-output")]
        argv = _host_argv(replace(invocation, parts=tuple(compiling), mode=Mode.ASSEMBLY), host)
        if status := _call(argv, None).returncode:
            return status
        made = device_text.read_assembly(assembly.read_text(errors="surrogateescape"))
        if step.is_device:
            assembly.write_text(device_text.device_assembly(made), errors="surrogateescape")
        elif made.kernels or made.variables:
            registration = Path(scratch, "registration.ii")
            registration.write_text(device_text.REGISTRATION)
            words = [*host.argv, "-O1", "-fPIC", "-S", str(registration), "-o", f"{registration}.s"]
            if status := _call(words, None).returncode:
                return status
            text = device_text.host_assembly(made, os.path.abspath(step.image))
            text = device_text.joined(text, Path(f"{registration}.s").read_text())
            assembly.write_text(text, errors="surrogateescape")
        return _call([*host.argv, "-c", str(assembly), "-o", invocation.output or ""], None).returncode


def _source_text(part: Part, stdin: str | None) -> str:
    if part.argv[0] == "-":
        return stdin or ""
    try:
        return Path(part.argv[0]).read_text(errors="replace")
    except OSError:
        return ""  # the host compiler reports the error


def _stem(part: Part) -> str:
    return "stdin" if part.argv[0] == "-" else Path(part.argv[0]).stem


def _preprocess(invocation: Invocation, part: Part, host: HostCompiler, scratch: Path, stdin: str | None) -> str | None:
    """Return the preprocessed text, or None if preprocessing fails. Write the dependency file
    that the whole command would write."""
    path = scratch / "preprocessed.ii"
    kept = [p for p in invocation.parts if p.role in (Role.OTHER, Role.DEPENDENCY)]
    flags = {p.argv[0] for p in kept}
    if flags & {"-MD", "-MMD"}:
        target = invocation.output or _stem(part) + ".o"
        if "-MF" not in flags:
            kept.append(Part(Role.DEPENDENCY, ("-MF", os.path.splitext(target)[0] + ".d")))
        if not flags & {"-MT", "-MQ"}:
            kept.append(Part(Role.DEPENDENCY, ("-MQ", target)))
    kept += [Part(Role.MODE, ("-E",)), Part(Role.OUTPUT, ("-o", str(path)))]
    kept.append(part)
    command = replace(invocation, parts=tuple(kept), mode=Mode.PREPROCESS)
    if _call(_host_argv(command, host), stdin).returncode != 0:
        return None
    return path.read_text(errors="surrogateescape")


def _host_argv(invocation: Invocation, host: HostCompiler) -> list[str]:
    argv = [*host.argv]
    if invocation.inputs:
        argv += _compile_flags(invocation, host)
    language: str | None = None
    for part in invocation.parts:
        if part.role is Role.INPUT and part.language != language:
            language = part.language
            argv += ["-x", language or "none"]
        argv += part.argv
    if invocation.mode is Mode.LINK and invocation.inputs and not invocation.without_runtime:
        directory = library_dir()
        argv += [f"-L{directory}", f"-Wl,-rpath,{directory}", "-lamdhip64"]
    return argv


def _archs(invocation: Invocation) -> list[str]:
    """Return the archs that the command compiles for."""
    given = invocation.archs or ("native",)
    archs = list(dict.fromkeys(a for arch in given for a in (device_archs() if arch == "native" else [arch])))
    if not archs:
        raise FakeRocmError("cannot tell the arch: no device (FAKE_ROCM_ARCH=none) and no --offload-arch")
    check_archs(archs)
    return archs


def _compile_flags(invocation: Invocation, host: HostCompiler) -> list[str]:
    flags = ["-D__HIP_PLATFORM_AMD__=1", "-D__HIP_PLATFORM_HCC__=1", f"-isystem{HOME}/include"]
    if not any(part.is_hip for part in invocation.inputs):
        return flags
    archs = _archs(invocation)
    wave = common_wave_size(archs)
    flags += ["-D__HIP__=1", "-D__HIPCC__=1", f'-DFAKE_ROCM_ARCHS="{",".join(archs)}"']
    flags += [f"-DFAKE_ROCM_WAVE_SIZE={wave}"] if wave else []
    if invocation.device_only:
        flags += ["-D__HIP_DEVICE_COMPILE__=1", "-D__AMDGCN__=1", *(f"-D__{a.split(':')[0]}__=1" for a in archs)]
    flags += ["-include", "fake_rocm/tu.h", "-Wno-unknown-pragmas"]
    if not host.is_clang:
        # clang makes no such symbols, and neither does the real hipcc.
        flags.append("-fno-gnu-unique")
    return flags


def _call(argv: list[str], stdin: str | None, capture: bool = False) -> subprocess.CompletedProcess[str]:
    """Run the host compiler with our output streams, or keeps its stderr for later."""
    if sum(map(len, argv)) > _LONGEST_COMMAND:
        with tempfile.NamedTemporaryFile("w", prefix="fake_hipcc.", suffix=".rsp") as response:
            response.write("\n".join(_quoted(word) for word in argv[1:]))
            response.flush()
            return _call([argv[0], f"@{response.name}"], stdin, capture)
    # Sources and messages may have another encoding than the locale's: they are passed on byte by
    # byte.
    stderr = subprocess.PIPE if capture else None
    return subprocess.run(argv, input=stdin, stderr=stderr, text=True, errors="surrogateescape")


def _quoted(word: str) -> str:
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"'
