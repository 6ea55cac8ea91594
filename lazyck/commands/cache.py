"""`lazyck cache`: what is in a cache, what it was good for, and looking after it."""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from pathlib import Path

import click

from lazyck import abi
from lazyck.cache import entries, explain, stats, sweep
from lazyck.commands import share
from lazyck.config import environment
from lazyck.costs import read_costs
from lazyck.errors import UsageError
from lazyck.history import read_history
from lazyck.postbuild.embedded import read_manifest
from lazyck.prebuild import names
from lazyck.prebuild.entries import all_entries, tool
from lazyck.quantities import parse_age, parse_size

AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group("cache")
def group() -> None:
    """Look into the cache, and after it: the one that LAZYCK_CACHE_DIR (or LAZYCK_NAME) names."""


@group.command("list")
@AS_JSON
@click.option("--library", default="", metavar="NAME", help="Only of this library.")
@click.option("--arch", default="", metavar="ARCH", help="Only for this arch.")
def list_command(as_json: bool, library: str, arch: str) -> None:
    """List the entries: size, age, last use, arch, library, blob."""
    found = entries.choose(entries.read_entries(entries.cache_of(environment())), library, arch)
    now = time.time()
    click.echo(json.dumps(entries.to_json(found, now), indent=1) if as_json else entries.render(found, now))


@group.command("stats")
@AS_JSON
def stats_command(as_json: bool) -> None:
    """Say what is in the cache, and by its history what it was good for: hits, compiles, time spent and saved."""
    cache = entries.cache_of(environment())
    found = entries.read_entries(cache), entries.read_preambles(cache)
    summed = stats.add_up(*found, read_history(cache).events, read_costs([cache]))
    text = json.dumps(stats.to_json(summed), indent=1) if as_json else stats.render(summed, time.time())
    click.echo(text if as_json else f"cache     {cache}\n{text}")


@group.command("verify")
@AS_JSON
@click.option(
    "--manifest",
    "libraries",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="LIBRARY",
    help="Also see that the entries of this lazy library (or its manifest) define what it calls; may be repeated.",
)
def verify_command(as_json: bool, libraries: tuple[Path, ...]) -> None:
    """Read every entry whole and name those that are damaged; status 1 if any is."""
    env = environment()
    rt = tool(env)
    expected = [e for library in libraries for e in sweep.expected_symbols(rt, library, read_manifest(library), env)]
    found = sweep.check_symbols(sweep.verify(rt, entries.cache_of(env), env), expected)
    rows = [{"path": path, "problem": problem} for path, problem in found.entries]
    click.echo(json.dumps(rows, indent=1) if as_json else sweep.render_verified(found))
    sys.exit(1 if found.problems else 0)


@group.command("trim")
@AS_JSON
@click.option("--max-size", default="", metavar="SIZE", help="Until no more than this is left, such as 20G or 500M.")
@click.option("--older-than", default="", metavar="AGE", help="What was not used for so long, such as 30d or 12h.")
@click.option("--dry-run", is_flag=True, help="Say what would be removed; remove nothing.")
def trim_command(as_json: bool, max_size: str, older_than: str, dry_run: bool) -> None:
    """Remove the entries that were not used for longest."""
    if not max_size and not older_than:
        raise UsageError("nothing says what to remove", "give --max-size SIZE, --older-than AGE, or both")
    size = parse_size(max_size, "--max-size") if max_size else None
    age = parse_age(older_than, "--older-than") if older_than else None
    env = environment()
    done = sweep.trim(tool(env), entries.cache_of(env), size, age, dry_run, env)
    click.echo(json.dumps(dataclasses.asdict(done), indent=1) if as_json else sweep.render_trimmed(done, dry_run))


@group.command("explain")
@click.argument("library", type=click.Path(path_type=Path))
@click.argument("blob")
@click.option(
    "--gpu-archs", "--arch", default="", metavar="LIST", help="Archs. [default: LAZYCK_ARCHS, else the build's]"
)
def explain_command(library: Path, blob: str, gpu_archs: str) -> None:
    """Say whether BLOB of LIBRARY is a hit; if not, which entry is nearest, and what of the key differs."""
    env = environment()
    manifest = read_manifest(library)
    chosen = names.select(manifest, [blob], False)
    now = time.time()
    for entry in all_entries(tool(env), library, chosen, gpu_archs, env):
        stem = entry.path.stem.rpartition("-")[0]
        same = list(entries.read_entries(entry.root, stem))
        found = explain.explain(manifest, entry, same, env.get(abi.ENV_EXTRA_CACHE_KEY, ""))
        click.echo(explain.render(found, now))


for command in share.COMMANDS:
    group.add_command(command)
