"""Builds the C++ runtime: objects for a lazy library, and the tool `lazyck-rt`; also `lazyck-unit`.
Unchanged parts are not compiled again.

The package's own sources are compiled together, as one. A user waits for this before the first
library. Most of the time would go into reading the C++ library's headers once for each of 60 files,
and into the code that every file makes of them. Sources elsewhere (LAZYCK_RUNTIME_SRC) are under
development: each is compiled by itself when it has changed.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from lazyck import abi, proc, waiting
from lazyck.errors import BuildError, FormatError
from lazyck.files import digest, encode, write_atomic, write_if_different
from lazyck.formats.c_header import render_header
from lazyck.machines import MACHINES
from lazyck.runtime import shipped
from lazyck.runtime.hide import joined, set_apart
from lazyck.settings.environment import cores
from lazyck.toolchains.base import accepts, machine_for
from lazyck.toolchains.identity import version_of

SOURCES = Path(__file__).parent / "src"
OBJECTS = "objects"  # the store of objects in the user's directory of tools
# The groups of sources that make one object each. A source without an entry here belongs to the
# runtime's. Names in an unnamed namespace are shared by all sources of an object.
_RUNTIME, _DIGESTS, _TOOL = "runtime", "digests", "tool"
_GROUPS = {
    "base/hash.cpp": _DIGESTS,
    "entrance/tool_main.cpp": _TOOL,
    "entrance/tool_make.cpp": _TOOL,
}

# No -fno-exceptions, sanitizer or -march: the objects must fit any project's.
CXX_FLAGS = (
    "-std=c++17",
    "-g0",
    "-fPIC",
    "-pthread",
    "-fvisibility=hidden",
    "-fvisibility-inlines-hidden",
    "-Wall",
    "-Wextra",
)
# The digests go over every byte that is loaded. The other code is large and seldom called: what
# counts is how long it takes to compile, and its size.
_FAST = ("-O2",)
# g++ collects its garbage only at this many KiB, which are never reached.
_SMALL = {"g++": ("-Og", "--param=ggc-min-heapsize=524288"), "clang": ("-Oz",)}
_SMALLEST = ("-Os",)
# This flag is used if the compiler knows it. A static of an inline function must not become a
# unique symbol, which would pin a library past its dlclose and share the static between libraries.
UNPIN_FLAG = "-fno-gnu-unique"
LINK_FLAGS = shipped.TOOL_LINK_FLAGS
_LAYOUT = "8"  # of the objects in the store, apart from compiler and flags: see hide.py
_HINT = "the runtime needs g++ 9 or clang++ 14, or a newer one; CXX names the compiler"


def source_digest(src: Path = SOURCES) -> str:
    """Return a digest of the runtime's sources and of the names that they share with Python."""
    return digest(render_header().encode(), *_texts(src, _sources(src, "*")))


def compile_objects(
    store: Path, compiler: Sequence[str], src: Path = SOURCES, extra_flags: Sequence[str] = (), jobs: int | None = None
) -> list[Path]:
    """Return the objects that turn stubs into a lazy library, for the machine that `compiler`, an
    argv prefix, makes code for. Each that `store` lacks is compiled, and named by what it was made
    of, so that one store serves all compilers and processes. The compiler's messages are kept
    beside it. Raises `BuildError`, `CommandError`, `ToolchainError`."""
    machine = machine_for(compiler)
    trampoline = src / "machine" / f"stub_{machine}.S"
    if not trampoline.is_file():
        raise BuildError(
            f"lazyck has no stubs for machine {machine!r}", f"build for one of: {', '.join(sorted(MACHINES))}"
        )
    units = [*_units(src, with_tool=False), _RuntimeObject(trampoline.stem, (trampoline,))]
    return _compile(store, compiler, src, units, extra_flags, jobs)


def build_tool(out: Path, compiler: Sequence[str], src: Path = SOURCES, extra_flags: Sequence[str] = ()) -> Path:
    """Return the executable `lazyck-rt`, built below `out` in a directory for each state of sources
    and compiler, of objects in `out`/`OBJECTS`. Several processes may do this at once. Raises
    `CommandError`, `ToolchainError`."""
    compiler = canonical(compiler)
    tool = tool_path(out, compiler, src, extra_flags)
    if tool.is_file():
        return tool
    objects = _compile(out / OBJECTS, compiler, src, _units(src, with_tool=True), extra_flags)
    return link_program(tool, [*compiler, *extra_flags], objects)


def link_program(program: Path, compiler: Sequence[str], objects: Sequence[Path], *flags: str) -> Path:
    """Link `program` if it does not exist, and return it. Raises `CommandError`,
    `ToolchainError`."""
    program.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(program.parent / ".lock"):
        if not program.is_file():
            temporary = program.with_suffix(".new")
            argv = [*compiler, *map(str, objects), "-o", str(temporary), *LINK_FLAGS, *flags]
            proc.check(f"linking {program.name}", argv, hint=_HINT)
            temporary.replace(program)
    return program


def compile_program(store: Path, compiler: Sequence[str], src: Path, name: str, header: str) -> Path:
    """Return the object of all sources in `src`, compiled as `compile_objects` does. `header` is
    more text for their lazyck_abi.h."""
    unit = _RuntimeObject(name, tuple(_sources(src, "*.cpp")), is_fast=True, is_apart=False)
    return _compile(store, compiler, src, [unit], header=header, what=name)[0]


def objects_for_wheels(store: Path, compiler: Sequence[str]) -> dict[str, tuple[str, Path]]:
    """Return keys and objects, by name, that `shipped.write` puts into a wheel. They are
    optimised for size, because no build waits for them. Raises `CommandError`, `ToolchainError`."""
    made = compile_objects(store, compiler, extra_flags=_SMALLEST)
    made += _compile(store, compiler, SOURCES, _units(SOURCES, with_tool=True), _SMALLEST)
    made += _compile(store, compiler, SOURCES, [u for u in _units(SOURCES, with_tool=False) if u.is_fast])
    found = {path.name: (path.parent.name, path) for path in made}
    program = found[shipped.TOOL[0]][1].with_name(shipped.PROGRAM)
    objects = [str(found[name][1]) for name in shipped.TOOL]
    argv = [*compiler, *objects, "-o", str(program), *shipped.PROGRAM_LINK_FLAGS, "-s"]
    proc.check("linking lazyck-rt", argv, hint=_HINT)
    return found | {shipped.PROGRAM: (source_digest(), program)}


def shipped_tool(out: Path) -> Path | None:
    """Return the executable `lazyck-rt` that came with this wheel, or None. It is copied below
    `out`, because installers may take the mode of a program away."""
    key = source_digest()
    program = shipped.find_program(key)
    tool = out / f"shipped-{key[:16]}" / shipped.PROGRAM
    if program and not tool.is_file():
        write_atomic(tool, program.read_bytes(), 0o755)
    return tool if program else None


def tool_path(out: Path, compiler: Sequence[str], src: Path = SOURCES, extra_flags: Sequence[str] = ()) -> Path:
    stamp = digest(_command_stamp(canonical(compiler), extra_flags).encode(), source_digest(src).encode())
    return out / stamp[:16] / "lazyck-rt"


def canonical(compiler: Sequence[str]) -> tuple[str, ...]:
    """Return the compiler under one name. `c++`, `g++` and `/usr/bin/g++` are links to one program,
    which does not look at its name. (Clang, and the links of ccache, do.)"""
    path = compiler[0] if "/" in compiler[0] else proc.find_program(compiler[0])
    real = os.path.realpath(path) if path else ""
    return (real if "g++" in os.path.basename(real) else compiler[0], *compiler[1:])


def together(src: Path, sources: Iterable[Path]) -> bytes:
    """Return the text of a source that includes all of `sources` by their paths in `src`."""
    return "".join(f'#include "{s.relative_to(src).as_posix()}"\n' for s in sorted(sources)).encode()


def _sources(src: Path, pattern: str) -> list[Path]:
    found = sorted(p for p in src.rglob(pattern) if p.suffix in (".cpp", ".h", ".hpp", ".S"))
    if not found:
        raise FormatError(f"{src}: no runtime sources here", f"check {abi.ENV_RUNTIME_SRC}, or install lazyck again")
    return found


def _texts(src: Path, files: Iterable[Path]) -> Iterator[bytes]:
    for path in files:
        yield encode(path.relative_to(src).as_posix())
        yield path.read_bytes()


@dataclass(frozen=True)
class _RuntimeObject:
    """The sources of one object, the object's name, and whether its code must be fast. With
    `is_apart`, its names cannot meet those of a lazy library."""

    name: str
    sources: tuple[Path, ...]
    is_fast: bool = False
    is_apart: bool = True


def _units(src: Path, *, with_tool: bool) -> list[_RuntimeObject]:
    groups: dict[tuple[str, bool], list[Path]] = {}
    for source in _sources(src, "*.cpp"):
        group = _GROUPS.get(source.relative_to(src).as_posix(), _RUNTIME)
        if with_tool or group != _TOOL:
            groups.setdefault((group if src == SOURCES else source.stem, group == _DIGESTS), []).append(source)
    return [_RuntimeObject(name, tuple(sources), is_fast) for (name, is_fast), sources in groups.items()]


def _flags(compiler: Sequence[str], extra_flags: Sequence[str]) -> list[str]:
    machine = MACHINES.get(machine_for(compiler))
    wanted = (UNPIN_FLAG, *(machine.flags if machine else ()))
    known = [flag for flag in wanted if accepts(tuple(compiler), (flag,), "c++")]
    return [*CXX_FLAGS, *known, *extra_flags]


def _command_stamp(compiler: Sequence[str], extra_flags: Sequence[str]) -> str:
    words = [_LAYOUT, machine_for(compiler), *compiler, *_flags(compiler, extra_flags), *LINK_FLAGS]
    words += [*_FAST, *(word for flags in _SMALL.values() for word in flags)]
    return digest(encode(version_of(tuple(compiler))), *map(encode, words))


def _compile(
    store: Path,
    compiler: Sequence[str],
    src: Path,
    units: Sequence[_RuntimeObject],
    extra_flags: Sequence[str] = (),
    jobs: int | None = None,
    *,
    header: str = "",
    what: str = "lazyck's runtime",
) -> list[Path]:
    compiler = canonical(compiler)
    directory = store / _command_stamp(compiler, extra_flags)[:16]
    abi_header = (render_header() + header).encode()
    # Any source may include any header: a dependency scanner would not be worth its complexity.
    headers = [p for p in _sources(src, "*") if p.suffix in (".h", ".hpp")]
    common = digest(abi_header, *_texts(src, headers))
    keys = [digest(common.encode(), unit.name.encode(), *_texts(src, unit.sources))[:16] for unit in units]
    objects = [directory / key / f"{unit.name}.o" for unit, key in zip(units, keys, strict=True)]
    if all(o.is_file() for o in objects):
        return objects
    directory.mkdir(parents=True, exist_ok=True)
    if not extra_flags:
        for key, target in zip(keys, objects, strict=True):
            found = shipped.find(compiler, target.name, key)
            if found and not target.is_file():
                target.parent.mkdir(exist_ok=True)
                write_atomic(target, found.read_bytes())
        if all(o.is_file() for o in objects):
            return objects
    # With -iquote the runtime's headers cannot take the place of system headers of the same name.
    include = directory / f"abi-{digest(abi_header)[:16]}"
    argv = [*_flags(compiler, extra_flags), "-iquote", str(src), "-iquote", str(include)]
    small = _SMALL["clang" if accepts(compiler, ("-Xclang", "-Oz"), "c++") else "g++"]

    def compile_one(unit: _RuntimeObject, target: Path) -> None:
        temporary = target.with_suffix(".new.o")
        temporary.parent.mkdir(exist_ok=True)
        source, assembly = unit.sources[0], target.with_suffix(".new.s")
        words = [*compiler, *(_FAST if unit.is_fast else small), *argv]
        if len(unit.sources) > 1:
            source = target.with_suffix(".cpp")
            write_atomic(source, together(src, unit.sources))
        # clang takes minutes to print what sanitizers add.
        is_joined = len(unit.sources) > 1 and not extra_flags
        words += ["-S", str(source), "-o", str(assembly)] if is_joined else ["-c", str(source), "-o", str(temporary)]
        said = proc.check(f"compiling {what} ({source.name})", words, hint=_HINT).stderr
        if is_joined:
            assembly.write_bytes(joined(assembly.read_bytes()))
            words = [*compiler, "-c", str(assembly), "-o", str(temporary)]
            proc.check(f"assembling {what} ({source.name})", words, hint=_HINT)
            assembly.unlink()
        if said:
            write_atomic(target.with_suffix(".log"), said.encode(errors="replace"))
        if unit.is_apart:
            set_apart(temporary)
        temporary.replace(target)

    while_compiling = waiting.saying(f"compiling {what} with {os.path.basename(compiler[0])}, once for all libraries")
    with while_compiling, FileLock(directory / ".lock"):
        write_if_different(include / "lazyck_abi.h", abi_header)
        pool = ThreadPoolExecutor(jobs or cores())
        try:
            missing = [(u, o) for u, o in zip(units, objects, strict=True) if not o.is_file()]
            for done in as_completed([pool.submit(compile_one, u, o) for u, o in missing]):
                done.result()
        finally:
            pool.shutdown(cancel_futures=True)
    return objects
