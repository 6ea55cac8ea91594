"""`lazyck cache push|pull|sync|provenance|keygen`: exchanges entries between the local cache and
other machines."""

import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from _lazyck.cache import entries, provenance, pull, push, transfer
from _lazyck.cache.share import Share, items_of, local_items, select_blobs
from _lazyck.cache.transfer import Outcome
from _lazyck.commands.quiet import QUIET
from _lazyck.config import environment
from _lazyck.postbuild.objects.embedded import read_manifest
from _lazyck.prebuild.entries import Entry, all_entries, tool
from _lazyck.profile import Profile, read_profile
from _lazyck.remote.sign import make_key, read_signer
from _lazyck.terminal import is_quiet

F = TypeVar("F", bound=Callable[..., Any])
_FILE = click.Path(path_type=Path)


def share_options(command: F) -> F:
    """Add the options that these commands share."""
    decorators = [
        click.option(
            "--profile", "profiles", type=_FILE, multiple=True, metavar="FILE",
            help="Only the blobs of this profile or blob list; repeatable.",
        ),
        click.option(
            "--gpu-archs", "--arch", default="", metavar="LIST",
            help="Archs of the library. [default: LAZYCK_ARCHS, else the build's]",
        ),
        click.option(
            "--jobs", type=click.IntRange(1, 64), default=8, show_default=True, help="Parallel transfers."
        ),
        click.option("--dry-run", is_flag=True, help="Name what would be transferred; transfer nothing."),
        click.option("--json", "as_json", is_flag=True, help="Print JSON."),
        QUIET,
        click.argument("blobs", nargs=-1, metavar="[BLOB]..."),
    ]  # fmt: skip
    for decorate in reversed(decorators):
        command = decorate(command)
    return command


LIBRARY = click.option(
    "--manifest", "library", type=_FILE, required=True, metavar="LIBRARY", help="A lazy library, or its manifest."
)


@click.command("push")
@click.option(
    "--manifest", "library", type=_FILE, metavar="LIBRARY", help="Only entries that this lazy library would load."
)
@share_options
def push_command(library: Path | None, as_json: bool, blobs: tuple[str, ...], **how: Any) -> None:
    """Copy the cache's entries (all, or those of blobs that match the shell patterns) to the tiers
    of LAZYCK_REMOTE.

    What is already there is skipped, so that an interrupted push continues where it stopped. Status
    1 if any was refused or failed.
    """
    share, profiles = _prepare(how)
    began = time.monotonic()
    if library is None:
        cache, _ = entries.cache_to_read(share.env)
        done = push.push(share, local_items(cache, blobs, profiles), cache)
    else:
        done = _push_of(share, _entries_of(share, library, blobs, profiles, how))
    _finish([done], began, share.dry_run, as_json)


@click.command("pull")
@LIBRARY
@share_options
def pull_command(library: Path, as_json: bool, blobs: tuple[str, ...], **how: Any) -> None:
    """Fetch the entries of a library that the cache lacks (all, or those of blobs that match) from
    the tiers of LAZYCK_REMOTE.

    Each is verified, then published. Status 1 if any was refused, or a tier was down.
    """
    share, profiles = _prepare(how)
    began = time.monotonic()
    done = pull.pull(share, _entries_of(share, library, blobs, profiles, how))
    _finish([done], began, share.dry_run, as_json)


@click.command("sync")
@LIBRARY
@share_options
def sync_command(library: Path, as_json: bool, blobs: tuple[str, ...], **how: Any) -> None:
    """Pull a library's entries that the cache lacks, then push those that the remote lacks."""
    share, profiles = _prepare(how)
    began = time.monotonic()
    pulled = pull.pull(share, _entries_of(share, library, blobs, profiles, how))
    pushed = _push_of(share, _entries_of(share, library, blobs, profiles, how))
    _finish([pulled, pushed], began, share.dry_run, as_json)


@click.command("provenance")
@LIBRARY
@click.option(
    "--gpu-archs",
    "--arch",
    default="",
    metavar="LIST",
    help="Archs of the library. [default: LAZYCK_ARCHS, else the build's]",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.argument("blobs", nargs=-1, metavar="[BLOB]...")
def provenance_command(library: Path, gpu_archs: str, as_json: bool, blobs: tuple[str, ...]) -> None:
    """Say who compiled a library's entries in the cache (all, or those of blobs that match), when
    and with which compiler, as the tiers of LAZYCK_REMOTE say it, signed by a key of LAZYCK_TRUST.

    Status 1 if that is not known of any of them.
    """
    share, _ = _prepare({"jobs": 1, "dry_run": False, "profiles": ()})
    found = _entries_of(share, library, blobs, [], {"gpu_archs": gpu_archs})
    origins = provenance.find(share, found if blobs else [e for e in found if e.cached])
    click.echo(json.dumps(provenance.to_json(origins), indent=1) if as_json else provenance.render(origins))
    sys.exit(0 if all(o.provenance for o in origins) else 1)


@click.command("keygen")
@click.argument("file", type=_FILE)
@click.option("--public", is_flag=True, help="Only print the public key of the existing FILE.")
def keygen_command(file: Path, public: bool) -> None:
    """Make a private key in FILE, for LAZYCK_SIGN_KEY, and print the public one, for
    LAZYCK_TRUST."""
    signer = read_signer(file.absolute()) if public else make_key(file)
    click.echo(signer.public)


COMMANDS = (push_command, pull_command, sync_command, provenance_command, keygen_command)


def _prepare(how: dict[str, Any]) -> tuple[Share, list[Profile]]:
    env = environment()
    entries.is_there(entries.cache_of(env))  # raises if the cache cannot be used
    share = Share(env, how["jobs"], how["dry_run"], lambda: tool(env), transfer.reporter)
    return share, [read_profile(path) for path in how["profiles"]]


def _entries_of(
    share: Share, library: Path, blobs: Sequence[str], profiles: Sequence[Profile], how: dict[str, Any]
) -> list[Entry]:
    chosen = select_blobs(read_manifest(library), blobs, profiles)
    return all_entries(share.rt(), library, chosen, how["gpu_archs"], share.env)


def _push_of(share: Share, found: Sequence[Entry]) -> Outcome:
    """Push those entries of a library that the cache has. The runtime has just verified them."""
    return push.push(share, items_of([e for e in found if e.cached]), None)


def _finish(outcomes: Sequence[Outcome], began: float, dry_run: bool, as_json: bool) -> None:
    seconds = time.monotonic() - began
    if as_json:
        rows = [transfer.to_json(o) for o in outcomes]
        click.echo(json.dumps(rows[0] if len(rows) == 1 else dict(zip(("pull", "push"), rows, strict=True)), indent=1))
    else:
        for outcome in outcomes:
            if not (is_quiet() and outcome.is_good):
                click.echo(transfer.render(outcome, seconds, dry_run))
    if not all(o.is_good for o in outcomes):
        sys.exit(1)
