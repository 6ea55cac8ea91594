"""`lazyck build`: runs a project's own build and makes it lazy."""

import difflib
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import click

from lazyck import abi, toolchains
from lazyck.commands.shared_options import ANY, DIRECTORY, QUIET, THERE, jobs_option
from lazyck.errors import UsageError
from lazyck.interceptor import project_build
from lazyck.postbuild.build_options import BuildOptions, load_options
from lazyck.postbuild.link.quick import quick
from lazyck.postbuild.reasons import advise
from lazyck.settings.environment import environment, parallel_compiles
from lazyck.settings.project_file import read_project
from lazyck.terminal import is_quiet


@click.group("build")
@click.pass_context
def group(context: click.Context) -> None:
    """Run a project's own build and make its libraries lazy."""
    if context.invoked_subcommand == "full":
        context.default_map = {"full": project_options(Path.cwd(), environment())}


def project_options(directory: Path, env: Mapping[str, str]) -> dict[str, object]:
    """Return the options of `full_command` that the project's file sets, by parameter name.

    Paths are relative to the directory of the file. The number of jobs is left out if the
    environment has one. Raises `LazyckError`.
    """
    found: dict[str, object] = {}
    where = f"{directory / 'pyproject.toml'}: [tool.lazyck]"
    options = {o.opts[0].removeprefix("--"): o for o in full_command.params if isinstance(o, click.Option)}
    for key, value in read_project(directory).items():
        if key not in options:
            near = difflib.get_close_matches(key, options, n=1)
            hint = f"did you mean {near[0]}?" if near else "`lazyck build full --help` lists the options"
            raise UsageError(f"{where} has no option {key!r}", hint)
        option = options[key]
        is_list = isinstance(value, list) and all(isinstance(v, str) for v in value)
        fits = isinstance(value, bool) if option.is_flag else is_list if option.multiple else type(value) in (str, int)
        if not fits:
            wanted = "true or false" if option.is_flag else "a list of strings" if option.multiple else "one value"
            raise UsageError(f"{where} {key}: must be {wanted}", "correct it there")
        is_path = isinstance(option.type, click.Path) or key == "root"
        found[str(option.name)] = str(directory / str(value)) if is_path else value
    if env.get(abi.ENV_JOBS):
        found.pop("jobs", None)
    return found


@group.command("full", context_settings={"ignore_unknown_options": False})
@click.option(
    "--blobs",
    multiple=True,
    metavar="GLOB",
    help="Sources to compile lazily: a shell pattern for their absolute path; repeatable. [default: */blob/*]",
)
@click.option(
    "--kernels",
    multiple=True,
    metavar="GLOB",
    help="More GPU sources: their host code is compiled with the build, each kernel when it is first used; "
    "repeatable; '' for none. [default: all others, *.cu and *.hip]",
)
@click.option(
    "--gpu-archs", default="", metavar="LIST", help='GPU archs to build for, such as "gfx942;gfx950" or "80;90".'
)
@click.option(
    "--toolchain", type=click.Choice(["auto", *(t.name for t in toolchains.ALL)]), default="auto", show_default=True
)
@click.option(
    "--tmp-dir",
    type=DIRECTORY,
    help="Where lazyck keeps its shims and all that `quick` needs. [default: ./.lazyck-build]",
)
@click.option(
    "--install-dir", type=DIRECTORY, help="Make a deployable tree here: the libraries, and lazyck/ beside them."
)
@click.option("--name", default="", metavar="NAME", help="Name of the cache directory, baked in. [default: lazyck]")
@click.option(
    "--root",
    default="",
    metavar="DIR",
    help="Where the deployed bundle will be, baked in. [default: beside the library]",
)
@jobs_option("Parallel compiles by lazyck itself.")
@click.option(
    "--compile-commands",
    type=THERE,
    metavar="FILE",
    help="Defer the blobs that this compile_commands.json lists, then run COMMAND, which may be just the link.",
)
@click.option(
    "--require-lazy/--no-require-lazy",
    default=None,
    help="Fail if the build defers no blob, or do not. [default: fail if CI is set in the environment]",
)
@click.option(
    "--check", is_flag=True, help="Then compare each library with its ahead-of-time build, as `lazyck check` does."
)
@click.option(
    "--check-sample",
    default="",
    metavar="N|SECONDSs",
    help="As --check, but compile only this many blobs, or for this long: 40, 90s, 10m.",
)
@QUIET
@click.option("--explain-eager", is_flag=True, help="Say what to change in eager sources so that they become lazy.")
@click.option("--verbose", is_flag=True, help="Say what each step does.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def full_command(
    blobs: tuple[str, ...],
    kernels: tuple[str, ...],
    gpu_archs: str,
    toolchain: str,
    tmp_dir: Path | None,
    install_dir: Path | None,
    name: str,
    root: str,
    jobs: int | None,
    compile_commands: Path | None,
    require_lazy: bool | None,
    check: bool,
    check_sample: str,
    explain_eager: bool,
    verbose: bool,
    command: tuple[str, ...],
) -> None:
    """Run COMMAND (after `--`) with lazyck's shims in front of its compilers.

    Options may also be set in `[tool.lazyck]` of ./pyproject.toml, without `--`; the command line
    overrides them.

    Sources that match --blobs are recorded instead of compiled, and every link that takes them
    makes a lazy library at the place that the build asked for. The exit status is COMMAND's, or 1
    if that is 0 and --check finds a difference.
    """
    env = environment()
    if not command:
        raise UsageError("no build command", "give it after `--`, as in: lazyck build full -- ninja -C build")
    if name and ("/" in name or name in (".", "..")):
        raise UsageError(f"--name {name}: not a plain directory name", "use letters, digits, `-` and `_`")
    checked = None
    if check or check_sample:
        from lazyck.commands import check as checking  # its imports take as long as all others together

        checked = checking.parse_sample(check_sample)
    blobs = blobs or ("*/blob/*",)
    options = BuildOptions(
        tmp_dir=str((tmp_dir or Path(".lazyck-build")).absolute()),
        install_dir=str(install_dir.absolute()) if install_dir else "",
        name=name or abi.DEFAULT_CACHE_NAME,
        root=str(Path(root).absolute()) if root else "",
        jobs=parallel_compiles(env, jobs),
        verbose=verbose,
        project_dir=os.getcwd(),
        path=env.get("PATH", ""),
    )
    lazy_because = "--require-lazy" if require_lazy else ""
    if require_lazy is None and env.get("CI", "").lower() not in ("", "0", "false"):
        lazy_because = "--require-lazy, which the variable CI implies,"
    request = project_build.BuildRequest(
        command,
        blobs,
        tuple(filter(None, kernels)) if kernels else None,
        toolchain,
        gpu_archs,
        options,
        compile_commands.absolute() if compile_commands else None,
        lazy_because,
    )
    outcome = project_build.full(request, env)
    report = outcome.report.splitlines()
    if is_quiet() and outcome.status == 0:
        report = [line for line in report if "warning: " in line]
    if report:
        click.echo("\n".join(report), err=True)
    if explain_eager:
        for library in outcome.libraries:
            click.echo(f"{library.library}:\n{advise(library.eager)}", err=True)
    if outcome.status == 0 and outcome.libraries and checked is not None:
        from lazyck.check.library_check import CheckRequest

        outputs = tuple(library.output for library in outcome.libraries)
        asked = CheckRequest(checked, options.jobs, keeps=verbose)
        if not checking.run(options.tmp, outputs, asked, env, as_json=False):
            sys.exit(1)
    sys.exit(outcome.status)


@group.command("quick")
@click.option("--tmp-dir", type=ANY, required=True, help="The --tmp-dir of a `build full`.")
@click.option("--install-dir", type=DIRECTORY, help="Install here as well.")
@QUIET
@click.option("--verbose", is_flag=True, help="Print the link commands.")
def quick_command(tmp_dir: Path, install_dir: Path | None, verbose: bool) -> None:
    """Compile only lazyck's runtime again and link again, reusing everything else.

    LAZYCK_RUNTIME_SRC names another copy of the runtime's sources.
    """
    load_options(tmp_dir.absolute())

    def say(line: str) -> None:
        if verbose:
            click.echo(f"lazyck: {line}", err=True)

    for library, delivered in quick(
        tmp_dir.absolute(), str(install_dir.absolute()) if install_dir else "", environment(), say
    ):
        if is_quiet():
            continue
        if delivered:
            click.echo(f"lazyck: {library}: linked again: " + ", ".join(map(str, delivered)))
        else:
            click.echo(f"lazyck: {library}: nothing to do")
