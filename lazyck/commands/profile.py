"""`lazyck profile`: merges, shows and compares what runs have used."""

import json
import stat
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from lazyck.commands.shared_options import ANY, FILE, JSON, files_option
from lazyck.errors import LazyckError, UsageError
from lazyck.files import write_atomic
from lazyck.history import profile, shares
from lazyck.postbuild.objects.embedded import read_manifest
from lazyck.prebuild.blob_names import BlobNames
from lazyck.quantities import counted
from lazyck.terminal import warn
from lazyck.visible import visible

FILES = click.argument("files", nargs=-1, required=True, metavar="FILE...", type=ANY)


@click.group("profile")
def group() -> None:
    """Merge, show and compare the profiles that LAZYCK_RECORD makes: which blobs runs have used."""


def read(path: Path) -> profile.Profile:
    """Read a profile. Lines that a crash cut short are skipped, with a warning."""
    found = profile.read_profile(path)
    if found.torn:
        warn(f"{path}: skipped {counted(found.torn, 'line')} cut short")
    return found


def read_each(files: Sequence[Path]) -> list[profile.Profile]:
    """Read profiles that are compared with each other. Raises `UsageError` if a file is given
    twice, since it would count as two runs that agree."""
    seen: dict[Path, Path] = {}
    for file in files:
        if known := seen.get(file.resolve()):
            raise UsageError(f"{file}: the same file as {known}, and would count as two runs", "give each file once")
        seen[file.resolve()] = file
    found = [read(file) for file in files]
    for p in found:
        if len(found) > 1 and not p.uses:
            warn(f"{p.where}: no blobs in it; it counts as a run that used none")
    return found


@group.command("merge")
@FILES
@click.option(
    "--share", metavar="SHARE", help="Keep only blobs that at least this share of the runs used, such as 0.1."
)
@click.option(
    "--weight",
    "weights",
    multiple=True,
    metavar="FILE=NUMBER",
    help="Count FILE as so many runs for --share; repeatable. [default: 1]",
)
@click.option("-o", "--output", type=FILE, metavar="OUT", help="Write here. [default: stdout]")
def merge_command(files: tuple[Path, ...], share: str | None, weights: tuple[str, ...], output: Path | None) -> None:
    """Merge the profiles of many ranks and runs into one, with a line per blob; it also serves as a
    --blob-list."""
    if share is not None:
        least, each = shares.parse_share(share), shares.parse_weights(weights, files)
        merged = profile.encode(shares.common(shares.runs_of(read_each(files), each), least))
    elif weights:
        raise UsageError(f"--weight {weights[0]!r}: --weight needs --share", "give --share 0.1, or leave out --weight")
    else:
        merged = profile.encode(profile.merge(use for f in files for use in read(f).uses))
    if output is None:
        sys.stdout.buffer.write(merged)
    else:
        write_atomic(output.resolve(), merged)


@group.command("show")
@FILES
@JSON
def show_command(files: tuple[Path, ...], as_json: bool) -> None:
    """Show what the profiles together hold: order, calls, compile time, memory, ranks, and
    totals."""
    merged = profile.merge(use for f in files for use in read(f).uses)
    click.echo(json.dumps(profile.to_json(merged), indent=1) if as_json else profile.render_table(merged))


@group.command("diff")
@click.argument("a", type=ANY)
@click.argument("b", type=ANY)
def diff_command(a: Path, b: Path) -> None:
    """Say what A used and B did not (`<`), and the other way round (`>`); status 1 if they
    differ."""
    first, second = read(a), read(b)
    lines = [("<", *pair) for pair in profile.only_in(first, second)]
    lines += [(">", *pair) for pair in profile.only_in(second, first)]
    for mark, library, blob in lines:
        click.echo(f"{mark} {visible(blob)}" + (f"\t{visible(library)}" if library else ""))
    sys.exit(1 if lines else 0)


@group.command("prune")
@FILES
@files_option("--manifest", "manifests", "LIB", "A lazy library, or the `manifest` of its bundle", required=True)
@click.option(
    "-o", "--output", type=FILE, metavar="OUT", help="Write the remaining lines of all here. [default: in place]"
)
def prune_command(files: tuple[Path, ...], manifests: tuple[Path, ...], output: Path | None) -> None:
    """Drop blobs that LIB no longer has, and say how many. Lines of other libraries stay."""
    known = {m.library: BlobNames(m) for m in map(read_manifest, manifests)}

    def is_known(use: profile.Use) -> bool:
        if not use.library:
            return any(names.find(use.blob) or names.has(use.blob) for names in known.values())
        return use.library not in known or known[use.library].has(use.blob)

    left = b""
    for file in files:
        text, gone = profile.prune(read(file), is_known)
        left += text
        if output is None:
            try:
                write_atomic(file.resolve(), text, stat.S_IMODE(file.stat().st_mode))
            except OSError as e:
                hint = "give -o OUT to write elsewhere"
                raise LazyckError(f"{file}: cannot write the profile: {e.strerror}", hint) from e
        click.echo(f"lazyck: {file}: dropped {counted(gone, 'blob')}", err=True)
    if output is not None:
        write_atomic(output.resolve(), left)
