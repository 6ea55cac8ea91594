"""Make blobs of a lazy library ready from Python, as warm_up.c does from C, and more.

python warm_up.py LIBRARY list [PATTERN]              the names of its blobs, and which are cached
python warm_up.py LIBRARY prefetch PATTERN|BLOB...    makes these ready, with a line per compile
python warm_up.py LIBRARY replay PROFILE              makes the profile's blobs ready
python warm_up.py LIBRARY run PROFILE SCRIPT WORD...  runs a Python script: the first run records
                                                      its blobs in PROFILE; later runs make these
                                                      ready first, and compile nothing else
"""

import runpy
import sys
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import lazyck


def say_compile(event: lazyck.Event) -> None:
    """Print a line for a compile. It is called on the thread that works, as each compile begins
    and as it ends."""
    if event.has_failed:
        print(f"{event.blob} failed")
    elif event.has_ended:
        print(f"{event.blob} took {event.seconds:.1f} s, {event.peak_kib} KiB")


def show_progress(progress: lazyck.Progress) -> None:
    print(f"{progress.ready} of {progress.total} blobs ready", file=sys.stderr)


def list_blobs(library: lazyck.Library, pattern: str) -> None:
    for name in library.blobs():
        if fnmatchcase(name, pattern):
            print(name, "cached" if library.is_cached(name) else "-", sep="\t")


def prefetch(library: lazyck.Library, what: Sequence[str] | Path | str) -> None:
    """Wait until everything is ready. A training script would go on, and call `wait()` later."""
    with library.on_compile(say_compile):
        state = library.prefetch(what).wait(on_progress=show_progress)
    print(f"{state.ready} of {state.total} blobs ready")


def run(library: lazyck.Library, profile: Path, script: Sequence[str]) -> None:
    """Record in the first run and replays in later ones. (`with lazyck.record(profile):` does
    both, for every lazy library.)"""
    sys.argv = list(script)
    if profile.exists():
        library.prefetch(profile).wait()
        with lazyck.forbid_jit():
            runpy.run_path(script[0], run_name="__main__")
    else:
        with library.record(profile):
            runpy.run_path(script[0], run_name="__main__")
    stats = library.stats()
    print(f"{stats.loaded} of {stats.blobs} blobs loaded, {stats.hits} from the cache; {stats.compiles} compiles")


def main(words: Sequence[str]) -> int:
    if len(words) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    path, action, *rest = words
    try:
        library = lazyck.load(path)
        if action == "list" and len(rest) <= 1:
            list_blobs(library, rest[0] if rest else "*")
        elif action == "prefetch" and rest:
            # A single word may be a pattern.
            prefetch(library, rest[0] if len(rest) == 1 else rest)
        elif action == "replay" and len(rest) == 1:
            prefetch(library, Path(rest[0]))
        elif action == "run" and len(rest) >= 2:
            run(library, Path(rest[0]), rest[1:])
        else:
            print(__doc__, file=sys.stderr)
            return 2
    except lazyck.LazyckError as e:  # lazyck.CompileError is one
        print(e.render(), file=sys.stderr)
        return 1
    except OSError as e:
        print(e, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
