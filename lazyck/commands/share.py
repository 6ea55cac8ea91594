"""`lazyck cache push|pull|sync|keygen`: exchanges entries between the local cache and
other machines."""

import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from lazyck.cache import entries, push_pull, transfer
from lazyck.cache.transfer import Share, TransferOutcome, items_of, local_items, select_blobs
from lazyck.commands.shared_options import ANY, JSON, QUIET, archs_option, files_option, together
from lazyck.history.profile import Profile, read_profile
from lazyck.postbuild.objects.embedded import read_manifest
from lazyck.prebuild.blob_entries import BlobEntry, all_serving
from lazyck.remote.sign import make_key, read_signer
from lazyck.runtime.tool import tool
from lazyck.settings.environment import environment
from lazyck.terminal import is_quiet

share_options = together(
    files_option("--profile", "profiles", "FILE", "Only the blobs of this profile or blob list"),
    archs_option("Archs of the library."),
    click.option("--jobs", type=click.IntRange(1, 64), default=8, show_default=True, help="Parallel transfers."),
    click.option("--dry-run", is_flag=True, help="Name what would be transferred; transfer nothing."),
    JSON,
    QUIET,
    click.argument("blobs", nargs=-1, metavar="[BLOB]..."),
)  # fmt: skip
LIBRARY = click.option(
    "--manifest", "library", type=ANY, required=True, metavar="LIBRARY", help="A lazy library, or its manifest."
)


@click.command("push")
@click.option(
    "--manifest", "library", type=ANY, metavar="LIBRARY", help="Only entries that this lazy library would load."
)
@share_options
def push_command(library: Path | None, as_json: bool, blobs: tuple[str, ...], **how: Any) -> None:
    """Copy the cache's entries (all, or those of blobs that match the shell patterns) to the tiers
    of LAZYCK_REMOTE.

    What is already there is skipped, so that an interrupted push continues where it stopped. Status
    1 if any was refused or failed.
    """
    _exchange(("pushed",), library, blobs, as_json, how)


@click.command("pull")
@LIBRARY
@share_options
def pull_command(library: Path, as_json: bool, blobs: tuple[str, ...], **how: Any) -> None:
    """Fetch the entries of a library that the cache lacks (all, or those of blobs that match) from
    the tiers of LAZYCK_REMOTE.

    Each is verified, then published. Status 1 if any was refused, or a tier was down.
    """
    _exchange(("pulled",), library, blobs, as_json, how)


@click.command("sync")
@LIBRARY
@share_options
def sync_command(library: Path, as_json: bool, blobs: tuple[str, ...], **how: Any) -> None:
    """Pull a library's entries that the cache lacks, then push those that the remote lacks."""
    _exchange(("pulled", "pushed"), library, blobs, as_json, how)


@click.command("keygen")
@click.argument("file", type=ANY)
@click.option("--public", is_flag=True, help="Only print the public key of the existing FILE.")
def keygen_command(file: Path, public: bool) -> None:
    """Make a private key in FILE, for LAZYCK_SIGN_KEY, and print the public one, for
    LAZYCK_TRUST."""
    signer = read_signer(file.absolute()) if public else make_key(file)
    click.echo(signer.public)


COMMANDS = (push_command, pull_command, sync_command, keygen_command)


def _entries_of(
    library: Path, blobs: Sequence[str], profiles: Sequence[Profile], gpu_archs: str, env: Mapping[str, str]
) -> list[BlobEntry]:
    chosen = select_blobs(read_manifest(library), blobs, profiles)
    return all_serving(tool(env), library, chosen, gpu_archs, env)


def _exchange(verbs: Sequence[str], library: Path | None, blobs: Sequence[str], as_json: bool, how: Any) -> None:
    """Have entries of a library "pulled" or "pushed", in this order, and print the outcome. Without
    a library, the cache's entries are pushed."""
    env = environment()
    entries.is_there(entries.cache_of(env))  # raises if the cache cannot be used
    share = Share(env, how["jobs"], how["dry_run"])
    profiles = [read_profile(path) for path in how["profiles"]]
    began = time.monotonic()
    outcomes: dict[str, TransferOutcome] = {}
    for verb in verbs:
        if library is None:
            cache, _ = entries.cache_to_read(env)
            outcomes[verb] = push_pull.push(share, local_items(cache, blobs, profiles), cache)
            continue
        found = _entries_of(library, blobs, profiles, how["gpu_archs"], env)
        # The runtime has just verified the entries that the cache has.
        cached = items_of([e for e in found if e.cached])
        outcomes[verb] = push_pull.pull(share, found) if verb == "pulled" else push_pull.push(share, cached, None)
    seconds = time.monotonic() - began
    if as_json:
        rows = {verb.removesuffix("ed"): transfer.to_json(verb, o) for verb, o in outcomes.items()}
        click.echo(json.dumps(rows if len(rows) > 1 else next(iter(rows.values())), indent=1))
    else:
        for verb, outcome in outcomes.items():
            if not (is_quiet() and outcome.is_good):
                click.echo(transfer.render(verb, outcome, seconds, share.dry_run))
    if not all(o.is_good for o in outcomes.values()):
        sys.exit(1)
