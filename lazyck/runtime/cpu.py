"""Says what this machine's CPU can do, and names the levels of its kind. `lazyck-rt` knows."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from lazyck import abi, proc


@dataclass(frozen=True)
class Cpu:
    """Holds a CPU's `features` as the runtime compares them, and the `levels` of such CPUs, the
    highest first: a compiler's option, and the features that its code needs."""

    features: str
    levels: tuple[tuple[str, str], ...]


@lru_cache(maxsize=4)
def this_cpu(rt: Path) -> Cpu:
    """Return what `rt`, a `lazyck-rt`, says of this CPU. Raises `ToolchainError`."""
    own, *levels = proc.check("asking for the CPU's features", (str(rt), abi.RT_CPU)).stdout.splitlines()
    return Cpu(own, tuple((option, features) for option, features in (line.split(" ") for line in levels)))
