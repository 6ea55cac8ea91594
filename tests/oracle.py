"""The oracle for the tests' own libraries: each one that a test builds lazily is also made ahead of time and compared.

A library that several tests build alike is checked once in a session, and of a test that builds many, a few are.
`ORACLE=off` in the environment leaves the checks out; `ORACLE=FILE` writes differences into that file, instead of
failing the test.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from lazyck.check.ahead import Sample
from lazyck.check.library import Checked, Request, check_library
from lazyck.check.offered import read_offered
from lazyck.check.report import render
from lazyck.postbuild import ahead_link, state

MOST = 3  # libraries of one test function
WHOLE, SAMPLE = 25, 8  # up to so many blobs, all of a library are compiled; else so many
ORACLE = os.environ.get("ORACLE", "")


def tmp_dir_of(words: Sequence[str], cwd: Path) -> Path | None:
    """The tmp dir of a `lazyck build full`; None for other commands."""
    if list(words[:2]) != ["build", "full"]:
        return None
    options = list(words[: words.index("--")] if "--" in words else words)
    given = options[options.index("--tmp-dir") + 1] if "--tmp-dir" in options else ".lazyck-build"
    return cwd / given


def check_build(tmp: Path, seen: Path, test: str, env: Mapping[str, str]) -> Iterator[str]:
    """The differences of the libraries of `tmp` that no test has checked yet, as texts; `seen` has a file for each that
    was. `test` is the name of the test function."""
    for directory in state.library_dirs(tmp):
        if not (directory / "summary.json").is_file() or not _is_new(directory, seen, test):
            continue
        said: list[str] = []
        is_large = len(ahead_link.load(directory).records) > WHOLE
        request = Request(Sample(SAMPLE if is_large else None), jobs=2)
        checked = check_library(directory, request, env, said.append)
        if not _is_same(checked):
            yield render([checked], env, verbose=False)


def _is_same(checked: Checked) -> bool:
    return not checked.problem and not any(d.fails for d in checked.comparison.differences)


def _is_new(directory: Path, seen: Path, test: str) -> bool:
    """Whether no library was checked yet that was made of equal sources by equal commands, and few for `test`, or, of a
    compiler that takes its time, for its module; notes it."""
    link = ahead_link.load(directory)
    place = os.path.commonpath([link.cwd, *(blob.source for blob in link.records)])
    digest = hashlib.sha256((directory / "ahead.json").read_text().replace(place, "").encode())
    for blob in link.records:
        digest.update(Path(blob.source).read_bytes() if os.path.isfile(blob.source) else b"")
    exports = read_offered(directory / state.load(directory).file_name).exports
    digest.update("\n".join(sorted(exports)).encode("utf-8", "surrogateescape"))
    is_slow = any(blob.call.toolchain == "cuda" for blob in link.records)
    for_test = seen / hashlib.sha256((test.partition("::")[0] if is_slow else test).encode()).hexdigest()
    for_test.mkdir(parents=True, exist_ok=True)
    if len(list(for_test.iterdir())) >= (1 if is_slow else MOST):
        return False
    try:
        (seen / f"{digest.hexdigest()}.seen").touch(exist_ok=False)
        (for_test / digest.hexdigest()).touch()
    except FileExistsError:
        return False
    return True


def report(differences: Sequence[str], test: str) -> None:
    """Fail the test `test` for `differences`, or write them down."""
    if differences and ORACLE:
        with open(ORACLE, "a", encoding="utf-8") as f:
            f.write("".join(f"== {test}\n{text}\n" for text in differences))
    elif differences:
        raise AssertionError("not the same as ahead of time:\n" + "\n".join(differences))
