"""Cold-start 16 hosts × 8 ranks that share a remote, in network namespaces, plain and with faults.

python benchmarks/fleet.py [--hosts 16] [--ranks 8] [--scenario NAME …] [--json FILE] [--table FILE]

Needs root, iproute2, nginx, redis-server, and lazyck[bench]. Every host has a cache and a home of
its own. Its ranks are processes that call the same blobs, one after the other. A compile takes a
fixed time (`--seconds`) of sleep, because real compiles of 128 processes do not fit on a small
machine. Everything else is real: the lazy library, its runtime, `lazyck-remote`, the network, the
servers.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import fleet_net
import fleet_remotes
from fleet_net import Host
from fleet_ranks import Figures, Options, OtherLoad, adopt_orphans, build, measure, start_ranks
from fleet_remotes import Remote


@dataclass(frozen=True)
class Scenario:
    """Describes a scenario. `trouble(remote, hosts)` runs while the ranks do; with `is_warm` the
    remote has all entries from the beginning."""

    name: str
    says: str
    remote: type[Remote] | None = fleet_remotes.Nginx
    trouble: Callable[[Remote, Sequence[Host]], None] | None = None
    is_warm: bool = False
    env: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """Holds the figures of one scenario: `errors` counts ranks that failed or got a wrong result,
    `bytes` what the remote received and sent, `left` the share of the cores that other processes
    left."""

    name: str
    policy: str
    hosts: int
    compiles: int
    median: float
    last: float
    requests: int
    bytes: int
    errors: int
    skipped: int
    refused: int
    parameters: dict[str, Any]
    left: float = 1.0


def cut_half(remote: Remote, hosts: Sequence[Host]) -> None:
    """Cut half of the hosts off from the third second to the thirteenth."""
    half = hosts[: len(hosts) // 2]
    time.sleep(3)
    for host in half:
        host.cut()
    time.sleep(10)
    for host in half:
        host.join()


def restart(remote: Remote, hosts: Sequence[Host]) -> None:
    """Kill the server in the third second and start it again in the eighth."""
    time.sleep(3)
    remote.kill()
    time.sleep(5)
    remote.start()


SCENARIOS = (
    Scenario("none", "no remote: each host for itself", None),
    Scenario("plain", "nginx"),
    Scenario("redis", "Redis", fleet_remotes.Redis),
    Scenario("s3", "S3 (moto)", fleet_remotes.S3),
    Scenario("warm", "nginx that has it all", is_warm=True),
    Scenario("partition", "half of the hosts cut off from 3 s to 13 s", trouble=cut_half),
    Scenario("restart", "nginx killed at 3 s, there again at 8 s", trouble=restart),
    Scenario("restart-redis", "Redis killed at 3 s, there again, empty, at 8 s", fleet_remotes.Redis, restart),
    Scenario("garbage", "every second answer is 5,000 random bytes", fleet_remotes.BadNginx),
    Scenario("truncated", "every second answer ends half-way", fleet_remotes.TruncatedNginx),
    Scenario("errors", "every second answer is status 500", fleet_remotes.FailingNginx),
    Scenario("stalls", "every second answer comes after 30 s", fleet_remotes.StallingNginx),
    Scenario("full", "the server's disk has room for a few entries", fleet_remotes.FullNginx),
)


def run(o: Options, program: Path, scenario: Scenario, figures: Figures) -> Outcome:
    """Run one cold start."""
    where = o.work / scenario.name
    where.mkdir()
    with fleet_net.network(o.hosts) as (server, *hosts):
        remote = scenario.remote(server, where) if scenario.remote else None
        env = dict(scenario.env)
        try:
            if remote:
                remote.start()
                address, _, attributes = remote.url.partition("|")
                env |= {"LAZYCK_REMOTE": "|".join(filter(None, (address, "trusted", attributes))), **remote.env}
            if scenario.is_warm:
                for process in start_ranks(o, program, hosts[:1], where / "before", env):
                    process.wait()
                time.sleep(2)  # uploads go on after the ranks have ended
            before = (server.traffic(), remote.requests() if remote else 0)
            others = OtherLoad()
            running = start_ranks(o, program, hosts, where / "run", env)
            if scenario.trouble and remote:
                scenario.trouble(remote, hosts)
            for process in running:
                process.wait(timeout=900)
            left = others.left()
            time.sleep(1.5)
            traffic = [b - a for a, b in zip(before[0], server.traffic(), strict=True)]
            requests = (remote.requests() if remote else 0) - before[1]
        finally:
            if remote:
                remote.kill()
    ran = read(o, scenario, where / "run", hosts, requests, sum(traffic))
    return replace(ran, parameters={**ran.parameters, **figures.parameters(left)}, left=left)


def read(o: Options, scenario: Scenario, where: Path, hosts: Sequence[Host], requests: int, size: int) -> Outcome:
    """Return the outcome from the files that the ranks have left."""
    times, errors, text = [], 0, ""
    for host in hosts:
        for rank in range(o.ranks):
            words = (where / host.name / f"rank{rank}").read_text().split()
            text += (where / host.name / f"log{rank}").read_text(errors="replace")
            times += [float(words[0])] if words else []
            errors += not words or words[1] != "0"
    log = where / "compiles"
    entries = [p.stat().st_size for p in where.glob("*/cache/v1/*/*/*.so")]
    policy = "no remote" if not scenario.remote else "pulled before" if scenario.is_warm else "leases"
    parameters = {
        "blobs": [o.seconds] * o.blobs, "cores": os.cpu_count(), "ranks": o.ranks, "noise": 0.0, "start": 0.3,
        "parallel": 1, "streams": 1,
        "size": statistics.mean(entries) if entries else 0, "atomic": scenario.remote is fleet_remotes.Redis,
    }  # fmt: skip
    return Outcome(
        scenario.name, policy, o.hosts, len(log.read_text().split()) if log.exists() else 0,
        statistics.median(times), max(times), requests, size, errors,
        text.count("passed over"), text.count("refused"), parameters,
    )  # fmt: skip


def table(outcomes: Sequence[Outcome], o: Options) -> str:
    """Return the outcomes as a table in Markdown."""
    says = {s.name: s.says for s in SCENARIOS}
    lines = [
        "| remote | compiles | half of the ranks | last rank | requests | bytes | errors seen by callers |",
        "|---|---|---|---|---|---|---|",
    ]
    for r in outcomes:
        lines.append(
            f"| {says[r.name]} | {r.compiles} | {r.median:.1f} s | {r.last:.1f} s | {r.requests} |"
            f" {r.bytes / 1e6:.1f} MB | {r.errors} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--hosts", type=int, default=16)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--blobs", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=1.5, help="of a compile")
    parser.add_argument("--scenario", action="append", choices=[s.name for s in SCENARIOS], help="default: all")
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--table", type=Path, help="write the table here too")
    parser.add_argument("--keep", type=Path, help="a directory for everything, which is left there")
    args = parser.parse_args()
    if reason := fleet_net.missing():
        sys.exit(f"fleet: {reason}")
    chosen = [s for s in SCENARIOS if not args.scenario or s.name in args.scenario]
    with tempfile.TemporaryDirectory(prefix="lazyck-fleet-") as name:
        work = args.keep.absolute() if args.keep else Path(name)
        work.mkdir(exist_ok=True)
        o = Options(args.hosts, args.ranks, args.blobs, args.seconds, work)
        program = build(o)
        adopt_orphans()
        figures = measure(o)
        print(
            f"a helper takes {figures.helper:.2f} s of CPU, each request {figures.request * 1e3:.1f} ms, "
            f"a compile {figures.compile:.2f} s and its sleep"
        )
        outcomes = []
        for scenario in chosen:
            outcomes.append(run(o, program, scenario, figures))
            print(table(outcomes[-1:], o).splitlines()[-1], flush=True)
    print(f"\n{table(outcomes, o)}")
    if args.table:
        args.table.write_text(table(outcomes, o) + "\n")
    if args.json:
        args.json.write_text(json.dumps([asdict(r) for r in outcomes], indent=1) + "\n")
    sys.exit(1 if any(r.errors for r in outcomes) else 0)


if __name__ == "__main__":
    main()
