"""Install `lazyck-launch`, which CMake writes before a compiler that a project names by its path,
where no shim can be.
"""

import platform
from collections.abc import Mapping, Sequence
from pathlib import Path

from _lazyck.files import encode, write_if_different
from _lazyck.interceptor import shims
from _lazyck.interceptor.conf import SharedConf, ShimConf
from _lazyck.toolchains import HOST, Toolchain, lookup

PROGRAM = "lazyck-launch"
# CMake takes these for the initial values of its variables of the same names. It has no launcher
# for the links of CUDA and HIP. CUDA's links are done by the host compiler, which comes from PATH
# unless the project names it (see `unseen-link`). HIP's links are done by the very compiler that
# has no shim, so HIP is left alone except in `INCLUDE`.
_VARIABLES = (
    "CMAKE_C_COMPILER_LAUNCHER",
    "CMAKE_CXX_COMPILER_LAUNCHER",
    "CMAKE_CUDA_COMPILER_LAUNCHER",
    "CMAKE_C_LINKER_LAUNCHER",
    "CMAKE_CXX_LINKER_LAUNCHER",
)
INCLUDE = "lazyck.cmake"
_INCLUDE_TEXT = """# Written by lazyck, for `cmake -DCMAKE_PROJECT_INCLUDE=<this file>` under `lazyck build full`:
# compiles and links in the languages CUDA and HIP go by way of lazyck, whatever the paths of their compilers.
set(CMAKE_CUDA_COMPILER_LAUNCHER [[{program}]] --links)
set(CMAKE_HIP_COMPILER_LAUNCHER [[{program}]] --links)
set_property(GLOBAL PROPERTY RULE_LAUNCH_LINK [["{program}"]])
"""
_NO_COMPILER = ("/nonexistent",)  # the launcher's words name the compiler


def variables(directory: Path, env: Mapping[str, str]) -> dict[str, str]:
    """Return CMake's launcher variables, for the launcher in `directory`. The user's own launcher
    comes after lazyck's, so that it sees only what the real compiler does.
    """
    program = str(directory / PROGRAM)
    if ";" in program:  # CMake would take it for two words
        return {}
    found = {}
    for variable in _VARIABLES:
        own = [word for word in env.get(variable, "").split(";") if word and not lookup.is_shim(word)]
        found[variable] = ";".join((program, *own))
    return found


def install(program: Path, directory: Path, toolchains: Sequence[Toolchain], shared: SharedConf) -> Path:
    """Make `directory/lazyck-launch`, which stands for any compiler of `toolchains`, and return its
    path.
    """
    rows: list[tuple[str, str]] = []
    for t in toolchains:
        prefixed = [f"*-*-{family}" for family in lookup.FAMILIES] if t is HOST else []
        for names, kind, target in ((t.tools, "", platform.machine()), (prefixed, "-prefixed", "")):
            for family in ("clang", ""):  # the family is told by the name, since there is no compiler to ask yet
                own = [name for name in names if ("clang" in name) == (family == "clang")]
                chosen = [pattern for name in own for pattern in (name, f"{name}-[0-9]*")]
                if chosen:
                    compiler = (f"/nonexistent/{family or t.tools[0]}",)
                    conf = ShimConf(PROGRAM, t, compiler, compiler, target)
                    path = shims.install_conf(directory, f"launch-{t.name}{family}{kind}", conf, shared)
                    rows += [(pattern, str(path)) for pattern in chosen]
    launcher = ShimConf(PROGRAM, HOST, _NO_COMPILER, _NO_COMPILER, platform.machine(), tuple(rows))
    return shims.install(program, directory, launcher, shared)


def renew(program: Path, tmp: Path) -> None:
    """Replace the shims that calls have made for compilers by their paths (`shim_by_path` in
    launch.c): a build tree that was configured before refers to them.
    """
    for shim in [path for path in (tmp / "by-path").rglob("*") if path.is_file()]:
        shims.replace_program(program, shim)


def write_include(program: Path, directory: Path) -> None:
    """Write the file for `CMAKE_PROJECT_INCLUDE` into `directory`. `program` is the launcher."""
    write_if_different(directory / INCLUDE, encode(_INCLUDE_TEXT.format(program=program)))
