"""Run all benchmarks, compare them with the record, and rewrite the table of docs/performance.md.

    python benchmarks/run.py [--quick] [--only NAME]... [--write]

--quick takes seconds instead of minutes for each, with fewer rounds, to see that everything runs: a
missed target is shown, but is no failure.
--write puts the figures into docs/performance.md, docs/performance.svg and
benchmarks/baseline.json. With --only it replaces only the figures of these benchmarks. Without
--write the figures are compared with the record in baseline.json. The status is 1 when a figure
misses its target and no reason is known.
"""

import argparse
import importlib
import json
import os
import platform
import subprocess
import sys
import textwrap
from dataclasses import asdict
from datetime import date
from pathlib import Path

from common import REPOSITORY, Benchmark, Row, number, render

NAMES = (
    "first_build",
    "warm_call",
    "load",
    "cache_hit",
    "compile",
    "shim",
    "probe",
    "quick",
    "prebuild",
    "many_processes",
    "memory",
    "large_cache",
    "ck",
    "text_keys",
)
PAGE = REPOSITORY / "docs" / "performance.md"
PICTURE = REPOSITORY / "docs" / "performance.svg"
BASELINE = REPOSITORY / "benchmarks" / "baseline.json"
BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"


def benchmark(name: str) -> Benchmark:
    """Return the benchmark that the module `name` defines."""
    found = importlib.import_module(name).BENCHMARK
    assert isinstance(found, Benchmark)
    return found


def machine() -> str:
    """Return a description of the machine that the figures were measured on."""
    cpu = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        platform.machine(),
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    compiler = subprocess.run(["c++", "--version"], capture_output=True, text=True).stdout.split("\n")[0]
    system = platform.freedesktop_os_release().get("PRETTY_NAME", "")
    load = ", ".join(f"{x:.1f}" for x in os.getloadavg())
    return (
        f"{os.cpu_count()} cores ({cpu}), {memory:.0f} GB, shared; {system}, Linux {platform.release()}, {compiler}, "
        f"Python {platform.python_version()}; load at the end {load}; {date.today().isoformat()}"
    )


def compare(rows: list[Row], recorded: dict[str, float]) -> str:
    """Return how the figures compare with those of the last record."""
    lines = []
    for r in rows:
        before = recorded.get(r.name)
        told = f"{r.value / before:6.2f} of the record's {number(before)}" if before else "  not recorded before"
        lines.append(f"{r.name:24}{number(r.value):>10} {r.unit:14}{told}")
    return "\n".join(lines)


def wrapped(text: str, indent: str = "") -> str:
    """Return the text in lines of at most 100 columns. Lines but the first start with `indent`."""
    return textwrap.fill(text, 100, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def write_page(rows: list[Row], again: list[str]) -> None:
    """Put the table into the page, between its marks; `again` names the benchmarks if only some
    were run."""
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    missed = [r for r in rows if not r.is_met]
    reasons = "".join(wrapped(f"- {r.claim}: {r.why}", "  ") + "\n" for r in missed if r.why)
    command = " ".join(["python benchmarks/run.py --write", *(f"--only {name}" for name in again)])
    others = "; the other rows come from an earlier full run" if again else ""
    measured = wrapped(f"Measured on {machine()}, with `{command}`{others}.")
    table = f"{render(rows)}\n\n{measured}\n"
    if reasons:
        table += f"\nWhy some targets are missed:\n\n{reasons}"
    PAGE.write_text(f"{before}{BEGIN}\n\n{table}\n{END}{after}")


def main() -> None:
    """Run the command line that the module's docstring describes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", action="append", choices=NAMES)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    if options.write and options.quick:
        parser.error("--write takes the figures of benchmarks at their full length")
    rows: list[Row] = []
    for name in options.only or NAMES:
        chosen = benchmark(name)
        if reason := chosen.missing():
            print(f"{name}: left out, {reason}", file=sys.stderr)
            continue
        print(f"{name} ...", file=sys.stderr, flush=True)
        rows += chosen.measure(options.quick)
    print(render(rows))
    recorded = json.loads(BASELINE.read_text()) if BASELINE.is_file() else {}
    print()
    print(compare(rows, {name: row["value"] for name, row in recorded.items()}))
    if options.write:
        import picture

        kept = {name: Row(**row) for name, row in recorded.items()} if options.only else {}
        every = list((kept | {r.name: r for r in rows}).values())
        BASELINE.write_text(json.dumps({r.name: asdict(r) for r in every}, indent=1) + "\n")
        picture.draw(every, PICTURE)
        write_page(every, options.only or [])
    # Targets are for full length: few blobs share the fixed costs of a short run among them.
    sys.exit(0 if options.quick or all(r.is_met or r.why for r in rows) else 1)


if __name__ == "__main__":
    main()
