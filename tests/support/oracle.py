"""Compares each library that a test builds lazily with an ahead-of-time build of it.

A library that several tests build alike is checked once in a session. Of a test that builds many
libraries, only a few are checked. `ORACLE=off` in the environment turns the checks off.
`ORACLE=FILE` writes differences into that file instead of failing the test.
"""

import contextlib
import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from lazyck.check import ahead
from lazyck.check.ahead import Sample
from lazyck.check.library_check import Checked, CheckRequest, check_library
from lazyck.check.presentation import render
from lazyck.postbuild import state
from lazyck.postbuild.link.arguments import load_ahead
from lazyck.postbuild.objects.offered import read_offered
from lazyck.postbuild.probe.group import compile_one
from lazyck.proc import Result, find_program
from lazyck.toolchains import lookup
from lazyck.toolchains.command import CompileCommand

MOST = 3  # the most libraries that are checked for one test function
WHOLE, SAMPLE = 25, 8  # a library of up to WHOLE blobs is compiled whole; of a larger one, SAMPLE blobs are
ORACLE = os.environ.get("ORACLE", "")


def tmp_dir_of(words: Sequence[str], cwd: Path) -> Path | None:
    """Return the tmp dir of a `lazyck build full`, or None for another command."""
    if list(words[:2]) != ["build", "full"]:
        return None
    options = list(words[: words.index("--")] if "--" in words else words)
    given = options[options.index("--tmp-dir") + 1] if "--tmp-dir" in options else ".lazyck-build"
    return cwd / given


def check_build(tmp: Path, seen: Path, test: str, env: Mapping[str, str]) -> Iterator[str]:
    """Yield the differences of those libraries of `tmp` that no test has checked yet, as texts.

    `seen` has a file for each checked library. `test` is the name of the test function.
    """
    for directory in state.library_dirs(tmp):
        if not (directory / "summary.json").is_file() or not _is_new(directory, seen, test):
            continue
        said: list[str] = []
        is_large = len(load_ahead(directory).records) > WHOLE
        request = CheckRequest(Sample(SAMPLE if is_large else None), jobs=2)
        with _compiling_once(seen.parent / "ccache"):
            checked = check_library(directory, request, env, said.append)
        if not _is_same(checked):
            yield render([checked], env, verbose=False)


@contextlib.contextmanager
def _compiling_once(cache: Path) -> Iterator[None]:
    """Compile ahead of time through a ccache that all tests of this run share, since they build the
    same few projects in many ways. ccache knows a compiler by its program, so it has no place
    before one that starts another, as the environment says."""
    settings = {"CCACHE_DIR": str(cache), "CCACHE_NOHASHDIR": "1"}

    def compile_cached(blob: CompileCommand, target: Path, env: Mapping[str, str], more: Sequence[str] = ()) -> Result:
        ccache = find_program("ccache")
        if ccache and lookup.is_compiler(Path(blob.call.argv[0]).resolve().name):
            call = replace(blob.call, argv=(ccache, *blob.call.argv), prefix=blob.call.prefix + 1)
            blob, env = replace(blob, call=call), {**env, **settings}
        return compile_one(blob, target, env, more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ahead, "compile_one", compile_cached)
        yield


def _is_same(checked: Checked) -> bool:
    return not checked.problem and not any(d.fails for d in checked.comparison.differences)


def _is_new(directory: Path, seen: Path, test: str) -> bool:
    """Return whether the library in `directory` is to be checked, and note the library in `seen`.

    It is not if a library of equal sources and commands was checked before, or enough libraries of
    `test` were. For a slow compiler, one library of each test module is enough.
    """
    link, known = load_ahead(directory), state.load(directory)
    cwd = os.path.normpath(directory / known.cwd)
    place = os.path.commonpath([cwd, *(blob.source for blob in link.records)])
    digest = hashlib.sha256((directory / "ahead.json").read_text().replace(place, "").encode())
    for blob in link.records:
        digest.update(Path(blob.source).read_bytes() if os.path.isfile(blob.source) else b"")
    exports = read_offered(directory / known.file_name).exports
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
    """Fail the test `test` for `differences`, or write them to the file that ORACLE names."""
    if differences and ORACLE:
        with open(ORACLE, "a", encoding="utf-8") as f:
            f.write("".join(f"== {test}\n{text}\n" for text in differences))
    elif differences:
        raise AssertionError("not the same as ahead of time:\n" + "\n".join(differences))
