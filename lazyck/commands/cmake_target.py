"""`lazyck cmake-target`: called by `lazyck_library` of lazyck's CMake package, not by users."""

import os
from pathlib import Path

import click

from lazyck.commands.shared_options import DIRECTORY, THERE
from lazyck.errors import UsageError
from lazyck.interceptor import project_build
from lazyck.postbuild.build_options import BuildOptions
from lazyck.settings.environment import environment, parallel_compiles
from lazyck.toolchains import ALL


@click.command("cmake-target", hidden=True)
@click.option("--tmp-dir", type=DIRECTORY, required=True, help="The target's own.")
@click.option("--programs-dir", type=DIRECTORY, required=True, help="The project's.")
@click.option("--project-dir", type=DIRECTORY, required=True, help="Its sources.")
@click.option("--toolchain", type=click.Choice(["auto", *(t.name for t in ALL)]), default="auto", show_default=True)
@click.option("--gpu-archs", default="", metavar="LIST", help="As of `lazyck build full`.")
@click.option("--compiler", "compilers", multiple=True, metavar="VARIABLE=PATH", help="A compiler of the project.")
@click.option("--sources-from", type=THERE, required=True,
              metavar="FILE", help="The sources to defer, absolute paths, a line each.")  # fmt: skip
def command(
    tmp_dir: Path,
    programs_dir: Path,
    project_dir: Path,
    toolchain: str,
    gpu_archs: str,
    compilers: tuple[str, ...],
    sources_from: Path,
) -> None:
    """Make the launcher by which one target of a CMake project is compiled and linked lazily."""
    env = environment()
    options = BuildOptions(
        tmp_dir=str(tmp_dir.absolute()),
        jobs=parallel_compiles(env),
        beside=True,
        says_links=True,
        project_dir=str(project_dir.absolute()),
    )
    named = dict(pair.partition("=")[::2] for pair in compilers)
    sources = tuple(os.fsdecode(line) for line in sources_from.read_bytes().split(b"\n") if line)
    if relative := next((s for s in sources if not os.path.isabs(s)), None):
        raise UsageError(f"{sources_from}: {relative}: not an absolute path", "call lazyck_library from CMake instead")
    programs = programs_dir.absolute()
    project_build.prepare_target(options, toolchain, gpu_archs, sources, programs, {**env, **named})
