"""Builds the C++ runtime: objects for a lazy library, and the tool `lazyck-rt`, each only when something changed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from filelock import FileLock

from lazyck import abi, proc
from lazyck.errors import BuildError, FormatError, ToolchainError
from lazyck.files import digest, encode, write_atomic, write_if_different
from lazyck.toolchains.base import accepts, machine_for

SOURCES = Path(__file__).parent / "src"
# The main file of lazyck-rt, and what belongs to a lazy library only: it needs slots and an embedded manifest.
TOOL_SOURCES = frozenset({"tool_main.cpp"})
LIBRARY_SOURCES = frozenset({"library.cpp", "resolve.cpp", "api.cpp"})

# No -fno-exceptions, no sanitizers, no -march: the objects must fit whatever they are linked with.
CXX_FLAGS = (
    "-std=c++17",
    "-O2",
    "-g0",
    "-fPIC",
    "-pthread",
    "-fvisibility=hidden",
    "-fvisibility-inlines-hidden",
    "-ffunction-sections",
    "-Wall",
    "-Wextra",
)
# As far as the compiler knows them. Outline atomics would bring a constructor, and nothing shall run at load.
MACHINE_FLAGS = {
    "x86_64": ("-fcf-protection=full",),
    "aarch64": ("-mbranch-protection=standard", "-mno-outline-atomics"),
}
# As far as the compiler knows it. A static of an inline function (of the C++ library's headers too) must not become a
# unique symbol, which would pin a lazy library in memory past its dlclose and share it between libraries.
UNPIN_FLAG = "-fno-gnu-unique"
LINK_FLAGS = ("-pthread", "-ldl")
_HINT = "the runtime needs g++ 9 or clang++ 14, or a newer one; CXX names the compiler"


def source_digest(src: Path = SOURCES) -> str:
    """Digest of the runtime's sources and of the names they share with Python."""
    parts = [abi.render_header().encode()]
    for path in _sources(src, "*"):
        parts += [encode(path.name), path.read_bytes()]
    return digest(*parts)


def compile_objects(
    out: Path, compiler: Sequence[str], src: Path = SOURCES, extra_flags: Sequence[str] = (), jobs: int | None = None
) -> list[Path]:
    """Objects in `out` that make a lazy library of stubs; compiled only when sources, compiler or flags changed.

    `compiler` is an argv prefix; the objects are for the machine that it makes code for. Safe when several processes do
    it at once. Raises `BuildError`, `CommandError`, `ToolchainError`.
    """
    machine = machine_for(compiler)
    trampoline = src / f"stub_{machine}.S"
    if not trampoline.is_file():
        known = ", ".join(sorted(p.stem.removeprefix("stub_") for p in src.glob("stub_*.S")))
        raise BuildError(f"lazyck has no stubs for machine {machine!r}", f"build for one of: {known}")
    sources = [p for p in _sources(src, "*.cpp") if p.name not in TOOL_SOURCES]
    return _compile(out, compiler, src, [*sources, trampoline], extra_flags, jobs)


def compiler_tag(compiler: Sequence[str], src: Path = SOURCES) -> str:
    """A directory name for what `compiler` makes of the runtime: two compilers must not share one."""
    return f"{machine_for(compiler)}-{_stamp(compiler, src, ())[:12]}"


def build_tool(out: Path, compiler: Sequence[str], src: Path = SOURCES, extra_flags: Sequence[str] = ()) -> Path:
    """The executable `lazyck-rt`, below `out`, in a directory of its own for each state of sources and compiler.

    Safe when several processes do it at once. Raises `CommandError`, `ToolchainError`.
    """
    directory = out / _stamp(compiler, src, extra_flags)[:16]
    tool = directory / "lazyck-rt"
    if tool.is_file():
        return tool
    sources = [p for p in _sources(src, "*.cpp") if p.name not in LIBRARY_SOURCES]
    objects = _compile(directory / "objects", compiler, src, sources, extra_flags, None)
    with FileLock(directory / ".lock"):
        if not tool.is_file():
            temporary = directory / "lazyck-rt.new"
            argv = [*compiler, *extra_flags, *map(str, objects), "-o", str(temporary), *LINK_FLAGS]
            proc.check("linking lazyck-rt", argv, hint=_HINT)
            temporary.replace(tool)
    return tool


def _sources(src: Path, pattern: str) -> list[Path]:
    found = sorted(p for p in src.glob(pattern) if p.suffix in (".cpp", ".h", ".hpp", ".S"))
    if not found:
        raise FormatError(f"{src}: no runtime sources here", f"check {abi.ENV_RUNTIME_SRC}, or install lazyck again")
    return found


def _flags(compiler: Sequence[str], extra_flags: Sequence[str]) -> list[str]:
    wanted = (UNPIN_FLAG, *MACHINE_FLAGS.get(machine_for(compiler), ()))
    known = [flag for flag in wanted if accepts(tuple(compiler), (flag,), "c++")]
    return [*CXX_FLAGS, *known, *extra_flags]


def _stamp(compiler: Sequence[str], src: Path, extra_flags: Sequence[str]) -> str:
    version = proc.run([*compiler, "--version"])
    if version.status != 0:
        raise ToolchainError(f"{compiler[0]!r} is no C++ compiler: --version fails", _HINT)
    words = [*compiler, *_flags(compiler, extra_flags), *LINK_FLAGS]
    return digest(source_digest(src).encode(), version.stdout.encode(), *map(encode, words))


def _compile(
    out: Path,
    compiler: Sequence[str],
    src: Path,
    sources: Sequence[Path],
    extra_flags: Sequence[str],
    jobs: int | None,
) -> list[Path]:
    objects = [out / f"{source.stem}.o" for source in sources]
    out.mkdir(parents=True, exist_ok=True)
    stamp_file = out / "stamp"
    stamp = digest(_stamp(compiler, src, extra_flags).encode(), *(encode(s.name) for s in sources)).encode()
    with FileLock(out / ".objects.lock"):
        if stamp_file.is_file() and stamp_file.read_bytes() == stamp and all(o.is_file() for o in objects):
            return objects
        stamp_file.unlink(missing_ok=True)
        write_if_different(out / "lazyck_abi.h", abi.render_header().encode())

        def compile_one(source: Path, target: Path) -> None:
            # -iquote: the runtime's headers must not stand in for system headers of the same name.
            argv = [*compiler, *_flags(compiler, extra_flags), "-iquote", str(src), "-iquote", str(out)]
            argv += ["-c", str(source), "-o", str(target)]
            proc.check(f"compiling lazyck's runtime ({source.name})", argv, hint=_HINT)

        with ThreadPoolExecutor(jobs or os.cpu_count() or 1) as pool:
            for done in [pool.submit(compile_one, s, o) for s, o in zip(sources, objects, strict=True)]:
                done.result()
        write_atomic(stamp_file, stamp)
    return objects
