"""`lazyck prebuild`: fills the cache ahead of time."""

import contextlib
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, fields, replace
from functools import wraps
from pathlib import Path
from typing import Any

import click

from lazyck import abi
from lazyck.commands.shared_options import ANY, DIRECTORY, QUIET, F, archs_option, jobs_option, together
from lazyck.errors import BuildError, UsageError
from lazyck.formats.manifest import Manifest
from lazyck.history.costs import Costs, read_costs, write_shipped
from lazyck.postbuild.cxx.demangle import all_readable
from lazyck.postbuild.objects.embedded import read_manifest
from lazyck.prebuild import blob_names, forecast, listing, output, plan, progress
from lazyck.prebuild.blob_entries import BlobEntry, all_serving, clean_blobs
from lazyck.prebuild.preambles import make_preambles
from lazyck.prebuild.run import LocalRun, PrebuildRequest, build_on
from lazyck.quantities import counted, parse_size
from lazyck.runtime.tool import tool
from lazyck.settings.environment import cache_dir, environment, parallel_compiles
from lazyck.terminal import say

_FAILED_HINT = "each failure above names its log; fix the cause and build again: what is cached is kept"
_AGAIN = "run the same command again"


@click.group("prebuild")
def group() -> None:
    """Fill the cache ahead of time, or remove blobs from it."""


@dataclass(frozen=True)
class Named:
    """What the options of `blob_options` name: blobs of a library, and archs."""

    manifest_file: Path
    blob_list: tuple[str, ...]
    every: bool
    gpu_archs: str
    blobs: tuple[str, ...]

    def select(self, *, kernels: bool = False) -> blob_names.Selection:
        """Return the blobs. Raises `UsageError` that lists unknown names."""
        manifest = read_manifest(self.manifest_file)
        given = [*self.blobs]
        for name in self.blob_list:
            given += blob_names.read_list(name, sys.stdin, manifest.library)
        return blob_names.select(manifest, given, self.every, kernels=kernels)

    def entries(self, rt: Path, chosen: blob_names.Selection, env: Mapping[str, str]) -> list[BlobEntry]:
        return all_serving(rt, self.manifest_file, chosen, self.gpu_archs, env)


def _with_named(command: Callable[..., None]) -> Any:
    """Call `command` with one `Named` in place of its fields."""

    @wraps(command)
    def with_named(**given: Any) -> None:
        command(Named(*(given.pop(field.name) for field in fields(Named))), **given)

    return with_named


def blob_options(*, is_of_wheels: bool = False) -> Callable[[F], F]:
    """Return a decorator that adds the options that name blobs, which several commands share. The
    command gets them as a `Named`. With `is_of_wheels`, the library may be named otherwise."""
    manifest_help = f"A lazy library, or the `manifest` of its bundle{', for --tar' if is_of_wheels else ''}."
    list_help = "File of blob names, one per line, or a profile; `-` is stdin; repeatable."
    return together(
        click.option("--manifest", "manifest_file", type=ANY, required=not is_of_wheels, help=manifest_help),
        click.option("--blob-list", multiple=True, metavar="FILE", help=list_help),
        click.option("--all", "every", is_flag=True, help="All blobs."),
        archs_option(),
        click.argument("blobs", nargs=-1),
        _with_named,
    )


@group.command("list")
@blob_options()
@click.option("--format", "form", type=click.Choice(listing.FORMATS), default="text", show_default=True)
@click.option("--cached", is_flag=True, help="Only those that are cached (for all of --gpu-archs, else for any arch).")
@click.option("--missing", is_flag=True, help="Only those that are not.")
@click.option("--match", default="", metavar="GLOB", help="Only those whose name or source matches the shell pattern.")
@click.option(
    "--kernels",
    is_flag=True,
    help="List the kernels of each source instead of the source; those of a blob once its host unit is cached.",
)
def list_command(named: Named, form: str, cached: bool, missing: bool, match: str, kernels: bool) -> None:
    """List the blobs (all, or those named) and for which archs they are cached."""
    if cached and missing:
        raise UsageError("--cached and --missing exclude each other", "give one of them, or neither for all blobs")
    asked = replace(named, every=named.every or not (named.blobs or named.blob_list))
    library, archs, env = named.manifest_file, named.gpu_archs, environment()
    chosen = listing.matching(asked.select(kernels=kernels), match)
    if kernels:
        chosen = listing.by_kernel(library, chosen, archs, env)
    rows = listing.list_blobs(library, chosen, archs, env)
    wanted = [r for r in rows if (r.is_cached or not cached) and not (r.is_cached and missing)]
    readable = all_readable([r.blob.symbols[0] for r in wanted if r.blob.is_kernel], env)
    sys.stdout.buffer.write(listing.render(wanted, form, readable).encode("utf-8", "surrogateescape"))


@group.command("build")
@blob_options()
@jobs_option()
@QUIET
@click.option(
    "--dry-run", is_flag=True, help="Say what would be compiled and about how long it takes; compile nothing."
)
@click.option("--keep-going/--no-keep-going", default=True, show_default=True, help="Continue after a failure.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object at the end on stdout.")
@click.option(
    "--output",
    "output_dir",
    type=DIRECTORY,
    metavar="DIR",
    help="Compile into DIR, a cache to be shipped, instead of the user's own.",
)
@click.option(
    "--preambles", is_flag=True, help="Only precompile the headers of blobs, so that first calls compile faster."
)
@click.option("--keep-logs", is_flag=True, help="With --output: leave the compilers' logs in DIR.")
@click.option(
    "--write-costs", is_flag=True, help="Record beside the library what the compiles took, to help first calls."
)
@click.option("--verbose", is_flag=True, help="Print the commands.")
@click.option(
    "--launcher",
    metavar="COMMAND",
    help="Run the compiler through this command, such as ccache or distcc. [default: LAZYCK_LAUNCHER]",
)
@click.option(
    "--executor",
    metavar="URL",
    help="Compile elsewhere: on a cluster, dask://HOST:8786 (--jobs is per worker [default: their threads]), or by a"
    " compile service, grpc://HOST:PORT (--jobs is how many actions are under way [default: 64]).",
)
def build_command(
    named: Named,
    jobs: int | None,
    dry_run: bool,
    keep_going: bool,
    as_json: bool,
    output_dir: Path | None,
    preambles: bool,
    keep_logs: bool,
    write_costs: bool,
    verbose: bool,
    launcher: str | None,
    executor: str | None,
) -> None:
    """Compile blobs into the cache that the runtime reads, longest first; what is already there is
    left alone."""
    env = environment()
    if keep_logs and output_dir is None:
        raise UsageError("--keep-logs needs --output", "logs in the user's own cache are always kept")
    if preambles and (output_dir or executor or dry_run):
        raise UsageError(
            "--preambles excludes --output, --executor and --dry-run",
            "preambles can be used only on the machine, and at the library's place, where they were made",
        )
    if launcher is not None:
        env[abi.ENV_LAUNCHER] = launcher
    library, parallel = named.manifest_file, parallel_compiles(env, jobs)
    chosen = named.select()
    costs_file = shipped_costs(library, chosen.manifest) if write_costs else None
    directory = output_dir.resolve() if output_dir else None
    with output.held(directory, say) if directory and not dry_run else nullcontext():
        env = output.environment_of(directory, env) if directory else env
        rt = tool(env)

        def compiled(planned: plan.Plan) -> plan.PlanOutcome:
            def work(reporter: progress.ProgressReporter) -> plan.PlanOutcome:
                request = PrebuildRequest(library, chosen.manifest, planned, env, reporter, keep_going)
                if executor:
                    return build_on(executor, request, named_by="--executor", jobs=jobs)
                return LocalRun(rt, request, parallel, verbose=verbose).build()

            return told(planned, work)

        if preambles:
            to_compile = plan.make_plan(named.entries(rt, chosen, env), Costs({}))
            count = make_preambles(rt, library, to_compile.jobs, parallel, env)
            ready = f"{counted(count, 'precompiled preamble is', 'precompiled preambles are')} ready"
            say(f"{ready} for {counted(len(to_compile.jobs), 'uncached blob')}")
            return
        # The host units come first, since they tell which kernels there are.
        hosts = named.entries(rt, chosen.hosts, env)
        if not dry_run and not all(e.cached for e in hosts):
            finish(compiled(plan.make_plan(hosts, read_known_costs(hosts, env))))
        found = named.entries(rt, chosen, env)
        known = read_known_costs(found, env)
        planned = plan.make_plan(found, known)
        if dry_run:
            render = plan.plan_to_json if as_json else plan.render_plan
            click.echo(render(planned, known, parallel).rstrip("\n"))
            return
        outcome = compiled(planned)
        tried = {e.path for e in found}
        while planned.jobs and not outcome.left:  # what was made may say that a kernel takes its whole source
            found = named.entries(rt, chosen, env)
            planned = plan.make_plan([e for e in found if not e.cached and e.path not in tried], known)
            tried |= {job.entry.path for job in planned.jobs}
            outcome = plan.together(outcome, compiled(planned)) if planned.jobs else outcome
        if as_json:
            click.echo(plan.outcome_to_json(outcome))
        if costs_file:
            count = write_shipped(costs_file, read_known_costs(found, env), [e.cost_key for e in found])
            say(f"{costs_file} records what {counted(count, 'compile')} took")
        if directory and not outcome.is_interrupted:
            output.adopt(directory, found)
            output.tidy(directory, keep_logs, [f.job.entry.log for f in outcome.failures])
    finish(outcome)
    if executor and (bad := [e for e in found if not e.cached]):
        text = counted(len(bad), "fetched entry is", "fetched entries are")
        raise BuildError(f"{text} damaged, such as {bad[0].path}", _AGAIN)
    if directory and (absent := output.missing(directory, found)):
        text = counted(len(absent), "entry is", "entries are")
        raise BuildError(f"{text} missing in {directory}, such as {absent[0].relative}", _AGAIN)


def shipped_costs(manifest_file: Path, manifest: Manifest) -> Path:
    """Return the file of a library's bundle for what compiles took. Raises `UsageError` if there is
    no bundle."""
    directory = manifest_file.absolute().parent
    places = [directory / "lazyck" / manifest.library, directory / manifest.root / manifest.library]
    places += [directory] if manifest_file.name == "manifest" else []
    for place in places:
        if place.is_dir():
            return place / abi.BUNDLE_COSTS
    raise UsageError(
        f"{manifest_file}: no bundle beside it for --write-costs to write to", "give the library that has one"
    )


def read_known_costs(found: list[BlobEntry], env: Mapping[str, str]) -> Costs:
    """Return what the compiles took before, according to the cache that is filled and the user's
    own."""
    caches = dict.fromkeys(e.root for e in found)
    with contextlib.suppress(UsageError):  # another cache may be filled
        if own := cache_dir(environment()):
            caches[own] = None
    return read_costs(caches, {e.cost_key[0] for e in found})


def told(planned: plan.Plan, work: Callable[[progress.ProgressReporter], plan.PlanOutcome]) -> plan.PlanOutcome:
    """Carry out the plan by `work`, with progress on stderr, and say what came of it."""
    total = counted(planned.total, "entry is", "entries are")
    say(f"{planned.cached} of {total} cached already, {len(planned.jobs)} to compile")
    if not planned.jobs:
        return plan.PlanOutcome(planned, 0, (), 0.0)
    outcome = work(progress.reporter(len(planned.jobs)))
    say(plan.render_outcome(outcome))
    return outcome


def finish(outcome: plan.PlanOutcome) -> None:
    """Raise `BuildError` that lists the failures, or `KeyboardInterrupt` if the work was
    interrupted."""
    if outcome.failures:
        text = f"{len(outcome.failures)} of {len(outcome.plan.jobs)} could not be compiled:"
        error = BuildError(f"{text}\n{plan.render_failures(outcome.failures)}", _FAILED_HINT)
        if not outcome.is_interrupted:
            raise error
        say(error.render())
    if outcome.is_interrupted:
        say("what is compiled is kept; run the same command again to compile the rest")
        raise KeyboardInterrupt
    if outcome.left:
        raise BuildError(f"{counted(outcome.left, 'entry was', 'entries were')} not compiled", _AGAIN)


def worker_counts(_context: click.Context, _parameter: click.Parameter, text: str) -> list[int]:
    """Parse a list of numbers such as `4` or `4,8,16`."""
    words = text.split(",")
    if not all(w.isascii() and w.isdigit() and 1 <= int(w) <= 1_000_000 for w in words):
        raise click.BadParameter(f"{text!r} is not a list of numbers such as 4,8,16")
    return [int(w) for w in words]


@group.command("plan")
@blob_options()
@click.option(
    "--workers", required=True, callback=worker_counts, metavar="LIST", help="Numbers of workers, such as 8 or 4,8,16."
)
@jobs_option("Parallel compiles of each worker.", " here")
@click.option("--memory", default="", metavar="SIZE", help="Memory of each worker, such as 64G. [default: no bound]")
@click.option("--from-scratch", is_flag=True, help="Plan as if nothing were cached yet.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def plan_command(
    named: Named, workers: list[int], jobs: int | None, memory: str, from_scratch: bool, as_json: bool
) -> None:
    """Estimate how long a build takes on that many workers, from what compiles took before."""
    env = environment()
    kib = parse_size(memory, "--memory") // 1024 if memory else None
    found = named.entries(tool(env), named.select(), env)
    work = forecast.gather(found, read_known_costs(found, env), from_scratch)
    each = [forecast.forecast(work, forecast.Fleet(n, parallel_compiles(env, jobs), kib)) for n in workers]
    click.echo((forecast.to_json if as_json else forecast.render)(work, each).rstrip("\n"))


@group.command("clean")
@blob_options()
def clean_command(named: Named) -> None:
    """Remove blobs' entries from the cache (every arch, unless --gpu-archs names some)."""
    removed = clean_blobs(named.manifest_file, named.select(), named.gpu_archs, environment())
    click.echo(f"lazyck: removed {counted(removed, 'cached entry', 'cached entries')}")
