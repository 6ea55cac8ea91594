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


KNOWN = (
    Known("scripts/symver", "the library's own calls reach the old one of two versions of a blob's function", 49),
    Known("seen/vague symbols", "what only a blob instantiates is not exported", 49),
)
