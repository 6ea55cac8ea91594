"""The figures of a cache in the text format of Prometheus, for the textfile collector of its
node_exporter."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from _lazyck.cache.stats import Stats, Sums
from _lazyck.visible import visible


@dataclass(frozen=True)
class Metric:
    """A metric of a library and arch, computed from their sums. The name of a counter, which only
    grows, ends in `_total`."""

    name: str
    help: str
    value: Callable[[Sums], float]


# docs/operating.md says what a change of each metric means.
BY_LIBRARY = (
    Metric("lazyck_cache_entries", "Compiled blobs in the cache.", lambda s: s.entries),
    Metric("lazyck_cache_entry_bytes", "Bytes of the compiled blobs in the cache.", lambda s: s.bytes),
    Metric("lazyck_cache_hits_total", "Blobs loaded from the cache.", lambda s: s.hits),
    Metric("lazyck_cache_fetched_total", "Blobs loaded from a remote cache.", lambda s: s.fetched),
    Metric("lazyck_cache_misses_total", "Blobs that were compiled because no cache had them.", lambda s: s.misses),
    Metric("lazyck_cache_failures_total", "Compiles, waits and loads that failed.", lambda s: s.failures),
    Metric("lazyck_cache_waits_total", "Waits for another process's compile or for a compile slot.", lambda s: s.waits),
    Metric("lazyck_cache_compile_seconds_total", "Time spent compiling.", lambda s: s.seconds_spent),
    Metric(
        "lazyck_cache_saved_seconds_total", "Compile time that loads from a cache saved.", lambda s: s.seconds_saved
    ),
    Metric("lazyck_cache_wait_seconds_total", "Time spent waiting.", lambda s: s.seconds_waited),
)


def render(stats: Stats, cache: Path) -> str:
    """Return all metrics, each with HELP and TYPE. The label `cache` tells several caches of a host
    apart. A metric without a value (a limit, a history) has no line."""
    lines = []
    own = _label("cache", str(cache))
    for metric in BY_LIBRARY:
        lines += _head(metric.name, metric.help)
        for library, arch, sums in stats.shares:
            labels = ",".join([own, _label("library", library), _label("arch", arch)])
            lines.append(f"{metric.name}{{{labels}}} {metric.value(sums)!r}")
    for name, text, value in (
        ("lazyck_cache_preambles", "Precompiled preambles in the cache.", stats.preambles),
        ("lazyck_cache_preamble_bytes", "Bytes of the precompiled preambles.", stats.preamble_bytes),
        ("lazyck_cache_used_bytes", "Bytes on disk that count towards the limit.", stats.used_bytes),
        ("lazyck_cache_limit_bytes", "LAZYCK_CACHE_MAXSIZE.", stats.max_bytes or None),
        ("lazyck_cache_since_timestamp_seconds", "When the counters began to count.", stats.since or None),
    ):
        if value is not None:
            lines += [*_head(name, text), f"{name}{{{own}}} {value!r}"]
    return "\n".join(lines)


def _head(name: str, text: str) -> list[str]:
    kind = "counter" if name.endswith("_total") else "gauge"
    return [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]


def _label(name: str, value: str) -> str:
    escaped = visible(value).replace("\\", r"\\").replace('"', r"\"")
    return f'{name}="{escaped}"'
