"""Test entries that are found by the text from which they were made, after a header has changed but
the text has not."""

import contextlib
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from support import Lazyck, wait_until
from support.built_units import Built
from support.cuda_machine import needs_nvcc
from support.cuda_units import build, used

from lazyck.formats import trailer

pytestmark = [pytest.mark.cuda, needs_nvcc]

HEADER = """
#pragma once
namespace ns {
template <class T> __device__ T doubled(T x) { return x + x; }
template <class T, int N> __global__ void scale(T* x) { x[threadIdx.x] = N * doubled(x[threadIdx.x]); }
}
"""
SOURCE = """
#include <cstdio>
#include <cassert>
#include "kernels.cuh"
static __global__ void checked(float* x) { assert(x); x[0] = 1; }
static __global__ void placed(int* x) { x[0] = __builtin_LINE(); }
static __constant__ float table[4];
static __global__ void with_table(float* x) { x[0] = table[threadIdx.x]; }
#define API extern "C" __attribute__((visibility("default"))) int
API launch(int n, float* x) {
    switch (n) {
        case 0: ns::scale<float, 2><<<1, 32>>>(x); break;
        case 1: checked<<<1, 1>>>(x); break;
        case 2: placed<<<1, 1>>>((int*)x); break;
        case 3: return cudaMemcpyToSymbol(table, x, 4);
    }
    return cudaGetLastError();
}
"""
SCALE, CHECKED, PLACED, TABLE = range(4)


# These are later releases of the header. In one, nothing has changed for its kernel; in one, the
# kernel's code has changed; and one has only more comments. A later release of the source moves all
# lines.
RELEASED = HEADER.replace(
    "namespace ns {", "// 2.0\n\n#define VERSION 2\nstruct Other { int a[3]; };\nnamespace ns {"
).replace(
    "template <class T, int N>",
    "template <class T> __device__ T tripled(T x) { return x * 3; }\ntemplate <class T, int N>",
)
CHANGED = HEADER.replace("x + x", "x * 5")
COMMENTED = "// a comment\n\n" + HEADER
MOVED = "\n\n" + SOURCE
WITHOUT_PLACES = SOURCE.replace("__builtin_LINE()", "7")
BLOB = WITHOUT_PLACES.replace("API launch", "API launch_blob")


@dataclass(frozen=True)
class Releases:
    """Holds the library in several states of its header and source, each built in a directory of
    its own."""

    built: dict[str, Built]
    spy: Path
    cache: Path

    def launch(self, name: str, n: int, function: str = "launch", **more: str) -> str:
        """Return what the library prints in a process that launches, with this test's cache."""
        built, log = self.built[name], self.cache.parent / "said"
        log.unlink(missing_ok=True)
        env = {"LAZYCK_CACHE_DIR": str(self.cache), "LAZYCK_LOG": "info", "LAZYCK_LOG_FILE": str(log), **more}
        returned, seen = built.run(self.spy, function, n, **env)
        assert returned == "0" and len(used(seen)) == 1
        return log.read_text() if log.exists() else ""

    def entries(self, pattern: str = "*.so") -> list[Path]:
        return sorted(self.cache.glob(f"v1/*/*/{pattern}"), key=lambda p: p.stat().st_mtime_ns)

    def texts(self) -> list[Path]:
        return list(self.cache.glob(".texts/*"))


@pytest.fixture(scope="module")
def all_built(tmp_path_factory: pytest.TempPathFactory, lazyck_shared: Lazyck) -> dict[str, Built]:
    made = {}
    for name, header, source in (
        ("first", HEADER, SOURCE), ("released", RELEASED, SOURCE), ("changed", CHANGED, SOURCE),
        ("moved", COMMENTED, MOVED),
    ):  # fmt: skip
        files = {"kernels.cuh": header, "main.cu": source, **({} if name == "released" else {"blob.cu": BLOB})}
        made[name] = build(lazyck_shared, tmp_path_factory.mktemp(name), files, blobs="*/blob.cu")
    return made


@pytest.fixture
def fresh(all_built: dict[str, Built], spy: Path, tmp_path: Path) -> Releases:
    """Return the releases with an empty cache."""
    return Releases(all_built, spy, tmp_path / "cache")


@pytest.fixture(scope="module")
def launched(all_built: dict[str, Built], spy: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a cache with what the first launch of the kernel that all releases have leaves."""
    releases = Releases(all_built, spy, tmp_path_factory.mktemp("launched") / "cache")
    assert compiled(releases.launch("first", SCALE))
    return releases.cache


@pytest.fixture
def releases(fresh: Releases, launched: Path) -> Releases:
    """Return the releases after the first one has launched its kernel."""
    shutil.copytree(launched, fresh.cache)
    return fresh


def image(entry: Path) -> bytes:
    """Return what the loader sees of the entry."""
    return entry.read_bytes()[: -trailer.SIZE]


def compiled(said: str) -> bool:
    """Return whether the unit was compiled; otherwise it was taken over."""
    assert ("compiled " in said) != ("took over " in said), said
    return "compiled " in said


def test_what_a_release_does_not_change_for_a_kernel_is_taken_over(releases: Releases) -> None:
    said = releases.launch("released", SCALE)
    assert not compiled(said)
    assert re.search(r"took over main\.scale-[0-9a-f]+ for 80 in .* s: an existing entry was made", said)
    first, second = releases.entries()
    assert first.name != second.name and image(first) == image(second)
    assert releases.launch("released", SCALE, LAZYCK_JIT="off") == ""
    fresh = releases.launch("released", SCALE, LAZYCK_CACHE_DIR=str(releases.cache.parent / "fresh"))
    assert compiled(fresh)
    (alone,) = (releases.cache.parent / "fresh").glob("v1/*/*/*.so")
    assert image(alone) == image(second)


def test_what_is_compiled_otherwise_is_compiled(releases: Releases) -> None:
    assert compiled(releases.launch("changed", SCALE))
    first, second = releases.entries()
    assert image(first) != image(second)


def test_text_keys_can_be_turned_off(releases: Releases) -> None:
    assert compiled(releases.launch("released", SCALE, LAZYCK_TEXT_KEYS="0"))
    assert len(releases.texts()) == 1


@pytest.mark.parametrize(("n", "is_other"), [(SCALE, False), (CHECKED, True), (PLACED, True)])
def test_lines_count_where_code_can_tell_them_apart(fresh: Releases, n: int, is_other: bool) -> None:
    assert compiled(fresh.launch("first", n))
    assert compiled(fresh.launch("moved", n)) == is_other


def test_a_whole_source_is_taken_over(lazyck: Lazyck, spy: Path, tmp_path: Path) -> None:
    # All builds use one directory, because its path makes names that are a source's own unique.
    said = []
    for header in (HEADER, COMMENTED, RELEASED):
        built = build(lazyck, tmp_path / "built", {"kernels.cuh": header, "main.cu": WITHOUT_PLACES})
        releases = Releases({"it": built}, spy, tmp_path / "cache")
        said.append(compiled(releases.launch("it", TABLE)))
    assert said == [True, False, True]
    first, second, _ = releases.entries()
    assert image(first) == image(second)


def test_a_damaged_entry_is_not_taken_over(releases: Releases) -> None:
    (entry,) = releases.entries()
    data = bytearray(entry.read_bytes())
    data[len(data) // 2] ^= 1
    entry.write_bytes(data)
    assert compiled(releases.launch("released", SCALE))


@pytest.mark.parametrize("target", ["../../../etc/passwd", "a/b/../c.so", "", "a/b", "/etc/x/y.so", "a/.b/c.so"])
def test_what_names_no_entry_is_passed_over(releases: Releases, target: str) -> None:
    (text,) = releases.texts()
    text.write_text(target)
    assert compiled(releases.launch("released", SCALE))
    assert text.read_text().endswith(releases.entries()[1].name)


def test_an_entry_of_another_text_is_not_taken_over(releases: Releases) -> None:
    (text,) = releases.texts()
    before = text.read_text()
    releases.launch("changed", SCALE)
    (other,) = set(releases.texts()) - {text}
    text.write_text(other.read_text())
    assert compiled(releases.launch("released", SCALE))
    assert text.read_text() not in (before, other.read_text())


def test_places_that_others_can_write_are_refused(releases: Releases) -> None:
    (releases.cache / ".texts").chmod(0o777)
    assert compiled(releases.launch("released", SCALE))
    (releases.cache / ".texts").chmod(0o700)
    for text in releases.texts():
        text.chmod(0o666)
    assert compiled(releases.launch("moved", SCALE))


def test_a_cache_that_is_only_read_is_looked_in(releases: Releases) -> None:
    own = releases.cache.parent / "own"
    said = releases.launch("released", SCALE, LAZYCK_CACHE_DIR=str(own), LAZYCK_CACHE_PATH=str(releases.cache))
    assert not compiled(said)
    assert len(list(own.glob("v1/*/*/*.so"))) == 1


def is_sending(where: Path) -> bool:
    """Return whether a helper of this test still runs in the background."""
    found = b""
    for words in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found += words.read_bytes()
    return f"--cache\0{where}".encode() in found


def test_remote_caches_are_asked(fresh: Releases, tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    remote = {
        "LAZYCK_REMOTE": f"{tmp_path / 'shared'}|trusted",
        "LAZYCK_REMOTE_HELPER": str(Path(sys.executable).parent / "lazyck-remote"),
    }
    assert compiled(fresh.launch("first", SCALE, **remote))
    wait_until(lambda: not is_sending(tmp_path))
    sizes = [p.stat().st_size for p in (tmp_path / "shared" / "cas").iterdir()]
    assert len(sizes) == 1 and len(list((tmp_path / "shared" / "ac").iterdir())) == 2
    other = str(tmp_path / "other")
    assert not compiled(fresh.launch("released", SCALE, **remote, LAZYCK_CACHE_DIR=other))
    wait_until(lambda: not is_sending(tmp_path))
    third = str(tmp_path / "third")
    assert "compiled" not in fresh.launch("released", SCALE, **remote, LAZYCK_CACHE_DIR=third)
    assert compiled(fresh.launch("changed", SCALE, **remote, LAZYCK_CACHE_DIR=third))


def test_explain_says_it(releases: Releases, lazyck: Lazyck) -> None:
    releases.launch("released", SCALE)
    first, second = releases.entries()
    built = releases.built["released"]
    env = {**built.env, "LAZYCK_CACHE_DIR": str(releases.cache), "LAZYCK_ARCHS": "80"}
    done = lazyck("cache", "explain", "libx.so", second.name.rpartition("-")[0], cwd=built.where, env=env)
    assert done.stdout.splitlines()[1:] == [f"  entry       {second}", f"  same text   {first}"], done


def test_trimming_forgets_texts_of_entries_that_are_gone(releases: Releases, lazyck: Lazyck) -> None:
    releases.launch("first", CHECKED)
    releases.entries("main.checked*.so")[0].unlink()
    env = {"LAZYCK_CACHE_DIR": str(releases.cache)}
    assert lazyck("cache", "trim", "--max-size", "1GB", env=env).returncode == 0
    (left,) = releases.texts()
    assert ".scale" in left.read_text()


def test_host_units_of_blobs_are_taken_over(fresh: Releases) -> None:
    said = fresh.launch("first", SCALE, "launch_blob", LAZYCK_BY_KERNEL="1")
    assert len(re.findall("compiled blob", said)) == 2
    said = fresh.launch("moved", SCALE, "launch_blob", LAZYCK_BY_KERNEL="1")
    assert len(re.findall("took over blob", said)) == 2 and "compiled" not in said
    first, second = fresh.entries("blob.host*.so")
    assert image(first) == image(second)
    said = fresh.launch("changed", SCALE, "launch_blob", LAZYCK_BY_KERNEL="1")
    assert "took over" not in said
