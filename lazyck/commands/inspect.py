"""`lazyck inspect`: what a lazy library holds."""

from __future__ import annotations

import json
from pathlib import Path

import click

from lazyck.inspect import render_text, to_json
from lazyck.postbuild.embedded import read_manifest


@click.command("inspect")
@click.argument("library", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(library: Path, as_json: bool) -> None:
    """Print what a lazy library (or a manifest file) holds: blobs, symbols, commands, eager blobs and why."""
    found = read_manifest(library)
    click.echo(json.dumps(to_json(found), indent=1) if as_json else render_text(found))
