"""Simulate fleets of 100 to 10,000 hosts that start at once, for the tables of docs/scale.md.

    python benchmarks/fleet_simulation.py [--table NAME]... [--hosts 100,…] [--write]
    python benchmarks/fleet_simulation.py --compare FILE [--write]   (FILE: from fleet.py --json)

This is a simulation (in SimPy; fleet_model.py has the model, fleet_tables.py what each table
shows), not a measurement. --write puts the tables into docs/scale.md and their figures into
benchmarks/fleet.json; after all tables, it draws docs/scale.svg, too. --compare puts real runs
beside the model with the parameters that each run measured; with --write these go into the page and
into benchmarks/fleet_real.json.

Its parameters are measured:

- compiles: docs/kernels.md (sources by kernel), examples/ck_fmha (Composable Kernel's blobs)
- look: starting the helper, 0.1 s of a core
- requests: one nginx on one core answered 54,000 GETs a second over kept connections, 17,000 over
  new ones (wrk)
- link: 10 Gbit/s, for each server and each host
- polls, time limits: as lazyck/remote has them
"""

import argparse
import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from common import REPOSITORY
from fleet_model import Fleet, Parameters, Policy, Result, World, units_of
from fleet_tables import BY_NAME, TABLES, amount
from fleet_units import blobs

PAGE = REPOSITORY / "docs" / "scale.md"
PICTURE = REPOSITORY / "docs" / "scale.svg"
RECORD = REPOSITORY / "benchmarks" / "fleet.json"
REAL_RECORD = REPOSITORY / "benchmarks" / "fleet_real.json"
REAL = "real"  # the name of the table with the real runs
COLORS = ("#888888", "#2a7f62", "#c99a2e", "#c1543c", "#7a4f9a", "#3b6ea8")

Found = dict[str, list[Result]]


def read_record() -> dict[str, Found]:
    """Return the recorded results of each table."""
    recorded = json.loads(RECORD.read_text()) if RECORD.is_file() else {}
    return {
        name: {label: [Result(**r) for r in results] for label, results in rows.items()}
        for name, rows in recorded.items()
    }


def write_record(found: Mapping[str, Found]) -> None:
    """Record the results of tables; those of others stay."""
    every = {**read_record(), **found}
    kept = {
        name: {label: list(map(dataclasses.asdict, results)) for label, results in every[name].items()}
        for name in BY_NAME
        if name in every
    }
    RECORD.write_text(json.dumps(kept, indent=1) + "\n")


def part_of_page(text: str, name: str) -> tuple[str, str, str]:
    """Return a page's text before, within and behind the marks of a table."""
    begin, end = f"<!-- fleet {name}: begin -->\n\n", f"\n\n<!-- fleet {name}: end -->"
    before, has_begin, rest = text.partition(begin)
    table, has_end, after = rest.partition(end)
    if not has_begin or not has_end:
        raise ValueError(f"the page has no place for the table {name}")
    return before + begin, table, end + after


def with_table(text: str, name: str, table: str) -> str:
    """Return the page's text with a table between its marks."""
    before, _, after = part_of_page(text, name)
    return before + table + after


def compare(runs: Sequence[Mapping[str, Any]]) -> str:
    """Return a table of real runs beside the model with each run's parameters."""
    heads = ["run", "policy", "", "last rank", "half of the ranks", "compiles", "requests", "bytes"]
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    names = {f.name for f in dataclasses.fields(Parameters)}
    for run in runs:
        given = run["parameters"]
        p = dataclasses.replace(Parameters(), **{k: v for k, v in given.items() if k in names})
        calls = blobs(given["blobs"], given["size"])
        is_warm = run["policy"] == "pulled before"
        policy = Policy(run["policy"], given["parallel"], has_remote=run["policy"] != "no remote", is_pulled=is_warm)
        m = Fleet(policy, run["hosts"], p, World(calls, tuple(units_of(calls)) if is_warm else ())).run()
        model = (m.last, m.median, m.compiles, m.requests, m.bytes)
        measured = tuple(run[k] for k in ("last", "median", "compiles", "requests", "bytes"))
        for who, (last, median, compiles, requests, size) in (("measured", measured), ("model", model)):
            cells = [f"{last:.1f} s", f"{median:.1f} s", str(compiles), amount(requests), f"{amount(size)}B"]
            lines.append("| " + " | ".join([run["name"], run["policy"], who, *cells]) + " |")
        ratios = [f"{a / b:.2f}" if a and b else "" for a, b in zip(model, measured, strict=True)]
        lines.append("| " + " | ".join([run["name"], run["policy"], "model / measured", *ratios]) + " |")
    return "\n".join(lines)


def draw(found: Found, path: Path) -> None:
    """Draw the last rank's time, compiles and bytes over the number of hosts."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    matplotlib.rcParams["svg.hashsalt"] = "lazyck"  # the same figures make the same file
    figure, row = plt.subplots(1, 3, figsize=(12, 3.6))
    shown: dict[str, Callable[[Result], float]] = {
        "last rank ready after, s": lambda r: r.last,
        "compiles in total": lambda r: r.compiles,
        "bytes from and to the shared tier": lambda r: r.bytes,
    }
    for axes, (label, value) in zip(row, shown.items(), strict=True):
        for (situation, results), color in zip(found.items(), COLORS, strict=True):
            mine = [(r.hosts, value(r)) for r in results if value(r) > 0]
            axes.plot([h for h, _ in mine], [v for _, v in mine], "o-", color=color, ms=3, label=situation)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_title(label, fontsize=9, color="#777777")
        axes.set_xlabel("hosts", fontsize=8, color="#777777")
        axes.tick_params(which="both", colors="#777777", labelsize=8)
        for side in axes.spines.values():
            side.set_color("#bbbbbb")
    figure.legend(*row[0].get_legend_handles_labels(), loc="lower center", ncols=2, fontsize=8, labelcolor="#777777",
                  framealpha=0)  # fmt: skip
    figure.tight_layout(rect=(0, 0.2, 1, 1))
    figure.savefig(path, transparent=True, metadata={"Date": None})


def main() -> None:
    """Run the command line that the module's docstring describes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--table", action="append", choices=list(BY_NAME), help="default: all")
    parser.add_argument("--hosts", help="other numbers of hosts, in ascending order")
    parser.add_argument("--compare", type=Path, metavar="FILE", help="real runs, to be put beside the model")
    parser.add_argument("--write", action="store_true", help="rewrite the page and the record")
    options = parser.parse_args()
    if options.write and options.hosts:
        parser.error("--write takes the page's own numbers of hosts")
    shown: dict[str, str] = {}
    if options.compare:
        runs = json.loads(options.compare.read_text())
        shown[REAL] = compare(runs)
        print(shown[REAL])
        if options.write:
            REAL_RECORD.write_text(json.dumps(runs, indent=1) + "\n")
    else:
        for table in [t for t in TABLES if not options.table or t.name in options.table]:
            found = table.run([int(n) for n in options.hosts.split(",")] if options.hosts else table.hosts)
            shown[table.name] = table.render(found)
            print(f"{shown[table.name]}\n", flush=True)
            if options.write:
                write_record({table.name: found})
    if options.write:
        text = PAGE.read_text()
        for name, rendered in shown.items():
            text = with_table(text, name, rendered)
        PAGE.write_text(text)
        if "cold" in shown:
            draw(read_record()["cold"], PICTURE)


if __name__ == "__main__":
    main()
