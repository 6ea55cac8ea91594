"""Check libraries whose kernels are compiled one by one: they hold no device code, and the host
unit of a source costs little more than its host passes do ahead of time."""

import os
import shlex
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sources import cpu_of_children

from lazyck import abi
from lazyck.check.ahead import present
from lazyck.postbuild.eager import HostUnits, Program
from lazyck.postbuild.objects import elf
from lazyck.postbuild.probe.group import writing_to
from lazyck.postbuild.probe_cache import ProbeCache
from lazyck.toolchains import by_name
from lazyck.toolchains.command import CompileCommand
from lazyck.toolchains.options import join
from lazyck.units.program import build_program, source_digest

_STEP = "#$ "  # what `nvcc --dryrun` shows before each step
_TURNS = 3


@dataclass(frozen=True)
class Cost:
    """Holds CPU seconds of one source: of its host unit, of the host's passes ahead of time, and of
    all passes."""

    unit: float
    host: float
    whole: float


def device_code(library: Path) -> list[str]:
    """Describe, for a person to read, what `library` has in the place of host units' names: nothing
    if everything is by kernel."""
    found = [
        f"{len(part)} bytes that begin with {part[:8]!r}"
        for part in (elf.read_section(library, ".nv_fatbin") or b"").split(b"\0")
        if part and not part.startswith(abi.HOST_UNIT_MARK.encode())
    ]
    relocatable = elf.read_section(library, "__nv_relfatbin")
    return [*found, *([f"{len(relocatable)} bytes for nvlink"] if relocatable else [])]


def whole_sources(cache: Path) -> Iterator[tuple[str, str]]:
    """Yield the entries of kernels that are compiled with all of their source, and the reason of
    each."""
    for entry in sorted(cache.rglob("*.so")):
        _, mark, rest = entry.read_bytes().partition(abi.WHOLE_SOURCE_MARK.encode())
        if mark:
            yield entry.stem, rest.partition(b"\0")[0].decode(errors="replace")


def cost_of(blob: CompileCommand, work: Path, environment: Mapping[str, str]) -> Cost:
    """Return the cost of one source; `work` is an empty directory. End the program where a compile
    fails.

    Host unit and host passes are measured in turns, and each time is the median of three, since
    machines are shared.
    """
    program = Program(build_program(work, ["c++"]), source_digest())
    steps = list(_steps(blob, work, environment))
    with present([blob.call.cwd]):
        passes = [_cpu_of(blob, words, variables) for words, variables in steps]
        of_host = [step for step in steps if _is_of_host(step[0])]
        taken = []
        for turn in range(_TURNS):
            units = HostUnits(ProbeCache(work / f"store{turn}"), program, environment)
            before = cpu_of_children()
            if units.make(blob, work / "unit.o") is None:
                sys.exit(f"{blob.source} has no host unit: {units.refused.get(blob)}")
            unit = cpu_of_children() - before
            taken.append((unit, sum(_cpu_of(blob, words, variables) for words, variables in of_host)))
    unit, host = (statistics.median(times) for times in zip(*taken, strict=True))
    return Cost(unit, host, host + sum(s for s, step in zip(passes, steps, strict=True) if step not in of_host))


def _cpu_of(blob: CompileCommand, words: list[str], variables: Mapping[str, str]) -> float:
    """Return the CPU seconds that a program takes."""
    before = cpu_of_children()
    subprocess.run(words, cwd=blob.call.cwd, env=variables, check=True, capture_output=True)
    return cpu_of_children() - before


def _steps(
    blob: CompileCommand, work: Path, environment: Mapping[str, str]
) -> Iterator[tuple[list[str], dict[str, str]]]:
    """Yield the words and the environment of each program that nvcc would start for `blob`;
    temporary files are in `work`."""
    toolchain, prefix = by_name(blob.call.toolchain), blob.call.prefix
    written = writing_to(blob, work / "whole.o")
    items = toolchain.table.split(written[prefix:])
    argv = [*written[:prefix], *join(i for i in items if i.name not in toolchain.hinders_units)]
    argv += ["--dryrun", "--keep", "--keep-dir", str(work)]
    variables = dict(toolchain.tool_env(blob, environment))
    shown = subprocess.run(argv, cwd=blob.call.cwd, env=variables, check=True, capture_output=True, text=True).stderr
    for line in shown.splitlines():
        if not line.startswith(_STEP):
            continue
        text = line.removeprefix(_STEP)
        name, equals, value = text.partition("=")
        if equals and name.replace("_", "a").isalnum():
            variables[name] = " ".join(_words(value, variables))
        elif words := _words(text, variables):
            yield words, dict(variables)


def _words(text: str, variables: Mapping[str, str]) -> list[str]:
    """Return the words of a shell's line, with variables replaced."""
    found = []
    for word in shlex.split(text):
        for name in sorted(variables, key=len, reverse=True):
            word = word.replace(f"${name}", variables[name])
        found.append(word)
    return found


def _is_of_host(words: Sequence[str]) -> bool:
    """Return whether a step is one of the host passes, which run with and without device code."""
    program = os.path.basename(words[0])
    is_text = "-E" in words and not any(w.startswith("-D__CUDA_ARCH__=") for w in words)
    is_code = "-c" in words and any(w.endswith(".cudafe1.cpp") for w in words)
    return program.startswith("cudafe++") or is_text or is_code
