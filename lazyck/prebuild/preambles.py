"""Precompile preambles: the includes that many blobs begin with, compiled once for all of them by
clang.

They are a quarter to a half of a blob's compile, as measured on Composable Kernel
(docs/performance.md). They are made in the cache, which keeps the last eight.
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from lazyck import abi, proc, waiting
from lazyck.errors import BuildError
from lazyck.prebuild.blob_entries import listed, rt_words
from lazyck.prebuild.plan import Job
from lazyck.quantities import counted

# Two or three blobs win back the time that a preamble takes. Blobs that are compiled meanwhile do
# not use it.
FEWEST = 8
_MOST = 8  # as many as a cache keeps
_HINT = "only clang can make them; blobs are compiled without them, too"


def find_preambles(
    rt: Path, manifest_file: Path, jobs: Sequence[Job], parallel: int, env: Mapping[str, str]
) -> list[tuple[int, ...]]:
    """Return groups of jobs, by number, that can share a precompiled preamble if that is worth it,
    largest groups first."""
    if len(jobs) < max(FEWEST, 2 * parallel) or env.get(abi.ENV_LAUNCHER):
        return []
    by_archs: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for number, job in enumerate(jobs):
        by_archs[job.entry.archs].append(number)
    groups: dict[tuple[tuple[str, ...], str], list[int]] = defaultdict(list)
    for archs, numbers in by_archs.items():
        with listed(jobs[n].entry.name for n in numbers) as words:
            done = proc.run(rt_words(rt, abi.RT_PREAMBLES, manifest_file, archs, *words), env=env)
        if done.status != 0:
            return []  # the compiles will report what is wrong
        for number, line in zip(numbers, done.stdout.splitlines(), strict=True):
            if preamble := json.loads(line)[abi.ROW_PREAMBLE]:
                groups[archs, preamble].append(number)
    large = [tuple(g) for g in groups.values() if len(g) >= max(FEWEST, 2 * parallel)]
    return sorted(large, key=len, reverse=True)[:_MOST]


def make_preambles(rt: Path, manifest_file: Path, jobs: Sequence[Job], parallel: int, env: Mapping[str, str]) -> int:
    """Make the preambles of the jobs, and compile nothing else. Returns how many there are. Raises
    `BuildError`."""
    groups = find_preambles(rt, manifest_file, jobs, parallel, env)
    for number, group in enumerate(groups, 1):
        entry = jobs[group[0]].entry
        with waiting.saying(f"precompiling headers of {counted(len(group), 'blob')}, {number} of {len(groups)}"):
            done = proc.run(rt_words(rt, abi.RT_PREAMBLE, manifest_file, entry.archs, "--", entry.name), env=env)
        if done.status != 0:
            raise BuildError(done.stderr.strip() or f"lazyck-rt ended with status {done.status}", _HINT)
    return len(groups)
