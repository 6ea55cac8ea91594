"""Tests that `lazyck help` has the documentation's pages, and that `lazyck completion` has what
shells complete."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import REPOSITORY, Lazyck

PROGRAM = "lazyck"
MADE_FOR_THE_SITE = {"c-api", "python-api"}


def test_help_lists_every_page(lazyck: Lazyck) -> None:
    listed = {line.split()[0] for line in lazyck("help").stdout.splitlines() if line.startswith("  ")}
    assert listed == {page.stem for page in (REPOSITORY / "docs").glob("*.md")} - MADE_FOR_THE_SITE


def test_help_shows_a_page_without_what_only_a_browser_shows(lazyck: Lazyck) -> None:
    done = lazyck("help", "runtime")
    assert done.returncode == 0
    assert done.stdout.startswith("# ")
    assert "**Precompiled preambles.**" in done.stdout
    assert not [word for word in ("<!--", "<a id", "![") if word in done.stdout]


def test_help_shows_a_commands_options(lazyck: Lazyck) -> None:
    assert lazyck("help", "cache", "trim").stdout == lazyck("cache", "trim", "--help").stdout


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["remot"], "did you mean `lazyck help remote`?"),
        (["zzz"], "`lazyck help` lists the topics"),
        (["cache", "zzz"], "`lazyck --help` lists them"),
        (["remote", "caches"], "`lazyck help remote`"),
    ],
)
def test_help_for_what_there_is_not_is_an_error(lazyck: Lazyck, words: list[str], hint: str) -> None:
    done = lazyck("help", *words)
    assert done.returncode == 2
    assert hint in done.stderr


def test_bash_completes_what_is_installed(lazyck: Lazyck, tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path), "SHELL": "/bin/bash", "XDG_DATA_HOME": ""}
    done = lazyck("completion", "--install", env=home)
    assert done.returncode == 0, done.stderr
    file = tmp_path / ".local/share/bash-completion/completions/lazyck"
    assert f"wrote {file}" in done.stdout
    words = f"COMP_WORDS=({PROGRAM} cache t); COMP_CWORD=2"
    script = f"source {file}; {words}; _{PROGRAM}_completion {PROGRAM}; echo ${{COMPREPLY[@]}}"
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "PYTHONPATH": str(REPOSITORY)}
    found = subprocess.run(["bash", "-c", script], env=env, capture_output=True, text=True)
    assert found.stdout.split() == ["trim"], found.stderr


@pytest.mark.parametrize(("shell", "place"), [("zsh", f"zsh/site-functions/_{PROGRAM}"), ("fish", "fish/completions")])
def test_other_shells_have_their_own_places(lazyck: Lazyck, tmp_path: Path, shell: str, place: str) -> None:
    env = {"HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path / "d"), "XDG_CONFIG_HOME": str(tmp_path / "c")}
    done = lazyck("completion", "--install", shell, env=env)
    assert done.returncode == 0, done.stderr
    written = Path(done.stdout.split("wrote ")[1].split(";")[0])
    assert place in str(written)
    assert written.read_text() == lazyck("completion", shell).stdout + "\n" * (not written.read_text().endswith("\n"))
    if shutil.which(shell):
        assert subprocess.run([shell, "-n", str(written)]).returncode == 0


def test_an_unknown_shell_is_an_error(lazyck: Lazyck) -> None:
    done = lazyck("completion", env={"SHELL": "/bin/tcsh"})
    assert done.returncode == 2
    assert "name one of: bash, zsh, fish" in done.stderr
