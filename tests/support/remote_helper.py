"""Writes the helper of remote caches for a test, and finds the processes that run it."""

import sys
from pathlib import Path

from support import REPOSITORY


def write_helper(where: Path) -> Path:
    """Write a helper that notes its start in `helped` and then acts as the real one."""
    path = where / "lazyck-remote"
    path.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(REPOSITORY)!r})\n"
        f"open({str(where / 'helped')!r}, 'a').write('x')\n"
        "from lazyck.commands.remote_program import main\nmain()\n"
    )
    path.chmod(0o755)
    return path


def helpers(where: Path) -> list[int]:
    """Return the processes that run the helper of this test."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes()
        except OSError:
            continue
        if f"{where}/lazyck-remote\0entry".encode() in words:
            found.append(int(entry.parent.name))
    return found
