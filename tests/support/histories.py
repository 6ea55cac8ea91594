"""Makes histories for the tests of `lazyck report`, in the format of
runtime/src/history/events.cpp."""

import json
import os
import random
from pathlib import Path
from typing import Any

from lazyck import abi
from lazyck.formats.manifest import BlobRecord, Manifest, Recipe, encode
from lazyck.postbuild.objects.embedded import read_manifest
from lazyck.report.gather import gather
from lazyck.report.page import render_page

_ERRORS = (
    "fmha_bwd_kernel.hpp:412:17: error: static assertion failed: kBlockPerCu is too large",
    "clang++: error: unable to execute command: Killed",
)
HOSTILE = [
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "\"'><b onmouseover=alert(1)>&amp;",
    "a\u202egnp.exe\x1b[31m\x00\u2028",
    "{{data}}<!--<script>",
    "\udcff\ud800",
]
START = 1_767_600_000.0  # 2026-01-05 08:00 UTC


def line(blob: str, kind: str = "compile", t: float = START, s: float = 1.0, **more: Any) -> dict[str, Any]:
    """Return one event. `more` overrides and adds members."""
    base = {"t": t, "s": s, "kind": kind, "library": "libops", "blob": blob, "arch": "gfx942", "pid": 100, "tid": 100}
    return {**base, "host": "node1", **more}


def write_history(cache: Path, lines: list[dict[str, Any]], host: str = "node1") -> Path:
    """Append `lines` to the history of `host`, and return its path."""
    path = cache / ".history" / host
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as f:
        f.writelines(json.dumps(each) + "\n" for each in lines)
    return path


def ranked_job(hosts: int = 2, ranks: int = 8, blobs: int = 46, seed: int = 1) -> dict[str, list[dict[str, Any]]]:
    """Return events like those of a first day with CK's attention, by host.

    There are two training runs of `ranks` processes. Each rank compiles some of the blobs, waits
    for others' compiles and for slots, and loads all blobs. The second run finds nearly everything
    cached.
    """
    dice = random.Random(seed)
    out: dict[str, list[dict[str, Any]]] = {}
    names: list[tuple[str, float]] = []
    for i in range(blobs):
        direction, dim = dice.choice(["fwd", "fwd", "bwd"]), dice.choice([64, 128, 128, 192, 256])
        mask, bias = dice.choice(["nmask", "mc", "mg"]), dice.choice(["nbias", "alibi"])
        tile = f"b{dice.choice([64, 128])}x{dice.choice([32, 64, 128])}x{dim // 2}x{dim}x32x{dim}"
        pipe = "qr_async" if direction == "fwd" else "kr_ktr_vr_iglp"
        kind = dice.choice(["bf16", "fp16"])
        name = (
            f"fmha_{direction}_d{dim}_{kind}_batch_{tile}_r4x1x1_w32x32x16_{pipe}_vr_psddv_{bias}_{mask}_lse_ndropout"
        )
        weight = (2.1 if direction == "bwd" else 1.0) * (0.5 + dim / 128)
        names.append((f"{name}_{i}" if name in [n for n, _ in names] else name, weight * dice.uniform(9, 24)))
    for run, at in enumerate((START, START + 3.1 * 3600)):
        ready: dict[str, float] = {}  # when each blob is in the cache
        clocks = [at + dice.uniform(0, 3) for _ in range(ranks)]
        orders = [list(reversed(names)) if run else dice.sample(names, len(names)) for _ in range(ranks)]
        while any(orders):
            rank = min((r for r in range(ranks) if orders[r]), key=lambda r: clocks[r])
            name, cost = orders[rank].pop()
            host, pid, now = f"node{rank % hosts + 1}", 4000 + 977 * run + rank, clocks[rank]
            row = {"host": host, "pid": pid, "tid": pid + (len(orders[rank]) % 3 if rank < 2 else 0), "rank": rank}
            row["library"] = "libfmha_bwd" if "_bwd_" in name else "libfmha_fwd"
            rows = out.setdefault(host, [])
            size, kib, origin = int(cost * 31_000), int(380_000 + cost * 9_000), "cache"
            if run == 1 and len(orders[rank]) % 15 != 7:
                pass
            elif name not in ready:
                if dice.random() < 0.25:
                    rows.append(line(name, "wait", now, pause := dice.uniform(1, 14), what="a compile permit", **row))
                    now += pause
                took = cost * dice.uniform(0.9, 1.2)
                if dice.random() < 0.06:
                    what = dice.choice(_ERRORS)
                    rows.append(line(name, "compile", now, took * 0.4, failed=True, what=what, kib=kib, **row))
                    now += took * 0.4 + 0.1
                rows.append(line(name, "compile", now, took, kib=kib, size=size, **row))
                now = ready[name] = now + took
                origin = "compiled"
            elif ready[name] > now:
                rows.append(line(name, "wait", now, ready[name] - now, what="another process's compile", **row))
                now = ready[name]
            rows.append(line(name, "load", now, dice.uniform(1e-4, 9e-4), what=origin, size=size, **row))
            clocks[rank] = now + (dice.uniform(0.02, 0.4) if run else dice.uniform(0.1, 2.5))
    return out


def write_entries(cache: Path, lines: list[dict[str, Any]]) -> None:
    """Create files as large as the entries that `lines` published, where the cache keeps
    entries."""
    for row in lines:
        if row["kind"] == "compile" and row.get("size"):
            path = cache / "v1" / row["library"] / "gfx942-clang19" / f"{row['blob'][:120]}-0123456789abcdef.so"
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as f:
                f.truncate(row["size"])


def write_log(cache: Path, blob: str, digest: str, text: str, at: float) -> Path:
    """Write a compile's log where the runtime leaves it, with the modification time `at`."""
    path = cache / "v1" / "libops" / "gfx942-clang19" / f"{blob}-{digest * 16}.log"
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.write_text(text)
    os.utime(path, (at, at))
    return path


def many_events(events: int = 5000, processes: int = 64) -> list[dict[str, Any]]:
    """Return `events` events of one run of `processes` processes with two threads each."""
    dice = random.Random(7)
    rows = []
    for i in range(events):
        p, kind = i % processes, ("compile", "wait", "load", "load")[dice.randrange(4)]
        seconds = dice.uniform(1e-4, 1e-3) if kind == "load" else dice.uniform(0.5, 20)
        row = {"pid": 1000 + p, "tid": 1000 + p + i // processes % 2, "rank": p, "host": f"node{p // 8}"}
        name = f"kernel_{dice.randrange(700)}"
        rows.append(line(name, kind, START + (i // processes) * 21 + dice.uniform(0, 1), seconds, **row))
        if kind == "load":
            rows[-1]["what"] = "cache"
        elif kind == "compile":
            rows[-1] |= (
                {"size": 400_000, "kib": 300_000} if dice.random() > 0.02 else {"failed": True, "what": "error: no"}
            )
    return rows


def write_manifest(path: Path, library: str, names: list[str], blobs: int) -> Path:
    """Write the manifest of a library of `blobs` blobs: `names`, and others to fill up the
    number."""
    recipe = Recipe("rocm", "clang19", "/opt/rocm", (), ("cc", abi.PH_SOURCE), ("cc", abi.PH_INPUT), (), ())
    all_names = names + [f"{library}_other_{i}" for i in range(blobs - len(names))]
    rows = tuple(BlobRecord(n, f"blob/{i}.cpp", 0, "ab" * 32, (f"_Z{i}v",)) for i, n in enumerate(all_names))
    manifest = Manifest(library, f"{library}.so", "lazyck", "", ("gfx942",), (recipe,), rows, (), "test", "ef")
    path.write_bytes(encode(manifest))
    return path


def hostile_history(cache: Path) -> None:
    """Write a history in which every text is as hostile as it can be."""
    rows = []
    for i, text in enumerate(HOSTILE):
        where = {"library": text, "arch": text, "host": text, "what": text, "pid": i + 1, "rank": i}
        rows += [row | where for row in (line(text, s=9 - i), line(text, "load"), line(text, failed=True))]
    write_history(cache, rows)


def page_of(cache: Path, *manifests: Path) -> str:
    """Return the page of a report, rendered in this process."""
    return render_page(gather(cache, (), "", "", [read_manifest(m) for m in manifests], {}))
