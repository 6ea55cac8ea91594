"""Extrapolate the ahead-of-time cost of a library from a sample of its blobs."""

import random
import re
import subprocess
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Compiled:
    """Holds the cost of one blob: CPU seconds, and the bytes of its object that a process would
    load."""

    seconds: float
    size: int


@dataclass
class Sample:
    """Holds how many blobs each class has (`classes`), and the costs of those that were compiled
    (`compiled`)."""

    classes: dict[str, int] = field(default_factory=dict)
    compiled: dict[str, list[Compiled]] = field(default_factory=dict)

    @property
    def count(self) -> int:
        return sum(len(s) for s in self.compiled.values())


def loaded_size(objects: Path) -> int:
    """Return the bytes of an object file that end up in memory: its allocated sections."""
    argv = ["readelf", "--section-headers", "--wide", str(objects)]
    lines = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()
    rows = [line.partition("]")[2].split() for line in lines if line.lstrip().startswith("[")]
    return sum(int(row[4], 16) for row in rows if len(row) > 6 and row[1] != "NOBITS" and "A" in row[6])


def blob_class(file: Path) -> str:
    """Return the class of a blob: direction, kind of kernel, head dim. Blobs of one class cost
    about the same."""
    kind, _, rest = file.stem.partition("_d")
    dim = re.match(r"[0-9]+", rest)
    return f"{kind} d{dim[0] if dim else rest}"


def kind_of(class_name: str) -> str:
    """Return the kind of kernel of a class: its name without the head dim."""
    return class_name.rpartition(" d")[0]


def sampling_order(classes: Mapping[str, int]) -> list[str]:
    """Return the classes by the number of their blobs, but first the largest of each kind of
    kernel: kinds differ most in cost."""
    by_size = sorted(classes, key=lambda c: -classes[c])
    largest: dict[str, str] = {}
    for name in by_size:
        largest.setdefault(kind_of(name), name)
    return [*largest.values(), *(c for c in by_size if c not in largest.values())]


def deflated_size(files: Iterable[Path]) -> int:
    """Return the bytes of these files in a wheel, where each is deflated by itself."""
    return sum(len(zlib.compress(path.read_bytes())) for path in files)


def shared_size(sizes: Sequence[int], linked: int) -> float:
    """Return the bytes that each object repeats from the others. `sizes` are those of some objects,
    which are `linked` bytes in one library."""
    return max(0.0, (sum(sizes) - linked) / max(1, len(sizes) - 1))


def take(blobs: Sequence[Path], count: int, compile_one: Callable[[Path], Compiled]) -> Sample:
    """Compile `count` of `blobs`, spread over the classes by their weight."""
    by_class: dict[str, list[Path]] = defaultdict(list)
    for blob in blobs:
        by_class[blob_class(blob)].append(blob)
    sample = Sample({name: len(files) for name, files in by_class.items()})
    chooser = random.Random(2026)
    order = sampling_order(sample.classes)
    for i in range(count):
        name = order[i % len(order)]
        sample.compiled.setdefault(name, []).append(compile_one(chooser.choice(by_class[name])))
    return sample


def extrapolate(sample: Sample, value: Callable[[Compiled], float] = lambda c: c.seconds) -> float:
    """Return the sum of `value` over all blobs ahead of time, by default CPU seconds. Each class is
    reckoned by its own samples, else by those of its kind, else by all."""

    def mean(some: Sequence[Compiled]) -> float:
        return sum(map(value, some)) / len(some)

    by_kind: dict[str, list[Compiled]] = defaultdict(list)
    for name, some in sample.compiled.items():
        by_kind[kind_of(name)] += some
    everything = [c for some in sample.compiled.values() for c in some]
    return sum(
        count * mean(sample.compiled.get(name) or by_kind.get(kind_of(name)) or everything)
        for name, count in sample.classes.items()
    )
