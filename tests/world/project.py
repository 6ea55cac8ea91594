"""Define the description of a project: all that is needed to build and test it."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Debian:
    """Names a source package of this machine's distribution, in the version that the distribution
    has."""

    package: str


@dataclass(frozen=True)
class PyPI:
    """Names a source archive of PyPI, pinned by its checksum."""

    requirement: str
    archive: str
    sha256: str


@dataclass(frozen=True)
class Results:
    """Says where a test run leaves the result of each test, below its own directory or the build's.

    `junit` and `trs` are globs of files: JUnit's XML, and what automake's `make check` leaves for
    each test. `lines` is a regular expression for lines of the output. Its groups are `name` and
    `passed`; the second matches only if the test passed.
    """

    junit: tuple[str, ...] = ()
    trs: tuple[str, ...] = ()
    lines: str = ""


@dataclass(frozen=True)
class Project:
    """Describes a project whose own tests say whether its lazy library is the same program.

    `build` and `test` are shell scripts that run in an empty build directory. Their variables are
    `SOURCE`, the unpacked source, and `JOBS`, the number of compiles at a time. `test` also has
    `TEST_JOBS`, the number of tests at a time, and `OUT`, an empty directory for results. `build`
    configures too, and makes all that the tests need. `blobs` are globs of the library's sources
    below the source. A glob that begins with `!` removes paths again, and its `*` crosses `/`.
    """

    name: str
    source: Debian | PyPI
    built_by: str
    blobs: tuple[str, ...]
    build: str
    test: str
    results: Results
    packages: tuple[str, ...] = ()  # Debian packages, in addition to those of `scripts/test --all`
    python: tuple[str, ...] = field(default=())  # PyPI packages, for a virtual environment that is first on PATH


CTEST = 'ctest -j "$TEST_JOBS" --output-junit "$OUT/ctest.xml" --timeout 900'
CTEST_RESULTS = Results(junit=("ctest.xml", "gtest/*.xml"))


def cmake(*options: str) -> str:
    """Return the script that configures with `options` and builds everything."""
    words = " ".join(options)
    return f'cmake -G Ninja -DCMAKE_BUILD_TYPE=Release {words} "$SOURCE"\nninja -j "$JOBS"'
