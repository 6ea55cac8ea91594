"""Define the tables of docs/scale.md: what each row simulates, and what its columns show."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from fleet_model import Fleet, Late, Parameters, Policy, Result, World, units_of
from fleet_service import ServiceParameters
from fleet_tier import Spoiled
from fleet_units import BLOB_SECONDS, SAME_TEXT, Call, Source, blobs, even_steps, kernel_calls, sources, upgraded

HOSTS = (100, 1_000, 10_000)
MORE_HOSTS = (100, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000)
LATER = 10.0  # seconds by which the last rank is late where a part is at its limit
P = Parameters()

# -- what hosts do ---------------------------------------------------------------------------------

PREFETCHED = 16
ALONE = Policy("no remote", PREFETCHED, has_remote=False)
NO_LEASES = Policy("no leases", PREFETCHED, has_leases=False)
JITTER = replace(NO_LEASES, name="jittered start", jitter=0.25)
LEASES = Policy("leases", PREFETCHED)
PULLED = Policy("pulled", is_pulled=True)

_LIBRARY = sources(10)
KERNELS = kernel_calls(_LIBRARY, 3)  # 30 kernels of 10 files
WHOLE = tuple(Call(Source(source.whole)) for source in _LIBRARY)
BLOBS = blobs(even_steps(30, *BLOB_SECONDS))
FILLED = tuple(units_of(KERNELS))


def in_turn(policy: Policy) -> Policy:
    """Return the policy for first calls, one after the other."""
    return replace(policy, parallel=1)


def with_misses(misses: int) -> World:
    """Return a world in which the profile lacks so many of the 30 kernels that each host calls.
    Each host calls others than its neighbours do, of 60 kernels of the same files."""
    pool = tuple(Call(source, k) for source in _LIBRARY for k in range(3, 9))
    return World(KERNELS[misses:], late=Late(pool, misses, 600.0))


def half_upgraded(changed: float, same_text: float) -> World:
    """Return a world in which half of the fleet has the library's next build."""
    return World(KERNELS, filled=FILLED, upgraded=upgraded(KERNELS, changed, same_text, P.seed))


def poisoned(share: float, *, near: bool, unsigned: bool, lasting: bool = False) -> World:
    """Return a world in which a share of a tier's entries is bad. With `near`, it is a read-only
    tier in front of the shared one, which has everything."""
    return World(KERNELS, FILLED, spoiled=Spoiled(share, unsigned, lasting), has_near_tier=near)


def served(workers: int, up_at: float = 0.0) -> World:
    """Return a world without compilers, with a compile service of so many workers."""
    return World(KERNELS, service=ServiceParameters(workers, up_at=up_at))


# -- tables ----------------------------------------------------------------------------------------

Columns = Mapping[str, Callable[[Result], str]]


def amount(count: float) -> str:
    """Return a number such as `950`, `12.3k` or `1.5M`."""
    for unit in ("", "k", "M", "G"):
        if abs(count) < 999.5:
            return f"{count:.0f}{unit}" if not unit or count >= 99.95 else f"{count:.1f}{unit}"
        count /= 1000
    return f"{count:.1f}T"


def hours(seconds: float) -> str:
    """Return core-hours, with one digit behind the point if there are few."""
    value = seconds / 3600
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


COMPILES: Columns = {"compiles": lambda r: f"{r.compiles:,}", "core-hours": lambda r: hours(r.core_seconds)}
TAKEN_OVER: Columns = {"taken over": lambda r: f"{r.taken_over:,}"}
BYTES: Columns = {"bytes from and to the tier": lambda r: f"{amount(r.bytes)}B"}
READY: Columns = {"half of the ranks ready": lambda r: f"{r.median:.0f} s", "last rank": lambda r: f"{r.last:.0f} s"}
LOAD: Columns = {
    "requests/s at most": lambda r: amount(r.peak_requests),
    "bytes/s at most": lambda r: f"{amount(r.peak_bytes)}B",
    "given up": lambda r: f"{r.given_up:,}",
}


@dataclass(frozen=True)
class Table:
    """Describes a table: the situations that it shows for each number of hosts, and its columns.
    With `finds_limit`, it shows the first number of hosts at which the last rank is late."""

    name: str
    title: str
    rows: Mapping[str, tuple[Policy, World]]
    columns: Columns
    hosts: Sequence[int] = HOSTS
    p: Parameters = P
    finds_limit: bool = False

    def simulate(self, label: str, hosts: int) -> Result:
        """Return the result of one row."""
        policy, world = self.rows[label]
        return Fleet(policy, hosts, self.p, world).run()

    def run(self, hosts: Sequence[int]) -> dict[str, list[Result]]:
        """Return the results of each situation for these numbers of hosts; with `finds_limit`, for
        the first, and for the one at which the last rank is late or, if it never is, the last."""
        found: dict[str, list[Result]] = {}
        for label in self.rows:
            results = [self.simulate(label, hosts[0])]
            for count in hosts[1:]:
                results[1 if self.finds_limit else len(results) :] = [self.simulate(label, count)]
                if self.finds_limit and results[1].last > results[0].last + LATER:
                    break
            found[label] = results
        return found

    def render(self, found: Mapping[str, Sequence[Result]]) -> str:
        """Return the results as a table in Markdown."""
        heads = ["hosts", self.title, *self.columns]
        lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
        rows = [(label, r) for label, results in found.items() for r in results]
        if self.finds_limit:
            rows = [(label, r) for label, r in rows if r.hosts > self.hosts[0]]
        else:
            rows.sort(key=lambda row: row[1].hosts)
        for label, r in rows:
            is_late = not self.finds_limit or r.last > found[label][0].last + LATER
            hosts = f"{r.hosts:,}" if is_late else f"not at {r.hosts:,}"
            cells = [hosts, label, *(show(r) for show in self.columns.values())]
            lines.append("| " + " | ".join(cells) + " |")
        return "\n".join(lines)


TABLES = (
    Table(
        "cold",
        "cold start",
        {
            "each host for itself": (ALONE, World(KERNELS)),
            "a shared cache, leases": (LEASES, World(KERNELS)),
            "the same, without a profile": (in_turn(LEASES), World(KERNELS)),
            "the same, whole files": (LEASES, World(WHOLE)),
            "hosts without compilers, a compile service of 8 workers": (LEASES, served(8)),
            "all of it in the shared cache before": (PULLED, World(KERNELS, FILLED)),
        },
        {**COMPILES, **BYTES, **READY},
    ),
    Table(
        "limits",
        "what is at its limit",
        {
            "the store's requests, as waiters look (leases, with a profile)": (LEASES, World(KERNELS)),
            "the store's requests, as waiters look (leases, without a profile)": (in_turn(LEASES), World(KERNELS)),
            "the store's requests, as all ask at once (no leases)": (NO_LEASES, World(KERNELS)),
            "the store's link (pulled before)": (PULLED, World(KERNELS, FILLED)),
            "the CAS's link (a compile service of 8 workers, no shared cache)": (ALONE, served(8)),
        },
        {"last rank": READY["last rank"], **LOAD, "CAS bytes": lambda r: f"{amount(r.cas_bytes)}B"},
        MORE_HOSTS,
        finds_limit=True,
    ),
    Table(
        "blobs",
        "30 blobs of Composable Kernel",
        {
            f"{policy.name}, {way}": (how, World(BLOBS, tuple(units_of(BLOBS)) if policy is PULLED else ()))
            for policy in (ALONE, NO_LEASES, JITTER, LEASES, PULLED)
            for way, how in (("called", in_turn(policy)), ("prefetched", policy))
            if policy is not PULLED or way == "called"
        },
        {**COMPILES, **BYTES, **LOAD, **READY},
    ),
    Table(
        "misses",
        "of 30 kernels, the profile covers",
        {
            f"{30 - misses}{where}": (policy, with_misses(misses))
            for where, policy in (("", LEASES), (", each host for itself", ALONE))
            for misses in (1, 3, 15)
        },
        {
            "last rank": READY["last rank"],
            "compiles": COMPILES["compiles"],
            "of these late": lambda r: f"{r.late_compiles:,}",
            "whole files in the background": lambda r: f"{r.background:,}",
            "late first calls": lambda r: f"{r.late_calls:,}",
            "median wait": lambda r: f"{r.late_wait:.1f} s",
            "longest wait": lambda r: f"{r.longest_late_wait:.1f} s",
        },
    ),
    Table(
        "upgrade",
        "half of the fleet has a build in which",
        {
            "all keys are new, all texts": (LEASES, half_upgraded(1.0, 0.0)),
            "all keys are new, 0.61 of the texts are not": (LEASES, half_upgraded(1.0, SAME_TEXT)),
            "0.3 of the files' keys are new, all of their texts": (LEASES, half_upgraded(0.3, 0.0)),
        },
        {**COMPILES, **TAKEN_OVER, **BYTES, **READY, "mixed": lambda r: f"{r.mixed}"},
    ),
    Table(
        "poisoned",
        "bad entries",
        {
            "none": (PULLED, World(KERNELS, FILLED)),
            "a mirror's, all unsigned": (PULLED, poisoned(1, near=True, unsigned=True)),
            "a mirror's, a tenth with wrong contents": (PULLED, poisoned(0.1, near=True, unsigned=False)),
            "the shared cache's, all unsigned": (LEASES, poisoned(1, near=False, unsigned=True)),
            "the shared cache's, a tenth with wrong contents": (LEASES, poisoned(0.1, near=False, unsigned=False)),
            "the shared cache's, a tenth unsigned, for ever": (
                LEASES,
                poisoned(0.1, near=False, unsigned=True, lasting=True),
            ),
        },
        {
            "refused": lambda r: f"{r.refused:,}",
            **COMPILES,
            **TAKEN_OVER,
            **BYTES,
            "last rank": READY["last rank"],
            "bad ones loaded": lambda r: f"{r.mixed}",
        },
        (100, 300),
        replace(P, simulated=300),  # hosts may compile one by one, so none can stand for another
    ),
    Table(
        "service",
        "compile service",
        {
            **{f"{w} worker{'s' * (w > 1)}, a shared cache": (LEASES, served(w)) for w in (1, 2, 4, 8, 16)},
            "8 workers, no shared cache": (ALONE, served(8)),
            "8 workers, down for the first 5 minutes": (LEASES, served(8, 300.0)),
        },
        {
            "compiles": COMPILES["compiles"],
            "failed": lambda r: f"{r.failed:,}",
            "longest queue": lambda r: f"{r.longest_queue:.0f} s",
            "CAS bytes": lambda r: f"{amount(r.cas_bytes)}B",
            **BYTES,
            **READY,
        },
    ),
)
BY_NAME = {table.name: table for table in TABLES}
