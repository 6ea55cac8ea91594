"""What a library would cost ahead of time, extrapolated from a sample of its blobs."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Sample:
    """`classes`: how many blobs each class has; `seconds`: CPU seconds of those of them that were compiled."""

    classes: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, list[float]] = field(default_factory=dict)

    @property
    def count(self) -> int:
        return sum(len(s) for s in self.seconds.values())


def blob_class(file: Path) -> str:
    """Blobs of one class cost about the same: direction, kind of kernel, head dim."""
    kind, _, rest = file.stem.partition("_d")
    dim = re.match(r"[0-9]+", rest)
    return f"{kind} d{dim[0] if dim else rest}"


def kind_of(class_name: str) -> str:
    """The kind of kernel of a class: its name without the head dim."""
    return class_name.rpartition(" d")[0]


def sampling_order(classes: Mapping[str, int]) -> list[str]:
    """Classes by the number of their blobs, the largest of each kind of kernel first: kinds differ most in cost."""
    by_size = sorted(classes, key=lambda c: -classes[c])
    largest: dict[str, str] = {}
    for name in by_size:
        largest.setdefault(kind_of(name), name)
    return [*largest.values(), *(c for c in by_size if c not in largest.values())]


def take(blobs: Sequence[Path], count: int, compile_one: Callable[[Path], float]) -> Sample:
    """Compile `count` of `blobs`, spread over the classes by their weight; `compile_one` returns its CPU seconds."""
    by_class: dict[str, list[Path]] = defaultdict(list)
    for blob in blobs:
        by_class[blob_class(blob)].append(blob)
    sample = Sample({name: len(files) for name, files in by_class.items()})
    chooser = random.Random(2026)
    order = sampling_order(sample.classes)
    for i in range(count):
        name = order[i % len(order)]
        sample.seconds.setdefault(name, []).append(compile_one(chooser.choice(by_class[name])))
    return sample


def extrapolate(sample: Sample) -> float:
    """CPU seconds of all blobs ahead of time: each class by its own samples, else by those of its kind, else by all."""

    def mean(seconds: list[float]) -> float:
        return sum(seconds) / len(seconds)

    by_kind: dict[str, list[float]] = defaultdict(list)
    for name, seconds in sample.seconds.items():
        by_kind[kind_of(name)] += seconds
    everything = [s for seconds in sample.seconds.values() for s in seconds]
    return sum(
        count * mean(sample.seconds.get(name) or by_kind.get(kind_of(name)) or everything)
        for name, count in sample.classes.items()
    )
