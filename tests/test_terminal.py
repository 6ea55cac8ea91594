"""Tests the messages of commands: a terminal shows colours, and `--quiet` leaves only what is
wrong."""

import re
from pathlib import Path

import pytest
from support import Lazyck, on_terminal
from support.bundles import Bundle, make_bundle

BROKEN = "#error broken on purpose\n"
TRIM = ("cache", "trim", "--max-size", "much")


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return make_bundle(tmp_path / "b", ["one", "two"])


def test_a_terminal_shows_errors_hints_and_warnings_in_colours() -> None:
    status, text = on_terminal(*TRIM, env={"LAZYCK_JOBBS": "1"})
    assert status == 2
    assert "lazyck: \x1b[1;31merror:\x1b[0m --max-size 'much': not a size" in text
    assert "\n  \x1b[36mhint:\x1b[0m write 20G" in text.replace("\r", "")
    assert "lazyck: \x1b[1;33mwarning:\x1b[0m LAZYCK_JOBBS is not" in text


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_whoever_wants_no_colours_gets_none(env: dict[str, str]) -> None:
    assert "\x1b" not in on_terminal(*TRIM, env=env)[1]


def test_a_log_gets_no_colours(lazyck: Lazyck) -> None:
    assert "\x1b" not in lazyck(*TRIM, env={"TERM": "xterm"}).stderr


def test_quiet_commands_say_nothing_when_all_is_well(lazyck: Lazyck, bundle: Bundle, tmp_path: Path) -> None:
    manifest = ("--manifest", bundle.file)
    remote = {"LAZYCK_REMOTE": f"file://{tmp_path}/remote|trusted"}
    (tmp_path / "remote").mkdir(mode=0o700)
    commands: list[tuple[str | Path, ...]] = [
        ("prebuild", "build", *manifest, "--all", "--quiet"),
        ("pack", *manifest, "--all", "--tar", tmp_path / "x.tar", "-q"),
        ("cache", "push", "--quiet"),
        ("cache", "pull", *manifest, "--quiet"),
    ]
    for words in commands:
        done = lazyck(*words, env=remote)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), words
    assert sorted(bundle.compiled()) == ["one", "two"] and (tmp_path / "x.tar").is_file()
    status, text = on_terminal("prebuild", "build", *manifest, "--all", "--quiet", env={"LAZYCK_EXTRA_CACHE_KEY": "x"})
    assert (status, text) == (0, "")


def test_a_quiet_build_says_what_is_wrong(lazyck: Lazyck, bundle: Bundle) -> None:
    bundle.source("two").write_text(BROKEN)
    done = lazyck("prebuild", "build", "--manifest", bundle.file, "--all", "--quiet")
    assert done.returncode == 1
    assert "broken on purpose" in done.stderr and "hint: each failure above names its log" in done.stderr
    assert "compiled one" not in done.stderr


def test_a_quiet_lazy_build_says_warnings_only(lazyck: Lazyck, tmp_path: Path) -> None:
    (tmp_path / "blob").mkdir()
    (tmp_path / "blob" / "k.cpp").write_text("int k() { return 7; }\n")
    (tmp_path / "d.cpp").write_text("int k();\nint run() { return k(); }\n")
    script = "c++ -fPIC -c blob/k.cpp -o k.o && c++ -fPIC -c d.cpp -o d.o && c++ -shared k.o d.o -o libk.so\n"
    done = lazyck("build", "full", "--quiet", "--", "sh", "-c", script, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    (tmp_path / "blob" / "alone.cpp").write_text("int alone() { return 7; }\n")
    unlinked = "c++ -fPIC -c blob/alone.cpp -o alone.o"
    done = lazyck("build", "full", "--quiet", "--", "sh", "-c", unlinked, cwd=tmp_path)
    assert re.fullmatch(r"lazyck: warning: 1 deferred object .*\n", done.stderr), done.stderr
    quick = lazyck("build", "quick", "--tmp-dir", tmp_path / ".lazyck-build", "--quiet")
    assert (quick.returncode, quick.stdout, quick.stderr) == (0, "", "")
