"""Build the shim's program once per user and digest, and install it under every name that it stands
for, each with a file that tells what this name stands for (conf.c has the grammar).
"""

import contextlib
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from lazyck import abi, proc
from lazyck.errors import CommandError, ToolchainError, UsageError
from lazyck.files import digest, encode, own_folder, write_atomic, write_if_different
from lazyck.formats.c_header import render_header
from lazyck.settings.environment import tools_dir
from lazyck.toolchains import HOST, Toolchain, by_name, lookup

SOURCE_DIR = Path(__file__).parent
_FLAGS = ("-O2", "-std=gnu11", "-Wall", "-Wextra")
LAUNCHER = "lazyck-launch"
# CMake takes these for the initial values of its variables of the same names. It has no launcher
# for the links of CUDA and HIP. CUDA's links are done by the host compiler, which comes from PATH
# unless the project names it (see `unseen-link`). HIP's links are done by the very compiler that
# has no shim, so HIP is left alone except in `INCLUDE_TEXT`.
_LAUNCHER_VARIABLES = (
    "CMAKE_C_COMPILER_LAUNCHER",
    "CMAKE_CXX_COMPILER_LAUNCHER",
    "CMAKE_CUDA_COMPILER_LAUNCHER",
    "CMAKE_C_LINKER_LAUNCHER",
    "CMAKE_CXX_LINKER_LAUNCHER",
)
INCLUDE_TEXT = """# Written by lazyck, for `cmake -DCMAKE_PROJECT_INCLUDE=<this file>` under `lazyck build full`:
# compiles and links in the languages CUDA and HIP go by way of lazyck, whatever the paths of their compilers.
set(CMAKE_CUDA_COMPILER_LAUNCHER [[{program}]] {links})
set(CMAKE_HIP_COMPILER_LAUNCHER [[{program}]] {links})
set_property(GLOBAL PROPERTY RULE_LAUNCH_LINK [["{program}"]])
"""


@dataclass(frozen=True)
class ShimConf:
    """Describe one shim: its name, its toolchain, and the argv prefix of the real command.

    `target` is the triple that the compiler makes code for; if it is empty, the compiler's name
    begins with the triple. `launch` is for the launcher, a shim that runs the compiler which
    its first word names. It lists pairs: a pattern for the compiler's name, and the configuration
    to use then.
    """

    tool: str
    toolchain: Toolchain
    real: tuple[str, ...]
    target: str
    launch: tuple[tuple[str, str], ...] = ()

    @property
    def compiler(self) -> tuple[str, ...]:
        return lookup.without_launchers(self.real)


@dataclass(frozen=True)
class SharedConf:
    blobs: tuple[str, ...]  # globs
    log: str
    compiles: str  # list of compiles, for compile_commands.json
    headers: str  # directory of header lists
    links: str  # directory of records of links
    python: str
    bootstrap: str  # Python source that starts the post-build
    path_map: tuple[tuple[str, str], ...]  # path of a shim or shim home, path that it stands for
    env_names: tuple[str, ...]  # variables to which `path_map` applies
    restore: tuple[tuple[str, str, str], ...]  # variable, lazyck's value, the previous value (empty: unset)
    shim_dirs: tuple[str, ...]  # to be removed from PATH
    # Toolchain → (variable, value, reason): a compile is passed on if the variable has the value.
    # An empty value also matches an unset variable.
    pass_when: Mapping[str, tuple[tuple[str, str, str], ...]] = field(default_factory=dict)
    listed: str = ""  # a file that names blobs one by one, each followed by a NUL, in addition to the globs
    units: tuple[str, ...] | None = ()  # globs of what is compiled by kernel; None: the toolchain's own


def render(shim: ShimConf, shared: SharedConf) -> bytes:
    """Return the bytes of `<tool>.conf`. Raises `UsageError` for a NUL byte in a value."""
    t, compiler = shim.toolchain, shim.compiler
    entries: dict[str, Any] = {
        **vars(shared),
        **vars(shim),
        "compiler": compiler,
        "toolchain": t.name,
        "lists_paths": "1" if t.lists_paths else "",  # whether an option may name several headers or directories
        "units": t.unit_globs if shared.units is None else shared.units,
        # Behind each suffix or language is its toolchain, or `!` and the reason to pass it on.
        "suffixes": [(s, t.foreign_suffixes.get(s, "")) for s in t.source_suffixes if t.understands(compiler, s)],
        "languages": [(x, name) for x, name in t.languages.items() if t.understands(compiler, x)],
        "flag_env": _flag_env(t),
        "option_env": t.option_env,
        "pass_when": shared.pass_when.get(t.name, ()),
        "launchers": sorted(lookup.LAUNCHERS),
    }
    texts = [_entry(key, [entries[key]]) for key in abi.SHIM_TEXTS]
    lists = (_rules(t) if key == "rules" else _entry(key, entries[key]) for key in abi.SHIM_LISTS)
    return b"".join([*texts, *lists])


@lru_cache
def _rules(toolchain: Toolchain) -> bytes:
    """Return the entry of the toolchain's thousands of options, which its shims share."""
    return _entry("rules", [(r.mode.value + r.role.value, r.text, r.reason) for r in toolchain.table.rules])


def _flag_env(toolchain: Toolchain) -> tuple[str, ...]:
    followed = [n for n in (*toolchain.languages.values(), *toolchain.foreign_suffixes.values()) if n and n[0] != "!"]
    names = (*toolchain.flag_env, *(v for n in followed for v in by_name(n).flag_env))
    return tuple(dict.fromkeys(names))


def _entry(key: str, rows: Iterable[str | tuple[str, ...]]) -> bytes:
    values = [word for row in rows for word in ([row] if isinstance(row, str) else row)]
    for value in values:
        if "\0" in value:
            raise UsageError(f"a NUL byte in {value!r}", "remove it")
    return b"".join(os.fsencode(w) + b"\0" for w in (key, str(len(values)), *values))


def sources() -> list[Path]:
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
    header = render_header().encode()
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
    with contextlib.suppress(FileNotFoundError):
        target.unlink()
    try:
        target.hardlink_to(program)
    except OSError:  # for a file system without hard links
        write_atomic(target, program.read_bytes(), 0o755)


def install_conf(directory: Path, name: str, shim: ShimConf, shared: SharedConf) -> Path:
    path = lookup.conf_of(str(directory / name))
    write_if_different(path, render(shim, shared))
    return path


def launcher_variables(directory: Path, env: Mapping[str, str]) -> dict[str, str]:
    """Return CMake's launcher variables, for the launcher in `directory`. The user's own launcher
    comes after lazyck's, so that it sees only what the real compiler does.
    """
    program = str(directory / LAUNCHER)
    if ";" in program:  # CMake would take it for two words
        return {}
    found = {}
    for variable in _LAUNCHER_VARIABLES:
        own = [word for word in env.get(variable, "").split(";") if word and not lookup.is_shim(word)]
        found[variable] = ";".join((program, *own))
    return found


def install_launcher(program: Path, directory: Path, toolchains: Sequence[Toolchain], shared: SharedConf) -> Path:
    """Make `directory/lazyck-launch`, which stands for any compiler of `toolchains`, and return its
    path. CMake writes it before a compiler that a project names by its path, where no shim can be.
    """
    rows: list[tuple[str, str]] = []
    for t in toolchains:
        prefixed = [f"*-*-{family}" for family in lookup.FAMILIES] if t is HOST else []
        for names, kind, target in ((t.tools, "", platform.machine()), (prefixed, "-prefixed", "")):
            for family in ("clang", ""):  # the family is told by the name, since there is no compiler to ask yet
                own = [name for name in names if ("clang" in name) == (family == "clang")]
                chosen = [pattern for name in own for pattern in (name, f"{name}-[0-9]*")]
                if chosen:
                    conf = ShimConf(LAUNCHER, t, (f"/nonexistent/{family or t.tools[0]}",), target)
                    path = install_conf(directory, f"launch-{t.name}{family}{kind}", conf, shared)
                    rows += [(pattern, str(path)) for pattern in chosen]
    launcher = ShimConf(LAUNCHER, HOST, ("/nonexistent",), platform.machine(), tuple(rows))
    return install(program, directory, launcher, shared)
