"""`lazyck pack`: packs prebuilt entries into a file that is installed beside the library."""

from __future__ import annotations

import platform
from pathlib import Path

import click

from lazyck.commands.prebuild import JOBS, blob_options, finish, parallel_compiles, read_known_costs, run, selection
from lazyck.commands.quiet import QUIET
from lazyck.config import environment
from lazyck.errors import UsageError
from lazyck.manifest import Manifest
from lazyck.pack.contents import Pack, date, make_packs
from lazyck.pack.tar import name_for, suffix_of, write_tar
from lazyck.pack.wheel import wheel_names, write_wheel
from lazyck.prebuild.build import BuildOptions
from lazyck.prebuild.entries import all_entries, tool
from lazyck.prebuild.plan import make_plan
from lazyck.quantities import counted, show_size
from lazyck.terminal import is_quiet


@click.command("pack")
@blob_options
@click.option(
    "--tar",
    "tar_file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Make a tar, to be unpacked in the library's directory; FILE ends in .tar.xz, .tar.gz, .tar.zst or .tar.",
)
@click.option(
    "--wheel",
    "wheel_dir",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Make a wheel in DIR.",
)
@click.option("--into", default="", metavar="PACKAGE", help="With --wheel: the package that the library lives in.")
@click.option("--wheel-name", default="", metavar="NAME", help="[default: PACKAGE-kernels]")
@click.option("--wheel-version", default="", metavar="V", help="[default: 0 and a digest of what is in it]")
@click.option("--per-arch", is_flag=True, help="One file for each arch, with the arch in its name.")
@click.option("--no-build", is_flag=True, help="Fail if something is not cached, instead of compiling it.")
@JOBS
@QUIET
def command(
    manifest_file: Path,
    blob_list: tuple[str, ...],
    every: bool,
    gpu_archs: str,
    blobs: tuple[str, ...],
    tar_file: Path | None,
    wheel_dir: Path | None,
    into: str,
    wheel_name: str,
    wheel_version: str,
    per_arch: bool,
    no_build: bool,
    jobs: int | None,
) -> None:
    """Pack prebuilt blobs into a tar or a wheel that a deployment installs beside the library.

    What is not cached is compiled first. The library finds them in lazyck/cache beside it, without
    a compiler.
    """
    if (tar_file is None) == (wheel_dir is None):
        raise UsageError("exactly one of --tar FILE and --wheel DIR is needed", "give one of them")
    if (wheel_dir is None) != (not into):
        raise UsageError("--wheel and --into go together", "give --into the package that the library lives in")
    if wheel_dir is None and (wheel_name or wheel_version):
        raise UsageError("--wheel-name and --wheel-version go with --wheel", "leave them out")
    env = environment()
    chosen = selection(manifest_file, blob_list, every, blobs)
    mtime = date(env)
    machine = chosen.manifest.machine or platform.machine()
    if tar_file is not None:
        suffix_of(tar_file)  # checked before anything is compiled
    else:
        wheel_names(wheel_name or "x", wheel_version or "0", into, machine)
    rt = tool(env)
    found = all_entries(rt, manifest_file, chosen, gpu_archs, env)
    if not no_build and not all(e.cached for e in found):
        plan = make_plan(found, read_known_costs(found, env))
        finish(run(rt, manifest_file, plan, BuildOptions(parallel_compiles(jobs, env)), env, False))
        found = all_entries(rt, manifest_file, chosen, gpu_archs, env)
    for pack in make_packs(found, per_arch):
        archs = "+".join(pack.archs)
        if tar_file is not None:
            made = name_for(tar_file, archs) if per_arch else tar_file
            write_tar(made, pack, mtime)
        else:
            name = wheel_name or f"{into.strip('/').partition('/')[0]}-kernels"
            names = wheel_names(
                f"{name}-{archs.replace('+', '-')}" if per_arch else name,
                wheel_version or f"0+{pack.fingerprint[:12]}",
                into,
                machine,
            )
            made = write_wheel(wheel_dir or Path(), pack, names, describe(pack, chosen.manifest), mtime)
        sizes = (
            f"{show_size(sum(i.source.stat().st_size for i in pack.items))}, packed {show_size(made.stat().st_size)}"
        )
        if not is_quiet():
            click.echo(f"lazyck: {made}: {describe(pack, chosen.manifest)}, {sizes}")


def describe(pack: Pack, manifest: Manifest) -> str:
    """Return a description such as `12 prebuilt entries of libfmha_fwd for gfx942 gfx950`."""
    entries = counted(len(pack.items), "prebuilt entry", "prebuilt entries")
    return f"{entries} of {manifest.library} for {' '.join(pack.archs)}"
