"""`lazyck pack`: packs prebuilt entries into files that are installed beside the library."""

import io
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import click

from lazyck.commands.prebuild import Named, blob_options, finish, read_known_costs, told
from lazyck.commands.shared_options import ANY, DIRECTORY, FILE, QUIET, jobs_option
from lazyck.errors import UsageError
from lazyck.formats.tarball import EPOCH, EPOCH_VARIABLE
from lazyck.pack.base_wheel import BaseWheel, read_base
from lazyck.pack.packed_files import Pack, make_packs
from lazyck.pack.tar import name_for, suffix_of, write_tar
from lazyck.pack.wheel import write_wheels
from lazyck.prebuild import blob_names
from lazyck.prebuild.blob_entries import BlobEntry, all_serving
from lazyck.prebuild.blob_names import Selection
from lazyck.prebuild.plan import make_plan
from lazyck.prebuild.run import LocalRun, PrebuildRequest
from lazyck.quantities import parse_size, show_size
from lazyck.runtime.tool import tool
from lazyck.settings.environment import environment, number, parallel_compiles
from lazyck.terminal import is_quiet

_MOST = "95MB"  # an index takes 100 MB


@click.command("pack")
@blob_options(is_of_wheels=True)
@click.option(
    "--tar",
    "tar_file",
    type=FILE,
    metavar="FILE",
    help="Make a tar, to be unpacked in the library's directory; FILE ends in .tar.xz, .tar.gz, .tar.zst or .tar.",
)
@click.option("--per-arch", is_flag=True, help="With --tar: one file for each arch, with the arch in its name.")
@click.option(
    "--wheel",
    "wheel_dir",
    type=DIRECTORY,
    metavar="DIR",
    help="Make wheels in DIR, one for each arch, to be installed beside --base.",
)
@click.option("--base", "base_wheel", type=ANY, metavar="WHEEL", help="With --wheel: the wheel with the lazy library.")
@click.option(
    "--max-size", default="", metavar="SIZE", help=f"With --wheel: split wheels above this size. [default: {_MOST}]"
)
@click.option("--no-build", is_flag=True, help="Fail if something is not cached, instead of compiling it.")
@jobs_option()
@QUIET
def command(
    named: Named,
    tar_file: Path | None,
    per_arch: bool,
    wheel_dir: Path | None,
    base_wheel: Path | None,
    max_size: str,
    no_build: bool,
    jobs: int | None,
) -> None:
    """Pack prebuilt blobs into a tar or into wheels that a deployment installs beside the library.

    What is not cached is compiled first. The library finds the entries by itself, without a
    compiler.
    """
    if (tar_file is None) == (wheel_dir is None):
        raise UsageError("exactly one of --tar FILE and --wheel DIR is needed", "give one of them")
    if (tar_file is None) != (named.manifest_file is None):
        raise UsageError("--tar and --manifest go together", "name the library by --manifest LIBRARY, for --tar only")
    if (wheel_dir is None) != (base_wheel is None):
        raise UsageError("--wheel and --base go together", "name the wheel with the library by --base WHEEL")
    if per_arch and wheel_dir:
        raise UsageError("--per-arch goes with --tar", "leave it out: wheels are always per arch")
    if max_size and tar_file:
        raise UsageError("--max-size goes with --wheel", "leave it out")
    most = parse_size(max_size or _MOST, "--max-size")
    if tar_file is not None:
        suffix_of(tar_file)  # checked before anything is compiled
    env = environment()
    mtime = max(number(env, EPOCH_VARIABLE, EPOCH), EPOCH)  # fixed, so that equal entries make equal packs

    def packs(libraries: Sequence[tuple[Path, Selection]], is_per_arch: bool) -> list[Pack]:
        parallel = None if no_build else parallel_compiles(env, jobs)
        return make_packs(gather(libraries, named.gpu_archs, parallel, env), is_per_arch)

    if tar_file is not None:
        chosen = named.select()
        for pack in packs([(named.manifest_file, chosen)], per_arch):
            made = name_for(tar_file, "+".join(pack.archs)) if per_arch else tar_file
            write_tar(made, pack, mtime)
            tell(made, pack, [chosen.manifest.library])
    elif wheel_dir is not None and base_wheel is not None:
        with tempfile.TemporaryDirectory(prefix="lazyck-") as where:
            base = read_base(base_wheel, Path(where))
            chosen_packs = packs(select_in(base, named), True)
            for made, part in write_wheels(wheel_dir, chosen_packs, base, most, mtime):
                tell(made, part, base.names)


def select_in(base: BaseWheel, named: Named) -> list[tuple[Path, Selection]]:
    """Return the libraries of the wheel in which the user named blobs, with these. Raises
    `UnknownBlobs` for names that match no blob of any library."""
    stdin = sys.stdin.read() if "-" in named.blob_list else ""
    found, known, given = [], set(), set()
    for library in base.libraries:
        index = blob_names.BlobNames(library.manifest)
        lists = (blob_names.read_list(f, io.StringIO(stdin), library.manifest.library) for f in named.blob_list)
        names_here = [*named.blobs, *(name for listed in lists for name in listed)]
        here = [name for name in names_here if index.knows(name)]
        known.update(here)
        given.update(names_here)
        if here or named.every:
            found.append((library.file, blob_names.select(library.manifest, here, named.every)))
    if given - known:
        own = [blob.name for library in base.libraries for blob in library.manifest.blobs]
        raise blob_names.UnknownBlobs(sorted(given - known), base.name, own)
    if not found:
        raise UsageError("no blob named", "name blobs, or give --blob-list FILE or --all")
    return found


def gather(
    libraries: Iterable[tuple[Path, Selection]], gpu_archs: str, jobs: int | None, env: Mapping[str, str]
) -> list[BlobEntry]:
    """Return the entries of the selected blobs. Those that are not cached are compiled, `jobs` at a
    time, unless that is None."""
    rt = tool(env)
    entries = []
    for file, chosen in libraries:
        found = all_serving(rt, file, chosen, gpu_archs, env)
        tried: set[Path] = set()
        while jobs and (new := [e for e in found if not e.cached and e.path not in tried]):
            compile_missing(rt, file, chosen, new if tried else found, jobs, env)
            tried |= {e.path for e in new}
            # New host units tell the keys of their kernels; those may take their whole source.
            found = all_serving(rt, file, chosen, gpu_archs, env)
        entries += found
    return entries


def compile_missing(
    rt: Path, file: Path, chosen: Selection, found: list[BlobEntry], jobs: int, env: Mapping[str, str]
) -> None:
    """Compile those of the entries found that are not cached. Raises `BuildError` if one fails."""
    plan = make_plan(found, read_known_costs(found, env))
    finish(
        told(
            plan,
            lambda reporter: LocalRun(rt, PrebuildRequest(file, chosen.manifest, plan, env, reporter), jobs).build(),
        )
    )


def tell(made: Path, pack: Pack, libraries: Sequence[str]) -> None:
    """Say what was packed into the file `made`."""
    size = show_size(sum(i.source.stat().st_size for i in pack.items))
    if not is_quiet():
        click.echo(f"lazyck: {made}: {pack.describe(libraries)}, {size}, packed {show_size(made.stat().st_size)}")
