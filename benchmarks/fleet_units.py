"""Describe what the hosts of a simulated fleet call and compile: blobs, and sources by kernel, with
costs that were measured."""

import dataclasses
import random
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Unit:
    """Describes one entry. `name` and `digest` are its key. Units with equal texts have equal code.

    `reading` is the part of the compile's seconds until the text is known; 0 means that the unit
    has no text key.
    """

    name: str
    digest: str
    text: str
    seconds: float
    size: float
    reading: float = 0.0

    @property
    def key(self) -> str:
        """Return the name under which caches have the entry."""
        return f"{self.name}@{self.digest}"

    @property
    def by_text(self) -> "Unit":
        """Return the entry under its text key."""
        return dataclasses.replace(self, name=f"text of {self.name}", digest=self.text, reading=0.0)


@dataclass(frozen=True)
class Source:
    """Describes a file: `whole` is its entry as one blob. By kernel it has a host unit and kernel
    units, and `whole` is compiled in the background."""

    whole: Unit
    host: Unit | None = None
    kernels: tuple[Unit, ...] = ()


@dataclass(frozen=True)
class Call:
    """Describes the first call of a blob or, by kernel, of the kernel with this number."""

    source: Source
    kernel: int | None = None


@dataclass(frozen=True)
class Cost:
    """Holds a row of docs/kernels.md: the number of kernels, and the CPU seconds of the whole file,
    of its host unit and of a kernel unit."""

    source: str
    kernels: int
    whole: float
    host: float
    kernel: float


# docs/kernels.md, Costs: nvcc 13.0 for sm_90.
MEASURED = (
    Cost("FlashAttention `flash_fwd_hdim64_fp16_sm80.cu`", 32, 90.3, 9.1, 15.4),
    Cost("FlashAttention `flash_fwd_hdim128_fp16_causal_sm80.cu`", 26, 93.4, 9.7, 16.4),
    Cost("FlashAttention `flash_bwd_hdim64_fp16_sm80.cu`", 48, 130.1, 9.9, 25.3),
)
# Bytes of what nvcc 13.0 and lazyck-unit made of the first of these for sm_90: the object of the
# whole file, that of its host unit, and the larger of two kernel units.
WHOLE_SIZE, HOST_SIZE, KERNEL_SIZE = 3.31e6, 0.263e6, 0.087e6
# Composable Kernel's attention: 15 to 60 s for one arch on one core, 140 kB (examples/ck_fmha).
BLOB_SECONDS = (60.0, 15.0)
BLOB_SIZE = 140e3
# docs/key.md, The same text: of llama.cpp's kernels, 11 of 18 have the same text in the next
# release, which saves 0.36 to 0.49 of a compile. The rest, on average, is spent on reading headers.
SAME_TEXT = 11 / 18
READING = 1 - (0.36 + 0.49) / 2


def even_steps(count: int, first: float, last: float) -> list[float]:
    """Return `count` times in seconds, in even steps from `first` to `last`."""
    return [first + (last - first) * i / max(1, count - 1) for i in range(count)]


def blobs(seconds: Sequence[float], size: float = BLOB_SIZE) -> tuple[Call, ...]:
    """Return the calls of blobs that compile in these times."""
    return tuple(Call(Source(Unit(f"blob{i}", "1", "1", s, size))) for i, s in enumerate(seconds))


def sources(count: int) -> tuple[Source, ...]:
    """Return `count` sources by kernel, with the measured costs in turns."""
    made = []
    for i in range(count):
        cost = MEASURED[i % len(MEASURED)]

        def unit(part: str, seconds: float, size: float, number: int = i) -> Unit:
            return Unit(f"source{number}.{part}", "1", "1", seconds, size, READING * seconds)

        kernels = tuple(unit(f"kernel{k}", cost.kernel, KERNEL_SIZE) for k in range(cost.kernels))
        made.append(Source(unit("whole", cost.whole, WHOLE_SIZE), unit("host", cost.host, HOST_SIZE), kernels))
    return tuple(made)


def kernel_calls(made: Sequence[Source], each: int) -> tuple[Call, ...]:
    """Return the calls of the first `each` kernels of every source, source by source."""
    return tuple(Call(source, k) for source in made for k in range(each))


def upgraded(calls: Sequence[Call], changed: float, same_text: float, seed: int) -> tuple[Call, ...]:
    """Return the calls of the library's next build: a share `changed` of the sources has new keys,
    and of their units, a share `same_text` has the same text as before."""
    draw = random.Random(seed)
    new: dict[str, Source] = {}

    def unit(old: Unit) -> Unit:
        return dataclasses.replace(old, digest="2", text=old.text if draw.random() < same_text else "2")

    for call in calls:
        old = call.source
        if old.whole.name not in new and draw.random() < changed:
            host = unit(old.host) if old.host else None
            new[old.whole.name] = Source(unit(old.whole), host, tuple(map(unit, old.kernels)))
        else:
            new.setdefault(old.whole.name, old)
    return tuple(Call(new[call.source.whole.name], call.kernel) for call in calls)
