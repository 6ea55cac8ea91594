"""The one table of traits with differences that are known and not closed yet. Without
`--all-aspects` they are not drawn. A row goes when its issue closes it."""

import fnmatch
from dataclasses import dataclass

from programs.program import Program


@dataclass(frozen=True)
class Known:
    pattern: str  # of names of traits; `seen/…` is what is compared
    reason: str
    issue: int

    def explains(self, program: Program, what: str) -> bool:
        """Return whether it is known that `program` may differ in `what`."""
        return any(fnmatch.fnmatchcase(name, self.pattern) for name in (f"seen/{what}", *program.names()))


KNOWN: tuple[Known, ...] = ()
