"""`lazyck report`: writes a page about what lazy compilation cost and saved."""

import json
from pathlib import Path

import click

from lazyck.commands.shared_options import DIRECTORY, FILE, files_option
from lazyck.files import write_atomic
from lazyck.postbuild.objects.embedded import read_manifest
from lazyck.report.gather import gather
from lazyck.report.page import render_page, to_json
from lazyck.settings.environment import environment
from lazyck.visible import visible


@click.command("report")
@click.option("--cache", type=DIRECTORY, metavar="DIR", help="The cache. [default: the user's]")
@files_option("--trace", "traces", "FILE", "A trace file (LAZYCK_TRACE) to add to the history")
@click.option("--since", default="", metavar="TIME", help="Leave out what is older: 90m, 12h, 7d, or 2026-01-31.")
@click.option("--library", default="", metavar="NAME", help="Only this library.")
@files_option("--manifest", "manifests", "LIB", "A lazy library to compare with its full build")
@click.option(
    "-o",
    "--output",
    type=FILE,
    default=Path("lazyck-report.html"),
    show_default=True,
    metavar="FILE",
    help="Write the page here.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON instead.")
def command(
    cache: Path | None,
    traces: tuple[Path, ...],
    since: str,
    library: str,
    manifests: tuple[Path, ...],
    output: Path,
    as_json: bool,
) -> None:
    """Write a page that shows what compiling lazily cost and saved: slowest blobs, timeline,
    failures."""
    found = gather(cache, traces, since, library, [read_manifest(m) for m in manifests], environment())
    if as_json:
        click.echo(json.dumps(to_json(found), indent=1))
        return
    write_atomic(output, render_page(found).encode())
    click.echo(f"lazyck: wrote {visible(str(output))}")
