"""Says what is in the repository, for the tests that hold its layout."""

import subprocess

from support import REPOSITORY


def tracked() -> list[str]:
    """Return the files that git knows and that are there."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    return [name for name in listed.stdout.split("\0") if name and (REPOSITORY / name).exists()]


def rooms() -> set[str]:
    """Return the packages of lazyck/."""
    return {p.parent.name for p in (REPOSITORY / "lazyck").glob("*/__init__.py")}
