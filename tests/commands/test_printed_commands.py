"""Tests that what lazyck tells people to type can be pasted, and that its exit statuses are those
of docs/cli.md."""

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from support import REPOSITORY, Lazyck
from support.bundles import Bundle, make_bundle

from lazyck.cli import cli
from lazyck.commands.help import topics

PACKAGE = REPOSITORY / "lazyck"
IN_BACKQUOTES = re.compile(r"`(lazyck [^`]*)`")
STATUSES = {"0", "1", "2", "130", "the build's"}


def strings_of(path: Path) -> Iterator[str]:
    """Yield the texts in a source that may reach a user: its string literals, with `{}` for what is
    filled in. Docstrings count only in commands, whose help they are."""
    text = path.read_text()
    if path.suffix == ".py":
        tree = ast.parse(text)
        inner = {id(v) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for v in node.values}
        if path.parent.name != "commands":
            inner |= {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                yield "".join(str(v.value) if isinstance(v, ast.Constant) else "{}" for v in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner:
                yield node.value
    else:
        joined = re.sub(r'"\s*\n?\s*"', "", re.sub(r"//.*", "", text))
        yield from re.findall(r'"((?:[^"\\\n]|\\.)*)"', joined)


def printed() -> dict[str, str]:
    """Return each command in backquotes in the package's texts, with the first file that has it."""
    found: dict[str, str] = {}
    for path in sorted(PACKAGE.rglob("*")):
        if path.suffix in (".py", ".c", ".h", ".cpp", ".hpp"):
            for text in strings_of(path):
                for command in IN_BACKQUOTES.findall(text):
                    found.setdefault(" ".join(command.split()), str(path.relative_to(PACKAGE)))
    return found


def command_of(words: list[str]) -> tuple[click.Command, list[str]]:
    """Return the command that the words begin with, and the remaining words."""
    context = cli.make_context("lazyck", words, resilient_parsing=True)
    command: click.Command = cli
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        _, found, words = command.resolve_command(context, words)
        assert found is not None, words
        command = found
    return command, words


def test_every_command_that_a_text_names_is_one() -> None:
    commands = printed()
    assert len(commands) > 25, commands
    for line, file in commands.items():
        if "|" in line:
            continue  # this is a heading for several commands
        try:
            command, rest = command_of(shlex.split(line)[1:])
        except click.UsageError as e:
            pytest.fail(f"{file}: `{line}`: {e.format_message()}")
        options = {name for p in command.params for name in (*p.opts, *p.secondary_opts)} | {"--help", "--version"}
        unknown = [w for w in rest if w.startswith("-") and w != "--" and w.partition("=")[0] not in options]
        assert not unknown, f"{file}: `{line}` has {unknown}"
        assert command.name != "help" or not rest or rest[0] in {*topics(), "TOPIC", "{}"}, f"{file}: `{line}`"


def test_no_text_sends_a_user_to_a_file_that_is_not_installed() -> None:
    said = [text for path in PACKAGE.rglob("*") if path.suffix in (".py", ".c", ".cpp") for text in strings_of(path)]
    hints = [text for text in said if "docs/" in text and ".md" in text and "\n" not in text]
    assert not hints


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return make_bundle(tmp_path / "b", ["one", "two"])


def table_of_statuses() -> set[str]:
    rows = re.findall(r"^\| ([^|]+) \| ", (REPOSITORY / "docs" / "cli.md").read_text(), re.MULTILINE)
    return set(rows[: rows.index("the build's") + 1]) - {"status", "---"}


def test_the_table_has_every_status_that_is_tested_here() -> None:
    assert table_of_statuses() == STATUSES


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ("cache stats", 0),
        ("prebuild list --manifest FILE one", 0),
        ("prebuild list --manifest FILE nothing", 1),
        ("prebuild build --manifest FILE no*thing", 1),
        ("cache push --dry-run nothing", 1),
        ("cache push --manifest FILE --dry-run nothing", 1),
        ("cache explain FILE nothing", 1),
        ("pack --manifest FILE --tar x.tar nothing", 1),
        ("profile show MAKEFILE", 1),
        ("profile show absent", 1),
        ("prebuild build --manifest FILE --blob-list MAKEFILE", 1),
        ("inspect MAKEFILE", 1),
        ("prebuild build --manifest FILE", 2),
        ("prebuild build --manifest FILE --jobs many one", 2),
        ("cache trim", 2),
        ("cache trim --max-size much", 2),
        ("build full", 2),
        ("nonsense", 2),
        ("build full -- sh -c 'exit 7'", 7),
        ("build full -- sh -c 'kill -9 $$'", 137),
        ("build full --require-lazy -- true", 1),
    ],
)
def test_statuses(lazyck: Lazyck, bundle: Bundle, tmp_path: Path, words: str, status: int) -> None:
    makefile = tmp_path / "Makefile"
    makefile.write_text("all: a.o\n\nclean:\n\trm -f a.o\n")
    filled = words.replace("MAKEFILE", shlex.quote(str(makefile))).replace("FILE", shlex.quote(str(bundle.file)))
    (tmp_path / "remote").mkdir()
    env = {"LAZYCK_REMOTE": f"file://{tmp_path}/remote"}
    done = lazyck(*shlex.split(filled), cwd=tmp_path, env=env)
    assert done.returncode == status, done.stdout + done.stderr
    if status and "sh -c" not in words:
        assert done.stderr
    assert "Traceback" not in done.stderr
