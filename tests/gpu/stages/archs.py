"""Test several architectures: entries for two, a build that has only PTX, and entries for another
architecture than the device's."""

import shutil
from pathlib import Path

from gpu.place import Place
from gpu.report import Report
from gpu.stage import Stage
from gpu.stages import launches

PROOF = "streams and threads"
OTHER = "80"  # an architecture that is not the device's


def build(place: Place, report: Report) -> None:
    """Build the library for the device's architecture, and once more with PTX alone."""
    launches.build(place, "shared")
    launches.build_in(place, place.work / "ptx", "lazy", "shared", f"arch=compute_{OTHER},code=compute_{OTHER}")


def with_kernels(place: Place, cache: str) -> set[Path]:
    """Return the entries of a lazyck cache that have device code."""
    return {entry for entry in (place.work / cache).rglob("*.so") if ".host-" not in entry.name}


def prove(place: Place, report: Report) -> None:
    """Prove each case with a cache of its own."""
    why, own = place.machine.blind(), place.machine.arch
    expected = "threads: 0 right, 0 wrong, 8 refused\n" if why else "threads: 8 right, 0 wrong, 0 refused\n"

    def say(text: str, is_so: bool, lines: str) -> None:
        report.check(text, is_so and lines == expected, " ".join(lines.split()))
        if why:
            report.blind(f"{text}: it computes", why)

    two = f"{OTHER},{own}"
    both = (place, "lazy", "shared", PROOF)
    lines, said = launches.prove(*both, "cache-two-0", LAZYCK_BY_KERNEL="0", LAZYCK_ARCHS=two)
    say(f"LAZYCK_ARCHS={two}: an entry has both", f"for {OTHER}+{own} in " in said, lines)
    lines, said = launches.prove(*both, "cache-two-1", LAZYCK_BY_KERNEL="1", LAZYCK_ARCHS=two)
    has_each = f"for {OTHER} in " in said and f"for {own} in " in said
    say(f"LAZYCK_ARCHS={two}: each has an entry of the kernel, and both are joined", has_each, lines)
    lines, said = launches.prove_of(place, place.work / "ptx" / "liblaunches.so", PROOF)
    say("a build with PTX alone is compiled for the device", f"for {own}" in said, lines)
    for by_kernel, which in (("0", ""), ("1", " of one kernel")):
        cache = f"cache-wrong-{by_kernel}"
        words = (place, "lazy", "shared", PROOF, cache)
        # The other architecture's entry is made first. The device's own must be compiled all the
        # same.
        launches.prove(*words, LAZYCK_BY_KERNEL=by_kernel, LAZYCK_ARCHS=OTHER)
        wrong = with_kernels(place, cache)
        lines, said = launches.prove(*words, LAZYCK_BY_KERNEL=by_kernel)
        right = with_kernels(place, cache) - wrong
        was_compiled = f"for {own}" in said and len(wrong) == len(right) == 1
        say(f"an entry{which} of another arch is not taken for the device's", was_compiled, lines)
        if was_compiled:
            shutil.copyfile(*wrong, *right)
        lines, said = launches.prove(*words, LAZYCK_BY_KERNEL=by_kernel)
        is_again = was_compiled and "compiled scale" in said
        say(f"one{which} that lies in the place of the device's is thrown away", is_again, lines)


STAGE = Stage(
    "archs",
    "`LAZYCK_ARCHS` with two, a build of PTX alone, an entry for the wrong arch is never loaded",
    build_seconds=180,
    seconds=60,
    build=build,
    prove=prove,
)
