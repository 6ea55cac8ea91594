"""Checks the subjects of the commits since BASE: python scripts/commits.py BASE.

A subject is `area: verb what`, at most 72 characters, with the verb in the imperative mood. No
program can tell a verb, but words that begin a noun phrase, plurals and participles are none. A
merge has such a subject too: it says what it brings. Where the history does not reach back to BASE,
as in a shallow clone, nothing is checked.
"""

import re
import subprocess
import sys
from collections.abc import Iterable

LONGEST = 72
_FORM = re.compile(r"[A-Za-z0-9_./-]+(, [A-Za-z0-9_./-]+)*: (?P<first>[a-z][a-z-]*)( .+)?")
# Words that begin a noun phrase or a clause are closed classes in English.
_NO_VERBS = frozenset(
    """
    a an the this that these those each every all any some no one both either neither what which
    who whose where when why how if it its they their there is are was were has have had of in on at
    by for with without from to and or but not only also two three four five many more most fewer less
    """.split()  # noqa: SIM905
)
_PARTICIPLE = re.compile(r".*[aeiouy].*ing|(?!embed).*[aeiouy].*(?<!e)ed")
_PLURAL = re.compile(r".*[^aus]s")


def problem_of(subject: str) -> str:
    """Return what is wrong with a commit's subject, or an empty string."""
    if len(subject) > LONGEST:
        return f"{len(subject)} characters, more than {LONGEST}"
    form = _FORM.fullmatch(subject)
    if form is None:
        return "not `area: verb what`"
    first = form["first"]
    if first in _NO_VERBS or _PARTICIPLE.fullmatch(first) or _PLURAL.fullmatch(first):
        return f"{first!r} is no verb in the imperative"
    return ""


def problems(commits: Iterable[str]) -> list[str]:
    """Return a line for each wrong one of `commits`, which are `HASH SUBJECT` each."""
    pairs = (line.partition(" ")[::2] for line in commits)
    return [f"{name}: {subject}\n  {found}" for name, subject in pairs if (found := problem_of(subject))]


def main() -> None:
    """Print what is wrong, and end with status 1 if anything is."""
    base = sys.argv[1]
    log = ["git", "log", "--format=%h %s", f"{base}..HEAD"]
    done = subprocess.run(log, capture_output=True, text=True)
    if done.returncode:
        print(f"commits: not checked, since this history does not reach back to {base}")
        return
    found = problems(done.stdout.splitlines())
    print("\n".join(found) or f"commits: {len(done.stdout.splitlines())} subjects since {base} are in form")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
