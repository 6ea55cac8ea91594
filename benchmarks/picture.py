"""Draw the picture of docs/performance.md with matplotlib: each figure as a share of its target."""

import textwrap
from collections.abc import Sequence
from pathlib import Path

from common import Row, number


def label(row: Row) -> str:
    """Return the claim and its figure, in lines that leave room for the bars."""
    figure = f"{number(row.value)} {row.unit}".strip().replace(" ", "\N{NO-BREAK SPACE}")
    return textwrap.fill(f"{row.claim.replace('`', '')} ({figure})", 80)


def draw(rows: Sequence[Row], path: Path) -> None:
    """Draw one bar per claim; a bar that ends left of the line is better than its target."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    matplotlib.rcParams["svg.hashsalt"] = "lazyck"  # the same figures make the same file
    shares = [max(0.01, r.target / r.value if r.is_floor else r.value / r.target) for r in rows if r.value > 0]
    names = [label(r) for r in rows if r.value > 0]
    figure, axes = plt.subplots(figsize=(11, 0.34 * len(names) + 1))
    colors = ["#2a7f62" if share <= 1 else "#c1543c" for share in shares]
    axes.barh(range(len(names)), shares, color=colors)
    axes.set_xscale("log")
    axes.axvline(1, color="#888888")
    axes.set_yticks(range(len(names)), names, fontsize=8, color="#777777")
    axes.tick_params(axis="x", colors="#777777")
    axes.invert_yaxis()
    axes.set_xlabel("share of the target (left of the line: better)", color="#777777")
    for side in ("top", "right", "left", "bottom"):
        axes.spines[side].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, transparent=True, bbox_inches="tight", metadata={"Date": None})
