"""`lazyck inspect`: shows what a lazy library holds."""

import json
from pathlib import Path

import click

from lazyck.commands.shared_options import ANY
from lazyck.postbuild.objects.embedded import read_manifest
from lazyck.postbuild.reasons import advise
from lazyck.report.inspect import blobs_named, eager_of, files_of, render_blobs, render_eager, render_summary, to_json


@click.command("inspect")
@click.argument("library", type=ANY)
@click.option(
    "--blob",
    "blobs",
    multiple=True,
    metavar="NAME",
    help="Show these blobs in full: names and patterns as `lazyck prebuild` takes them; repeatable.",
)
@click.option("--all", "every", is_flag=True, help="Show every blob in full, and each eager source.")
@click.option("--explain-eager", is_flag=True, help="Say what to change in eager sources so that they become lazy.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON, for the named blobs or for all.")
def command(library: Path, blobs: tuple[str, ...], every: bool, explain_eager: bool, as_json: bool) -> None:
    """Print what a lazy library (or a manifest file) holds: a summary, unless blobs or eager
    sources are asked for."""
    manifest = read_manifest(library)
    files = files_of(library, manifest)
    chosen = blobs_named(manifest, blobs, every=every) if blobs or every else []
    if as_json:
        click.echo(json.dumps(to_json(manifest, chosen if blobs and not every else manifest.blobs, files), indent=1))
        return
    parts = [render_summary(manifest, files)] if every or not (blobs or explain_eager) else []
    parts += [render_blobs(manifest, chosen)] + ([render_eager(manifest)] if every else [])
    parts += [advise(eager_of(manifest))] if explain_eager else []
    click.echo("\n".join(filter(None, parts)))
