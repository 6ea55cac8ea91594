"""`lazyck cache`: shows where a cache is, what it holds and what it has saved, and maintains it."""

import dataclasses
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import click

from lazyck import abi, terminal
from lazyck.cache import entries, explain, rebuild, stats, sweep
from lazyck.cache.transfer import select_blobs
from lazyck.commands import share
from lazyck.commands.shared_options import ANY, JSON, QUIET, archs_option, files_option, jobs_option
from lazyck.errors import UsageError
from lazyck.formats.layout import ENTRY, EntryPath
from lazyck.history import events as history
from lazyck.history.costs import read_costs
from lazyck.history.profile import read_profile
from lazyck.postbuild.objects.embedded import read_manifest
from lazyck.prebuild import blob_names
from lazyck.prebuild.blob_entries import all_entries
from lazyck.quantities import counted, parse_age, parse_size, show_size
from lazyck.runtime.tool import tool
from lazyck.settings.environment import environment, parallel_compiles
from lazyck.terminal import is_quiet
from lazyck.visible import visible

LIBRARY = click.option("--library", default="", metavar="NAME", help="Only entries of this library.")
ARCH = click.option("--arch", default="", metavar="ARCH", help="Only entries for this arch.")


@click.group("cache")
def group() -> None:
    """Inspect and maintain the cache that LAZYCK_CACHE_DIR (or LAZYCK_NAME) names."""


@group.command("dir")
@click.option(
    "--manifest", "library", type=ANY, metavar="LIBRARY",
    help="Print the cache of this lazy library (or its manifest), which may have its own name for it.",
)  # fmt: skip
def dir_command(library: Path | None) -> None:
    """Print the directory of the cache, which need not exist yet."""
    own_name = read_manifest(library).cache_name if library else ""
    env = {abi.ENV_NAME: own_name, **{k: v for k, v in environment().items() if v}}
    click.echo(str(entries.cache_of(env)))


@group.command("list")
@JSON
@LIBRARY
@ARCH
@click.option(
    "--sort", "order", type=click.Choice(list(entries.ORDERS)),
    help="Sort by blob name, size (largest first), age (oldest first) or last use (longest ago first). "
    "[default: by path]",
)  # fmt: skip
@click.option("--reverse", is_flag=True, help="Reverse the order.")
def list_command(as_json: bool, library: str, arch: str, order: str | None, reverse: bool) -> None:
    """List the entries: size, age, last use, arch, library, blob."""
    cache, _ = entries.cache_to_read(environment())
    found = entries.choose(entries.read_entries(cache), library, arch)
    if order:
        found.sort(key=entries.ORDERS[order])
    if reverse:
        found.reverse()
    now = time.time()
    click.echo(json.dumps(entries.to_json(found, now), indent=1) if as_json else entries.render(found, now))


@group.command("stats")
@JSON
@click.option("--prometheus", is_flag=True, help="Print metrics, for the textfile collector of node_exporter.")
@click.option("--zero", is_flag=True, help="Start counting from zero now; entries and history stay.")
def stats_command(as_json: bool, prometheus: bool, zero: bool) -> None:
    """Show what is in the cache, and from its history what it has done: hits, compiles, time spent
    and saved."""
    if as_json and prometheus:
        raise UsageError("--json and --prometheus exclude each other", "give one of them")
    env = environment()
    limit = env.get(abi.ENV_CACHE_MAXSIZE, "")
    most = parse_size(limit, abi.ENV_CACHE_MAXSIZE) if limit else abi.DEFAULT_CACHE_MAX_KIB * 1024
    cache, is_there = entries.cache_to_read(env)
    if zero and is_there:
        history.zero(cache, time.time())
    holdings, events, costs = entries.read_holdings(cache), history.read_history(cache).events, read_costs([cache])
    summed = stats.add_up(holdings, most, events, costs, history.read_zeroed(cache))
    if prometheus:
        click.echo(stats.render_metrics(summed, cache))
    elif as_json:
        click.echo(json.dumps(stats.to_json(summed), indent=1))
    else:
        click.echo(f"cache     {visible(str(cache))}\n{stats.render(summed, time.time())}")


@group.command("clear")
@JSON
@LIBRARY
@ARCH
@click.option("--yes", is_flag=True, help="Do not ask.")
def clear_command(as_json: bool, library: str, arch: str, yes: bool) -> None:
    """Remove all entries with their logs, and precompiled preambles and texts (which say what an
    entry was made of).

    With --library or --arch, only their entries are removed, and preambles stay. Removed entries
    are compiled again when they are called. The history and the recorded compile times stay.
    """
    env = environment()
    cache, is_there = entries.cache_to_read(env)
    if not is_there:
        done = sweep.Trimmed()
    else:
        only = entries.leaves_of(cache, library, arch) if library or arch else None
        if not yes:
            would = sweep.trim(cache, 0, None, True, env, only)
            what = f"{counted(would.removed, 'entry', 'entries')} ({show_size(would.removed_bytes)})"
            if not sys.stdin.isatty():
                raise UsageError(f"this removes {what} from {cache}, and there is no terminal to confirm", "add --yes")
            if not click.confirm(f"Remove {what} from {visible(str(cache))}?"):
                sys.exit(1)
        done = sweep.trim(cache, 0, None, False, env, only)
    click.echo(json.dumps(dataclasses.asdict(done), indent=1) if as_json else sweep.render_cleared(done, cache))


@group.command("verify")
@JSON
@files_option(
    "--manifest",
    "libraries",
    "LIBRARY",
    "Also check that the entries of this lazy library (or its manifest) define what it calls",
)
@click.option("--remove", is_flag=True, help="Remove the entries with a problem.")
@click.option(
    "--rebuild",
    "is_rebuild",
    is_flag=True,
    help="Instead, compile what the caches have of the --manifest libraries again, and compare byte for byte.",
)
@files_option("--profile", "profiles", "FILE", "With --rebuild: only the blobs of this profile or blob list")
@click.option(
    "--gpu-archs",
    default="",
    metavar="LIST",
    help="With --rebuild: archs of the libraries. [default: LAZYCK_ARCHS, else the build's]",
)
@jobs_option("With --rebuild: parallel compiles.")
@QUIET
@click.argument("blobs", nargs=-1, metavar="[BLOB]...")
def verify_command(
    as_json: bool,
    libraries: tuple[Path, ...],
    remove: bool,
    is_rebuild: bool,
    profiles: tuple[Path, ...],
    gpu_archs: str,
    jobs: int | None,
    blobs: tuple[str, ...],
) -> None:
    """Read every entry completely and list the damaged ones; status 1 if any is left. With
    --rebuild, status 1 if any entry could not be proved."""
    if is_rebuild and remove:
        raise UsageError("--rebuild and --remove exclude each other", "run `lazyck cache verify --remove` by itself")
    if is_rebuild:
        proofs = prove_all(libraries, blobs, profiles, gpu_archs, jobs)
        is_proved = all(p.state == rebuild.PROVED for p in proofs)
        if as_json:
            click.echo(json.dumps(rebuild.to_json(proofs), indent=1))
        elif not (is_quiet() and is_proved):
            click.echo(rebuild.render(proofs))
        sys.exit(0 if is_proved else 1)
    if blobs or profiles or gpu_archs or jobs:
        raise UsageError("BLOB, --profile, --gpu-archs and --jobs need --rebuild", "leave them out, or add --rebuild")
    env = environment()
    cache, is_there = entries.cache_to_read(env)
    wanted = sweep.expected_symbols(libraries, env)
    found = sweep.check_symbols(sweep.verify(cache, env) if is_there else {}, wanted)
    problems = [path for path, problem in found.items() if problem]
    damaged = [path for path in problems if path.endswith(ENTRY)]  # the others are directories that were skipped
    removed = sweep.trim(cache, 0, None, False, env, damaged).paths if remove and damaged else ()
    rows = [{"path": p, "problem": problem, "removed": p in removed} for p, problem in found.items()]
    click.echo(json.dumps(rows, indent=1) if as_json else sweep.render_verified(found, removed))
    if damaged and not remove:
        what = "to remove these entries, which are then compiled again when they are called"
        terminal.say(f"{what}:\n  {sweep.removal(cache, libraries)}")
    sys.exit(0 if set(problems) <= set(removed) else 1)


def prove_all(
    libraries: Sequence[Path], blobs: Sequence[str], profiles: Sequence[Path], gpu_archs: str, jobs: int | None
) -> list[rebuild.RebuildResult]:
    """Compile the entries of these libraries again, and return what that proved of each."""
    if not libraries:
        raise UsageError("--rebuild needs a library", "add --manifest LIBRARY")
    env = environment()
    entries.cache_to_read(env)
    read = [read_profile(path) for path in profiles]
    proofs = []
    for library in libraries:
        chosen = select_blobs(read_manifest(library), blobs, read)
        proofs += rebuild.prove(tool(env), library, chosen, gpu_archs, env, parallel_compiles(env, jobs))
    return proofs


@group.command("trim")
@JSON
@click.option(
    "--max-size", default="", metavar="SIZE", help="Remove until at most this much is left, such as 20G or 500M."
)
@click.option(
    "--older-than", default="", metavar="AGE", help="Remove what was not used for this long, such as 30d or 12h."
)
@click.option("--dry-run", is_flag=True, help="Say what would be removed; remove nothing.")
def trim_command(as_json: bool, max_size: str, older_than: str, dry_run: bool) -> None:
    """Remove the least recently used entries."""
    if not max_size and not older_than:
        raise UsageError("no limit to trim to", "give --max-size SIZE, --older-than AGE, or both")
    size = parse_size(max_size, "--max-size") if max_size else None
    age = parse_age(older_than, "--older-than") if older_than else None
    env = environment()
    cache, is_there = entries.cache_to_read(env)
    done = sweep.trim(cache, size, age, dry_run, env) if is_there else sweep.Trimmed()
    click.echo(json.dumps(dataclasses.asdict(done), indent=1) if as_json else sweep.render_trimmed(done, dry_run))


@group.command("explain")
@click.argument("library", type=ANY)
@click.argument("blob")
@archs_option()
def explain_command(library: Path, blob: str, gpu_archs: str) -> None:
    """Say whether BLOB of LIBRARY is a hit; if not, which entry is nearest, and how its key
    differs."""
    env = environment()
    entries.cache_to_read(env)
    manifest = read_manifest(library)
    chosen = blob_names.select(manifest, [blob], False)
    now = time.time()
    rt = tool(env)
    packs = explain.installed_packs(rt, library, env)
    for entry in all_entries(rt, library, chosen, gpu_archs, env):
        same = list(entries.read_entries(entry.root, EntryPath.of(entry.path).blob))
        click.echo(explain.explain(manifest, entry, same, env.get(abi.ENV_EXTRA_CACHE_KEY, ""), now))
        for pack in packs:
            click.echo(explain.render_pack(pack, entry.path))


for command in share.COMMANDS:
    group.add_command(command)
