"""Set up the interceptor: find the real compilers, lay out shims and shim homes, and tell how to
call the build.
"""

import os
import platform
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import lazyck
from lazyck import abi, proc
from lazyck.errors import ToolchainError, UsageError
from lazyck.files import encode, write_if_different
from lazyck.interceptor import homes, shims
from lazyck.interceptor.shims import SharedConf, ShimConf
from lazyck.toolchains import ALL, CUDA, HOST, Found, Toolchain, by_name, cuda_places, lookup
from lazyck.toolchains.base import target

_NO_CACHES = ("CCACHE_DISABLE", "SCCACHE_NO_CACHE", "SCCACHE_RECACHE")
# variable that names a compiler → toolchain
_COMPILER_VARIABLES = {variable: t for t in ALL for variable in t.compiler_env}
# further variables in which a build may hand a shim's path to a compiler
_PASSED_ON = ("HIP_CLANG_PATH", "HIP_ROCCLR_HOME", "HSA_PATH", "OMPI_CXX", "OMPI_CC", "MPICH_CXX")


@dataclass(frozen=True)
class Interception:
    """Tell how to call the build, by its environment, and what was set up for it."""

    env: dict[str, str]
    bin_dirs: tuple[str, ...]
    log: Path
    compiles: Path
    found: tuple[Found, ...]
    home_map: dict[str, str]


@dataclass
class _Plan:
    """Collect the shims to make, each with its directory, and the real paths behind the paths that
    builds see.
    """

    shims: list[tuple[Path, ShimConf]] = field(default_factory=list)
    path_dirs: list[Path] = field(default_factory=list)
    set_env: dict[str, str] = field(default_factory=dict)
    home_map: dict[str, str] = field(default_factory=dict)
    implied: dict[str, tuple[str, ...]] = field(default_factory=dict)  # unset variable → the compiler that it implies

    def add(self, directory: Path, toolchain: Toolchain, real: tuple[str, ...], tool: str = "") -> Path:
        compiler = lookup.without_launchers(real)
        name = tool or Path(compiler[0]).name
        machine = platform.machine()  # of hipcc and nvcc, unless an option says otherwise
        if not toolchain.home_env:
            machine = target(compiler) or lookup.target_of(Path(compiler[0]).name) or machine
        self.shims.append((directory, ShimConf(name, toolchain, real, machine)))
        return directory / name


def set_up(
    tmp: Path,
    toolchain_choice: str,
    blobs: Sequence[str],
    env: Mapping[str, str],
    *,
    python: str,
    verbose: bool,
    units: Sequence[str] | None = (),
) -> Interception:
    """Make the shims under `tmp`, and return the environment in which the build finds them. They
    defer `blobs`, and compile `units` by kernel (None: what each toolchain does by default).

    Raises `ToolchainError` if a toolchain was requested and is missing, and `UsageError` for an
    unusable `tmp`.
    """
    tmp = tmp.absolute()
    if os.pathsep in str(tmp):
        raise UsageError(f"{tmp}: a path with {os.pathsep!r} in it cannot be on PATH", "give another --tmp-dir")
    given, env = env, proc.anchored(env)  # the build's compilers are those that it would find without lazyck
    found = find_toolchains(toolchain_choice, env)
    for name in ("bin", "named", "headers"):
        shutil.rmtree(tmp / name, ignore_errors=True)
    plan = _Plan()
    plan.path_dirs.append(tmp / "bin")
    for toolchain in dict.fromkeys((HOST, *(f.toolchain for f in found))):
        if not toolchain.home_env:
            plan_on_path(plan, tmp, toolchain, env)
    with_home = [f for f in found if f.toolchain.home_env]
    for f in with_home:
        plan_home(plan, tmp, f, with_home, env)
    plan_variables(plan, tmp, found, env)
    plan.set_env.update(shims.launcher_variables(tmp / "bin", env))
    by_kernel = None if units is None else tuple(units)
    shared = replace(shared_conf(plan, tmp, found, blobs, python, env), units=by_kernel)
    program = shims.build_shim(tmp, given)
    for directory, shim in plan.shims:
        shims.install(program, directory, shim, shared)
    launcher = shims.install_launcher(program, tmp / "bin", chosen_toolchains(toolchain_choice), shared)
    text = shims.INCLUDE_TEXT.format(program=launcher, links=abi.OPTION_LINKS)
    write_if_different(tmp / "lazyck.cmake", encode(text))
    # A build tree that was configured before refers to shims that calls have made for compilers by
    # their paths (`shim_by_path` in launch.c).
    for old in [path for path in (tmp / "by-path").rglob("*") if path.is_file()]:
        shims.replace_program(program, old)
    for file in (shared.log, shared.compiles):
        Path(file).unlink(missing_ok=True)
    if verbose:
        for f in found:
            sys.stderr.write(
                f"lazyck: {f.toolchain.name}: {' '.join(f.compiler)}" + (f" ({f.home})\n" if f.home else "\n")
            )
    bin_dirs = tuple(str(d) for d in plan.path_dirs)
    path = os.pathsep.join((*bin_dirs, given.get("PATH", os.defpath)))
    build_env = {**given, **plan.set_env, "PATH": path}
    return Interception(build_env, bin_dirs, Path(shared.log), Path(shared.compiles), found, plan.home_map)


def set_up_launcher(
    tmp: Path, toolchain_choice: str, sources: Sequence[str], env: Mapping[str, str], *, python: str, programs: Path
) -> tuple[Found, ...]:
    """Make only a launcher, `tmp/bin/lazyck-launch`, for a build that calls it by itself: there are
    no shims, and nothing in the environment leads to it. Return the toolchains found.

    The launcher defers `sources`, which are absolute paths, and no others. Its program is compiled
    in `programs`, once for all launchers that share this directory. Raises the errors of `set_up`.
    """
    given, env = env, proc.anchored(env)
    found = find_toolchains(toolchain_choice, env)
    for name in ("headers", "links"):
        shutil.rmtree(tmp / name, ignore_errors=True)
    listed = tmp / "sources"
    write_if_different(listed, b"".join(encode(s) + b"\0" for s in sources))
    shared = replace(shared_conf(_Plan(), tmp, found, (), python, env), listed=str(listed))
    shims.install_launcher(shims.build_shim(programs, given), tmp / "bin", chosen_toolchains(toolchain_choice), shared)
    for file in (shared.log, shared.compiles):
        Path(file).unlink(missing_ok=True)
    return found


def chosen_toolchains(choice: str) -> list[Toolchain]:
    """Return the toolchains that --toolchain means, whether present or not, and the host's."""
    return [t for t in ALL if choice in ("auto", t.name) or t is HOST]


def find_toolchains(choice: str, env: Mapping[str, str]) -> tuple[Found, ...]:
    """Return the chosen toolchain, or for `auto` all that are present, and the host's. Raises
    `ToolchainError` and `UsageError`.
    """
    known = [t.name for t in ALL]
    if choice != "auto" and choice not in known:
        raise UsageError(f"--toolchain {choice!r}: no such toolchain", f"give one of auto, {', '.join(known)}")
    found = [f for f in (t.find(env) for t in chosen_toolchains(choice)) if f is not None]
    if choice != "auto" and all(f.toolchain.name != choice for f in found):
        toolchain = by_name(choice)
        raise ToolchainError(
            f"no {choice} toolchain found (looked at {toolchain.searched})",
            f"install it, or set {(*toolchain.home_env, *toolchain.compiler_env)[0]} to where it is",
        )
    return tuple(found)


def plan_on_path(plan: _Plan, tmp: Path, toolchain: Toolchain, env: Mapping[str, str]) -> None:
    """Plan shims for a toolchain's compilers on PATH, under the names that they have there."""
    wanted = [*toolchain.tools, *(lookup.host_names(env) if toolchain is HOST else ())]
    for variable in toolchain.compiler_env:
        wanted += [Path(w).name for w in lookup.compiler_of(variable, env)[:1]]
    taken = {s.tool for d, s in plan.shims if d == tmp / "bin"}
    for name in dict.fromkeys(wanted):
        path = lookup.which(name, env)
        if path and name not in taken:
            plan.add(tmp / "bin", toolchain, (path,), name)


@dataclass
class _ShimHomes:
    """Make the shim homes of one toolchain. If two toolchains share a home, each of its shim homes
    has the shims of both.
    """

    plan: _Plan
    tmp: Path
    toolchain: Toolchain
    programs: Mapping[str, str]  # place below a home → toolchain of its shim
    made: dict[str, Path] = field(default_factory=dict)

    def add_shims(self, target: Path, home: str, places: Mapping[str, str]) -> None:
        for place, program in places.items():
            toolchain = by_name(self.programs[program])
            self.plan.add((target / place).parent, toolchain, (f"{home}/{place}",), Path(place).name)

    def of(self, home: str) -> Path:
        """Return the shim home that stands for the whole of `home`."""
        home = os.path.normpath(home)
        if home not in self.made:
            # The name has a dot: tools that search a project for packages skip such directories,
            # and do not follow the links in them through the whole toolchain.
            target = self.tmp / (f"home.{self.toolchain.name}" + (f"-{len(self.made) + 1}" if self.made else ""))
            places = homes.programs_in(home, self.programs)
            homes.mirror(Path(home), target, places)
            self.add_shims(target, home, places)
            self.plan.home_map[str(target)] = home
            self.made[home] = target
        return self.made[home]


def plan_home(plan: _Plan, tmp: Path, found: Found, others: Sequence[Found], env: Mapping[str, str]) -> None:
    """Plan shim homes for what the environment calls the toolchain's home, and for its compiler on
    PATH.
    """
    t = found.toolchain
    programs = {place: name for o in others for place, name in o.toolchain.home_programs().items()}
    made = _ShimHomes(plan, tmp, t, programs)
    named = [v for v in t.home_env if env.get(v)]
    for variable in named:
        home, below = t.whole_home(str(Path(env[variable]).absolute()))
        if homes.programs_in(home, t.home_programs()):
            plan.set_env[variable] = str(made.of(home) / below)
    by_name_only = {k: v for k, v in env.items() if k not in (*t.home_env, *t.compiler_env)}
    # the toolchain of a bare `hipcc`, which may be another one
    on_path = (t.find(by_name_only) if by_name_only != env else None) or found
    chosen = found if named else on_path
    main = chosen.home
    if not named and not homes.is_system(main) and homes.programs_in(main, t.home_programs()):
        # Builds have fallbacks (`ROCM_PATH ?= /opt/rocm`). Only a variable leads them to a shim.
        plan.set_env.update((v, str(made.of(main))) for v in t.home_env)
    for variable, program in t.implied_compilers(chosen, env).items():
        if env.get(variable):
            continue
        if program.startswith("/"):
            plan.implied[variable] = (program,)
        elif not homes.is_system(main) and (place := next(iter(homes.programs_in(main, [program])), None)):
            plan.set_env[variable] = str(made.of(main) / place)
    # Otherwise the program belongs to another toolchain, and `plan_on_path` handles it.
    if t.home_programs().get(f"bin/{Path(on_path.compiler[0]).name}", t.name) == t.name:
        plan_bare_name(made, on_path, env)


def plan_bare_name(made: _ShimHomes, on_path: Found, env: Mapping[str, str]) -> None:
    """Plan a directory for PATH in which the toolchain's compiler is a shim. This is the `bin` of
    its shim home, if this hides nothing else on PATH. Otherwise it is the `bin` of another shim
    home, with fewer names.
    """
    t, tool, home = on_path.toolchain, on_path.toolchain.tools[0], on_path.home
    own = {p[len("bin/") :] for p in made.programs if p.startswith("bin/") and lookup.is_program(f"{home}/{p}")}
    if on_path.compiler == (f"{home}/bin/{tool}",) and homes.hides_nothing(Path(home), own, env):
        made.plan.path_dirs.append(made.of(home) / "bin")
        return
    target = made.tmp / f"path.{t.name}"
    hidden = homes.on_path(home, env)
    places = {} if homes.is_system(home) else homes.programs_in(home, made.programs)
    places = {p: program for p, program in places.items() if p not in (f"bin/{n}" for n in (*hidden, tool))}
    homes.mirror(Path(home), target, [*places, f"bin/{tool}"], hidden=hidden)
    made.add_shims(target, home, places)
    made.plan.add(target / "bin", t, on_path.compiler, tool)
    made.plan.home_map[str(target)] = home
    made.plan.path_dirs.append(target / "bin")


def plan_variables(plan: _Plan, tmp: Path, found: Sequence[Found], env: Mapping[str, str]) -> None:
    """Make the variables that name a compiler name a shim. `CXX` is always set, because builds link
    with it.
    """
    present = {f.toolchain: f for f in found}
    for variable, toolchain in _COMPILER_VARIABLES.items():
        words = (lookup.resolve(variable, env) or plan.implied.get(variable, ())) if toolchain in present else ()
        if words and toolchain is CUDA and not cuda_places.is_nvcc(lookup.without_launchers(words)):
            toolchain = HOST  # clang, whose shim passes CUDA on, with the reason
        if not words and variable == "CXX" and toolchain in present:
            # If it names a missing program, the build reports the error itself.
            named = env.get(variable, "").strip()
            words = present[toolchain].compiler if not named or lookup.is_shim(named) else ()
        if not words:
            continue
        same = [d / s.tool for d, s in plan.shims if s.real == words and toolchain is not HOST]
        if not toolchain.home_env and len(str(tmp).split()) > 1 and any(s.real == words for _, s in plan.shims):
            # `$(CXX)` in a makefile does not allow blanks, so PATH is used
            plan.set_env[variable] = Path(words[0]).name
            continue
        shim = same[0] if same else plan.add(tmp / "named" / variable, toolchain, words)
        plan.set_env[variable] = str(shim)
    # A compiler cache before a shim would keep deferred objects and give them to other builds. The
    # shim unsets these variables again for the real compiler, which may be `ccache g++`.
    plan.set_env.update((name, "1") for name in _NO_CACHES if not env.get(name))


def shared_conf(
    plan: _Plan, tmp: Path, found: Sequence[Found], blobs: Sequence[str], python: str, env: Mapping[str, str]
) -> SharedConf:
    apart = [(d, s) for d, s in plan.shims if not any(d.is_relative_to(home) for home in plan.home_map)]
    paths = {str(d / s.tool): s.compiler[0] for d, s in apart}
    variables = (name for t in ALL for name in (*t.compiler_env, *t.home_env, *t.flag_env))
    return SharedConf(
        blobs=tuple(blobs),
        log=str(tmp / "intercept.log"),
        compiles=str(tmp / "compiles.rec"),
        headers=str(tmp / "headers"),
        links=str(tmp / "links"),
        python=python,
        bootstrap=bootstrap(str(Path(lazyck.__file__).parent.parent), sys.path),
        path_map=tuple({**paths, **plan.home_map}.items()),
        env_names=tuple(dict.fromkeys((*variables, *_PASSED_ON))),
        restore=tuple((name, value, env.get(name, "")) for name, value in plan.set_env.items()),
        pass_when={f.toolchain.name: f.toolchain.pass_when(f, env) for f in found},
        shim_dirs=tuple(dict.fromkeys(str(d) for d, _ in plan.shims)),
    )


def bootstrap(package: str, path: Sequence[str]) -> str:
    """Return Python source that starts the post-build with this process's packages and ignores
    the build's environment."""
    rest = [p for p in path if p and p != package]
    return (
        f"import sys; sys.path[:0] = [{package!r}]; sys.path += [p for p in {rest!r} if p not in sys.path]; "
        "from lazyck.postbuild.main import main; main()"
    )
