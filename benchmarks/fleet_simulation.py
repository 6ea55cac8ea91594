"""Simulate 500 to 10,000 hosts that start at once and need the same 30 blobs, by policy.

python benchmarks/fleet_simulation.py [--quick] [--hosts 500,1000,…] [--picture FILE] [--table FILE]
python benchmarks/fleet_simulation.py --compare fleet.json  (written by benchmarks/fleet.py --json)

This is a simulation (in SimPy; benchmarks/fleet_model.py has the model), not a measurement. It
reports the time until all ranks are warm and the load on the remote. `--picture` draws
docs/scale.svg. The defaults are measured:

- compiles: 15 to 60 s, as CK's attention kernels take for one arch on one core, at even steps
  (examples/ck_fmha)
- size: 140 kB, an entry of CK's forward attention
- look: starting the helper, 0.1 s of a core
- requests: one nginx on one core answered 54,000 GETs a second over kept connections, 17,000 over
  new ones (wrk)
- link: 10 Gbit/s, for the remote and for each host
- polls, time limits: as lazyck/remote has them
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fleet_model import POLICIES, Fleet, Parameters, Result

HOSTS = (500, 1000, 2000, 5000, 10000)
COLORS = ("#888888", "#c1543c", "#c99a2e", "#2a7f62", "#3b6ea8")


def even_steps(count: int, first: float, last: float) -> list[float]:
    """Return `count` times in seconds, in even steps from the longest to the shortest: prefetching
    begins with what takes longest."""
    return [last - (last - first) * i / max(1, count - 1) for i in range(count)]


def simulate(hosts: Sequence[int], p: Parameters) -> list[Result]:
    """Simulate every policy for every number of hosts."""
    results = []
    for count in hosts:
        for policy in POLICIES:
            results.append(Fleet(policy, count, p).run())
    return results


def amount(count: float) -> str:
    """Return a number such as `950`, `12.3k` or `1.5M`."""
    for unit in ("", "k", "M", "G"):
        if abs(count) < 999.5:
            return f"{count:.0f}{unit}" if not unit or count >= 99.95 else f"{count:.1f}{unit}"
        count /= 1000
    return f"{count:.1f}T"


def table(results: Sequence[Result], title: str) -> str:
    """Return the results as a table in Markdown."""
    lines = [
        f"| hosts | {title} | half of the ranks warm | last rank | compiles | given up | requests/s at most |"
        " bytes/s at most | bytes |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for r in results:
        lines.append(
            f"| {r.hosts} | {r.policy} | {r.median:.0f} s | {r.last:.0f} s | {r.compiles} | {r.skipped} |"
            f" {amount(r.peak_requests)} | {amount(r.peak_bytes)} | {amount(r.bytes)} |"
        )
    return "\n".join(lines)


def draw(groups: Sequence[tuple[str, Sequence[Result]]], path: Path) -> None:
    """Draw the last rank's time, compiles and requests over the number of hosts, with one row for
    each way of calling."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    matplotlib.rcParams["svg.hashsalt"] = "lazyck"  # the same figures make the same file
    figure, rows = plt.subplots(len(groups), 3, figsize=(12, 3.4 * len(groups)), squeeze=False)
    for (title, results), row in zip(groups, rows, strict=True):
        figures = (
            ("last rank warm after, s", [r.last for r in results]),
            ("compiles in total", [float(r.compiles) for r in results]),
            ("requests/s at most", [float(r.peak_requests) for r in results]),
        )
        for axes, (label, values) in zip(row, figures, strict=True):
            for policy, color in zip(POLICIES, COLORS, strict=True):
                mine = [(r.hosts, v) for r, v in zip(results, values, strict=True) if r.policy == policy and v > 0]
                axes.plot([h for h, _ in mine], [v for _, v in mine], "o-", color=color, ms=3, label=policy)
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.set_title(f"{title}: {label}", fontsize=9, color="#777777")
            axes.set_xlabel("hosts", fontsize=8, color="#777777")
            axes.tick_params(which="both", colors="#777777", labelsize=8)
            for side in axes.spines.values():
                side.set_color("#bbbbbb")
    rows[0][0].legend(fontsize=8, labelcolor="#777777", framealpha=0)
    figure.tight_layout()
    figure.savefig(path, transparent=True, metadata={"Date": None})


def compare(path: Path, p: Parameters) -> str:
    """Return a table of real runs beside the model with each run's parameters."""
    runs: list[dict[str, Any]] = json.loads(path.read_text())
    lines = [
        "| run | policy | | last rank | half of the ranks | compiles | requests | bytes |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for run in runs:
        names = {f.name for f in dataclasses.fields(Parameters)}
        own = dataclasses.replace(p, **{k: v for k, v in run["parameters"].items() if k in names})
        m = Fleet(run["policy"], run["hosts"], own).run()
        rows = (
            ("measured", run["last"], run["median"], run["compiles"], run["requests"], run["bytes"]),
            ("model", m.last, m.median, m.compiles, m.requests, m.bytes),
        )
        for who, last, median, compiles, requests, size in rows:
            lines.append(
                f"| {run['name']} | {run['policy']} | {who} | {last:.1f} s | {median:.1f} s | {compiles} |"
                f" {amount(requests)} | {amount(size)} |"
            )
    return "\n".join(lines)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few hosts")
    parser.add_argument("--hosts", default=",".join(map(str, HOSTS)), help="numbers of hosts")
    parser.add_argument("--blobs", type=int, default=30, help="how many blobs each needs")
    parser.add_argument("--compile", default="15:60", metavar="FIRST:LAST", help="seconds of the compiles")
    parser.add_argument("--prefetch", type=int, default=16, help="LAZYCK_JOBS where blobs are prefetched")
    parser.add_argument("--picture", type=Path, help="draw it here (SVG)")
    parser.add_argument("--table", type=Path, help="write the tables here too")
    parser.add_argument("--compare", type=Path, help="real runs, to be put beside the model")
    for field in dataclasses.fields(Parameters):
        if isinstance(field.default, bool):
            parser.add_argument(f"--{field.name.replace('_', '-')}", action="store_true", default=field.default)
        elif isinstance(field.default, (int, float)):
            kind = type(field.default)
            parser.add_argument(f"--{field.name.replace('_', '-')}", type=kind, default=field.default)
    return parser.parse_args()


def main() -> None:
    args = parse()
    first, last = map(float, args.compile.split(":"))
    own = {f.name: getattr(args, f.name) for f in dataclasses.fields(Parameters) if f.name != "blobs"}
    p = Parameters(even_steps(args.blobs, first, last), **own)
    if args.compare:
        text = compare(args.compare, p)
    else:
        hosts = [20, 50] if args.quick else [int(n) for n in args.hosts.split(",")]
        groups = [
            ("first calls", simulate(hosts, p)),
            (f"prefetch, {args.prefetch} at a time", simulate(hosts, dataclasses.replace(p, parallel=args.prefetch))),
        ]
        if args.picture:
            draw(groups, args.picture)
        text = "\n\n".join(table(results, title) for title, results in groups)
    print(text)
    if args.table:
        args.table.write_text(text + "\n")


if __name__ == "__main__":
    main()
