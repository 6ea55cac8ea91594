"""Build the shim's program once per user and digest, and install it under every name that it stands
for.
"""

import contextlib
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path

from _lazyck import abi, proc
from _lazyck.config import tools_dir
from _lazyck.errors import CommandError, ToolchainError
from _lazyck.files import digest, encode, own_folder, write_atomic, write_if_different
from _lazyck.interceptor.conf import SharedConf, ShimConf, render
from _lazyck.toolchains import HOST, lookup

SOURCE_DIR = Path(__file__).parent
_FLAGS = ("-O2", "-std=gnu11", "-Wall", "-Wextra")


def sources() -> list[Path]:
    """Return the shim's C files."""
    return sorted(SOURCE_DIR.glob("*.c"))


def c_compiler(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the real host compiler for C. Raises `ToolchainError` if there is none."""
    for name in ("cc", "gcc", "clang"):
        if path := lookup.which(name, env):
            return (path,)
    if words := lookup.compiler_of("CC", env):
        return words
    found = HOST.find(env)
    if found is None:
        raise ToolchainError(
            "no C compiler found (cc, gcc or clang on PATH, CC, CXX): lazyck's shim cannot be built",
            "install one (Debian, Ubuntu: `apt install g++`) or set CC and CXX",
        )
    return (*found.compiler, "-x", "c")


def build_shim(tmp: Path, env: Mapping[str, str], extra: Sequence[str] = ()) -> Path:
    """Return the compiled shim in the tmp dir. The user's other tmp dirs share the program. `extra`
    are compiler flags.
    """
    compiler = c_compiler(env)
    header = abi.render_header().encode()
    texts = [p.read_bytes() for p in (*sources(), SOURCE_DIR / "shim.h")]
    tag = digest(header, *texts, *map(encode, (*compiler, *_FLAGS, *extra)))[:16]
    program = tmp / "shim" / tag / "shim"
    if program.exists():
        return program
    kept = None if extra else own_folder(tools_dir(env), "shim")
    shared = kept / f"{platform.machine()}-{tag}" if kept else None
    if shared and shared.is_file():
        write_atomic(program, shared.read_bytes(), 0o755)
        return program
    include = program.parent / "include"
    write_atomic(include / "lazyck_abi.h", header)
    fresh = program.with_name("shim.new")
    places = ("-I", str(include), "-I", str(SOURCE_DIR))
    argv = [*compiler, *_FLAGS, *extra, *places, *map(str, sources()), "-o", str(fresh)]
    # A static program starts in half the time and runs on every machine, but libc.a may be missing.
    is_static = not extra and proc.run([*argv, "-static"], env=env).status == 0
    if not is_static:
        result = proc.run(argv, env=env)
        if result.status != 0 or not fresh.exists():
            hint = "check that this C compiler works"
            raise CommandError("compiling lazyck's shim", argv, result.status, result.stdout + result.stderr, hint)
    fresh.replace(program)
    if shared and is_static:
        with contextlib.suppress(OSError):
            write_atomic(shared, program.read_bytes(), 0o755)
    return program


def install(program: Path, directory: Path, shim: ShimConf, shared: SharedConf) -> Path:
    """Make `directory/<tool>` a shim, and return its path. It is a real file, since `realpath` must
    not lead to the program.
    """
    install_conf(directory, shim.tool, shim, shared)
    target = directory / shim.tool
    replace_program(program, target)
    return target


def replace_program(program: Path, target: Path) -> None:
    """Make `target` the shim's `program`, whatever it was before."""
    with contextlib.suppress(FileNotFoundError):
        target.unlink()
    try:
        target.hardlink_to(program)
    except OSError:  # for a file system without hard links
        write_atomic(target, program.read_bytes(), 0o755)


def install_conf(directory: Path, name: str, shim: ShimConf, shared: SharedConf) -> Path:
    """Write a configuration without a program of its own, and return its path."""
    path = directory / lookup.CONF_DIR / f"{name}.conf"
    write_if_different(path, render(shim, shared))
    return path
