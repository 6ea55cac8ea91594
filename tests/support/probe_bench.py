"""Provide what tests of the probe share: a compiler, a place for blobs, and the probe of them."""

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lazyck.postbuild.objects import elf
from lazyck.postbuild.probe.group import Probed
from lazyck.postbuild.probe.probe import ProbeResult, probe
from lazyck.postbuild.probe_cache import ProbeCache
from lazyck.postbuild.reasons import readable
from lazyck.toolchains.command import CompileCommand, Invocation

NO_CACHE = ProbeCache(Path("/dev/null/store"))  # keeps nothing

COMMON = """
#pragma once
namespace lib {
enum class Mode { plain, fast };
template <typename T, int Dim, Mode M> struct Traits { using type = T; };
template <int... Is> struct seq {};
struct Args { float* p; int n; };
}
template <typename T> float launch_(const lib::Args& a, int stream);
template <int D> void run(float* p, int n = 3) { for (int i = 0; i < n; ++i) p[i] = D; }
template <int D> struct Engine { Engine(); void go(float*) const; static int width(); int operator()(int) &&; int v; };
int convert(int); float convert(float);
"""
# Reading <string> takes most of the time of a small compile.
TEXT = """
#pragma once
#include "common.h"
#include <string>
template <typename T> std::string name_();
"""


@dataclass(frozen=True)
class Bench:
    """Holds a directory with a compiler, in which blobs are written and probed."""

    at: Path
    compiler: tuple[str, ...] = ("/usr/bin/g++",)
    toolchain: str = "host"
    suffix: str = ".cpp"

    def write(self, **texts: str) -> list[str]:
        (self.at / "common.h").write_text(COMMON)
        (self.at / "text.h").write_text(TEXT)
        for name, text in texts.items():
            (self.at / f"{name}{self.suffix}").write_text(text)
        return [str(self.at / f"{name}{self.suffix}") for name in texts]

    def command(self, source: str, *flags: str) -> CompileCommand:
        output = source + ".o"
        argv = (*self.compiler, f"-I{self.at}", *flags, "-c", source, "-o", output)
        call = Invocation(Path(self.compiler[0]).name, self.toolchain, str(self.at), argv, 1, ())
        return CompileCommand(call, source, output)

    def probe(self, *flags: str, **texts: str) -> ProbeResult:
        return self.probe_all(texts, *flags)

    def probe_all(self, texts: Mapping[str, str], *flags: str, jobs: int = 1) -> ProbeResult:
        return probe([self.command(s, *flags) for s in self.write(**texts)], self.at / "work", NO_CACHE, jobs=jobs)

    def real_functions(self, source: str, *flags: str) -> set[str]:
        """Compile the blob for real. Return the strong functions of its object, without device
        stubs."""
        subprocess.run(self.command(source, *flags).call.argv, check=True, cwd=self.at)
        found = elf.read_object(source + ".o")
        return {f for f in found.functions & found.strong if "__device_stub__" not in f}


def by_stem(result: ProbeResult) -> dict[str, Probed]:
    return {p.blob.stem: p for p in result.probed}


def reasons(result: ProbeResult) -> dict[str, str]:
    shown = readable(list(result.eager.values()))
    return {blob.stem: str(reason) for blob, reason in zip(result.eager, shown, strict=True)}


def check(bench: Bench, *, flags: Sequence[str] = (), compiled: Sequence[str] = (), **texts: str) -> dict[str, Probed]:
    """Probe `texts`, compile each for real, and compare. `compiled` names those that need a compile
    of their own."""
    result = bench.probe_all(texts, *flags)
    assert not result.eager, result.eager
    found = by_stem(result)
    assert set(found) == set(texts)
    for name, one in found.items():
        real = bench.real_functions(one.blob.source, *flags)
        if name in compiled:
            assert one.compiled and real <= set(one.symbols), name
        else:
            assert not one.compiled, (name, one.compiled)
            assert set(one.symbols) == real, name
    return found
