"""What is to be known of a project so that it can be built and tested: one small description each."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Debian:
    """A source package of the distribution that this machine runs, in the version that it has there."""

    package: str


@dataclass(frozen=True)
class PyPI:
    """A source archive of PyPI, pinned by its checksum."""

    requirement: str
    archive: str
    sha256: str


@dataclass(frozen=True)
class Results:
    """Where a test run leaves the result of each test, below its own directory or the build's.

    `junit` and `trs` are globs of files (JUnit's XML; what automake's `make check` leaves per test); `lines` is an
    expression for lines of the output, with the groups `name` and `passed`, the second of which matches where it did.
    """

    junit: tuple[str, ...] = ()
    trs: tuple[str, ...] = ()
    lines: str = ""


@dataclass(frozen=True)
class Project:
    """A project whose own tests say whether its lazy library is the same program.

    `build` and `test` are shell scripts that run in an empty build directory with these variables: `SOURCE`, the
    unpacked source; `JOBS`, compiles at a time; and for `test` `TEST_JOBS`, tests at a time, and `OUT`, an empty
    directory for results. `build` configures too, and makes all that the tests need. `blobs` are globs of the library's
    sources below the source; one that begins with `!` takes paths out again, and its `*` crosses `/`.
    """

    name: str
    source: Debian | PyPI
    built_by: str
    blobs: tuple[str, ...]
    build: str
    test: str
    results: Results
    packages: tuple[str, ...] = ()  # Debian's, beside those that scripts/test installs
    python: tuple[str, ...] = field(default=())  # PyPI's, for a virtual environment that is first on PATH


CTEST = 'ctest -j "$TEST_JOBS" --output-junit "$OUT/ctest.xml" --timeout 900'
CTEST_RESULTS = Results(junit=("ctest.xml", "gtest/*.xml"))


def cmake(*options: str) -> str:
    """The script that configures with `options` and builds all."""
    words = " ".join(options)
    return f'cmake -G Ninja -DCMAKE_BUILD_TYPE=Release {words} "$SOURCE"\nninja -j "$JOBS"'
