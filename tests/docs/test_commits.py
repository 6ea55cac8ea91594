"""Tests of the check of commits' subjects that `scripts/lint` makes."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from support import REPOSITORY

CHECK = [sys.executable, str(REPOSITORY / "scripts" / "commits.py")]


def git(where: Path, *words: str) -> str:
    who = ("-c", "user.name=n", "-c", "user.email=e", "-c", "init.defaultBranch=main")
    return subprocess.run(["git", *who, *words], cwd=where, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def base(tmp_path: Path) -> str:
    """Make a repository in `tmp_path` with a commit that is not judged."""
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "What was before is not judged.")
    return git(tmp_path, "rev-parse", "HEAD")


def check(where: Path, base: str) -> tuple[int, str]:
    done = subprocess.run([*CHECK, base], cwd=where, capture_output=True, text=True)
    assert not done.stderr
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    "subject",
    [
        "link: bring the libraries that the runtime needs",
        "tests/runtime, docs: say which waits have a bound",
        "cache: process entries in one pass",
        "merge: bring riscv64",
    ],
)
def test_a_subject_in_form_passes(tmp_path: Path, base: str, subject: str) -> None:
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", subject)
    assert check(tmp_path, base) == (0, f"commits: 1 subjects since {base} are in form\n")


@pytest.mark.parametrize(
    ("subject", "why"),
    [
        ("Merge branch 'se'", "not `area: verb what`"),
        ("Fix a bug", "not `area: verb what`"),
        ("link: Bring libraries", "not `area: verb what`"),
        ("tests: the demo imports torch once less", "'the' is no verb"),
        ("tests: helpers stand where they are called", "'helpers' is no verb"),
        ("link: fixed the order of libraries", "'fixed' is no verb"),
        ("link: bring " + "x" * 61, "73 characters"),
    ],
)
def test_another_subject_is_named_with_what_is_wrong(tmp_path: Path, base: str, subject: str, why: str) -> None:
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", subject)
    status, said = check(tmp_path, base)
    assert status == 1
    assert subject in said and why in said


def test_a_history_that_does_not_reach_back_is_not_checked(tmp_path: Path, base: str) -> None:
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "Fix a bug")
    status, said = check(tmp_path, "0" * 40)
    assert (status, said.startswith("commits: not checked")) == (0, True)


def test_the_commits_of_this_repository_are_checked() -> None:
    lint = (REPOSITORY / "scripts" / "lint").read_text()
    (base,) = re.findall(r"^python scripts/commits\.py (\S+)$", lint, re.MULTILINE)
    known = subprocess.run(
        ["git", "rev-list", "--max-parents=0", "HEAD"], cwd=REPOSITORY, capture_output=True, text=True
    )
    if known.returncode or git(REPOSITORY, "rev-parse", "--is-shallow-repository") == "true":
        pytest.skip("not in a whole repository")
    status, said = check(REPOSITORY, base)
    assert (status, said.startswith("commits: not checked")) == (0, False), said
