"""`lazyck check`: compares a lazy library with the one that the build makes ahead of time."""

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path

import click

from lazyck.check.ahead import Sample
from lazyck.check.library_check import CheckRequest, check_library, directories
from lazyck.check.presentation import render, to_json
from lazyck.commands.shared_options import ANY, JSON, QUIET, jobs_option
from lazyck.errors import UsageError
from lazyck.postbuild.build_options import load_options
from lazyck.settings.environment import environment, parallel_compiles
from lazyck.terminal import is_quiet, say


def parse_sample(text: str) -> Sample:
    """Return the sample that an option asks for: `40` blobs, or as many as `90s` or `10m` allow.
    Raises `UsageError`."""
    match = re.fullmatch(r"([1-9]\d{0,8})([sm]?)", text, re.ASCII)
    if text and not match:
        raise UsageError(f"{text!r} is not a sample size", "give a number of blobs, or a time such as 90s or 10m")
    if not match:
        return Sample()
    amount, unit = int(match[1]), match[2]
    return Sample(seconds=float(amount * (60 if unit == "m" else 1))) if unit else Sample(blobs=amount)


def run(tmp: Path, wanted: tuple[str, ...], request: CheckRequest, env: Mapping[str, str], *, as_json: bool) -> bool:
    """Check libraries of `tmp` and print the result. Returns whether all are the same as ahead of
    time. Raises `LazyckError`."""
    found = [check_library(directory, request, env, say) for directory in directories(tmp, wanted)]
    if as_json:
        click.echo(json.dumps(to_json(found, env), indent=1))
    elif not is_quiet() or not all(c.is_same for c in found):
        click.echo(render(found, env, verbose=request.keeps), err=True)
    return all(c.is_same for c in found)


@click.command("check")
@click.option("--tmp-dir", type=ANY, required=True, help="The --tmp-dir of a `build full`.")
@click.option(
    "--sample", default="", metavar="N|SECONDSs", help="Compile only this many blobs, or for this long: 40, 90s, 10m."
)
@jobs_option()
@JSON
@QUIET
@click.option("--verbose", is_flag=True, help="List everything, and keep the ahead-of-time build.")
@click.argument("libraries", nargs=-1, metavar="[LIB]...")
def command(
    tmp_dir: Path, sample: str, jobs: int | None, as_json: bool, verbose: bool, libraries: tuple[str, ...]
) -> None:
    """Compare each LIB of a lazy build (a path or a name; by default all) with its ahead-of-time
    build.

    For that, every blob is compiled for the host by the project's own command, and the library is
    linked by the project's own link. The exit status is 1 if something differs.
    """
    tmp, env = tmp_dir.absolute(), environment()
    load_options(tmp)
    request = CheckRequest(parse_sample(sample), parallel_compiles(env, jobs), keeps=verbose)
    sys.exit(0 if run(tmp, libraries, request, env, as_json=as_json) else 1)
