"""Tests every command in the documents: it is run, or, if it needs what no test machine has, parsed
by lazyck's own parser.

docs/contributing.md says how a page marks its blocks. A block that is not marked like that fails.
"""

import contextlib
import os
import platform
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import click
import pytest
from support import REPOSITORY, wait_until
from support.doc_pages import (
    COMMANDS,
    OTHERS,
    PAGES,
    STARTS,
    WHY_NOT,
    Page,
    check_command,
    commands_of,
    is_as_shown,
    lines_of,
    read_page,
    run_page,
    run_shell,
)

from lazyck import abi
from lazyck.cli import cli
from lazyck.runtime.builder import OBJECTS, compile_objects
from lazyck.runtime.tool import tool
from lazyck.settings.environment import environment, tools_dir
from lazyck.toolchains import HOST

TUTORIAL = "docs/tutorial.md"
UNCHANGED = ("lazyck", "lazyck-env")  # no page changes these
ALL = [read_page(name) for name in sorted(PAGES)]
RUN = [page for page in ALL if any(block.is_run for block in page.blocks)]
# These variables belong to the scripts and tests, not to lazyck.
OUR_OWN = re.compile(r"LAZYCK_(TEST_\w+|VENV|FUZZ_\w+|WORLD_DIR|H)")
VARIABLE = re.compile(r"\bLAZYCK_[A-Z_]*[A-Z]\b")
EXAMPLES_OF_PATHS = ("scripts/", "examples/", "benchmarks/", "tests/", ".ci/")


@pytest.mark.parametrize("page", ALL, ids=lambda page: page.name)
def test_each_block_says_what_it_is(page: Page) -> None:
    for block in page.blocks:
        assert block.language in (*COMMANDS, *OTHERS), f"{block}: a block of language {block.language!r}"
        assert not block.why_not or block.why_not in WHY_NOT, f"{block}: {block.why_not!r} is none of {WHY_NOT}"
        lazyck_in_text = block.language == "text" and re.search(r"^\$ ", block.text, re.MULTILINE)
        assert not lazyck_in_text, f"{block}: a session that calls itself text"
    assert page.starts_from in STARTS or page not in RUN, f"{page.name}: says not what its commands start from"


@pytest.mark.parametrize("page", ALL, ids=lambda page: page.name)
def test_each_command_in_the_docs_is_one(page: Page) -> None:
    for block in page.blocks:
        if block.language == "python":
            compile(block.text, str(block), "exec")
        for line in lines_of(block):
            for words in commands_of(line) if "lazyck" in line else ():
                if words[0].rpartition("/")[2] == "lazyck":
                    with contextlib.suppress(click.exceptions.Exit):
                        check_command(words[1:])
    for span in page.spans:
        assert_exists(page, span)


def assert_exists(page: Page, span: str) -> None:
    """Check that the commands and options exist that a text names: `lazyck cache list|stats`."""
    if not span.startswith("lazyck ") or "=" in span.split(" ")[0]:
        return
    groups: list[click.Command] = [cli]
    seen: set[str] = set()
    for word in span.partition(" -- ")[0].split()[1:]:
        if word in ("…", "..."):
            break
        if word.strip("[(").startswith("--"):
            seen |= set(re.findall(r"--[a-z][a-z-]*", word))
            continue
        if all(isinstance(g, click.Group) for g in groups) and re.fullmatch(r"[a-z|]+", word):
            names = word.split("|")
            found = [g.get_command(click.Context(g), n) for g in groups if isinstance(g, click.Group) for n in names]
            assert None not in found, f"{page.name}: `{span}`: {word}"
            groups = [g for g in found if g is not None]
        seen |= set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", word))
    known = {o for g in groups for p in g.params for o in (*p.opts, *p.secondary_opts)} | {"--help"}
    assert seen <= known, f"{page.name}: `{span}`: {sorted(seen - known)}"


@pytest.mark.parametrize("page", ALL, ids=lambda page: page.name)
def test_each_variable_and_each_file_of_the_repository_exists(page: Page) -> None:
    known = {v for name, v in vars(abi).items() if name.startswith("ENV_")}
    known |= {v for p in (REPOSITORY / "lazyck").rglob("*.cmake") for v in VARIABLE.findall(p.read_text())}
    for name in set(VARIABLE.findall(PAGES[page.name].read_text())):
        assert name in known or OUR_OWN.fullmatch(name), f"{page.name}: {name}"
    for block in page.blocks:
        for line in lines_of(block):
            for words in commands_of(line.partition(" #")[0]):
                for word in words:
                    word = word.partition("lazyck/")[2] if word.startswith("~/lazyck/") else word
                    if word.startswith(EXAMPLES_OF_PATHS) and not word.endswith((".json", ".profile")):
                        assert (REPOSITORY / word).exists(), f"{block}: {word}"


@pytest.fixture(scope="module")
def env() -> dict[str, str]:
    """Return the environment of the commands: a machine with Python, a compiler and make. pip finds
    the packages of this Python there instead of fetching them."""
    ours = Path(sys.executable).parent
    base = Path(sys.base_prefix) / "bin"
    path = [str(base), *(d for d in os.environ["PATH"].split(":") if d and Path(d) != ours)]
    packages = [p for p in sys.path if p.endswith("-packages")]
    # pip stores the value as "isolate", so 0 turns isolation off.
    pip = {"PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_QUIET": "1"}
    return {"PATH": ":".join(path), "PYTHONPATH": ":".join(packages), "LANG": "C.UTF-8", "TERM": "dumb", **pip}


@dataclass(frozen=True)
class Reader:
    """A reader who has done the tutorial.

    `home` is the reader's home, and `saved` is a copy of its content after the tutorial. `problems`
    says where the tutorial was not as the page shows.
    """

    home: Path
    saved: Path
    problems: list[str]
    env: dict[str, str]


@pytest.fixture(scope="module")
def reader(env: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Reader:
    home = tmp_path_factory.mktemp("docs") / "home"
    make_home(home)
    problems = run_page(read_page(TUTORIAL), home, {**env, "HOME": str(home)})
    saved = home.with_name("saved")
    shutil.copytree(home, saved, symlinks=True, ignore=lambda at, _: UNCHANGED if at == str(home) else ())
    return Reader(home, saved, problems, {**env, "HOME": str(home), "PATH": f"{home}/lazyck-env/bin:{env['PATH']}"})


def make_home(home: Path) -> None:
    """Make a home with a checkout of lazyck, and with what lazyck compiles for itself once per
    user."""
    (home / "lazyck").mkdir(parents=True)
    for name in ("lazyck", "examples/serve"):
        shutil.copytree(REPOSITORY / name, home / "lazyck" / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy2(REPOSITORY / name, home / "lazyck" / name)
    real, ours = tools_dir(environment()), home / ".cache" / "lazyck-tools"
    ours.mkdir(parents=True, mode=0o700)
    compiler = HOST.find_for(platform.machine(), environment())
    for file in (tool(environment()), *compile_objects(real / OBJECTS, compiler)):
        copy = ours / file.relative_to(real)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, copy)


def go_back(reader: Reader) -> None:
    """Restore the home to its state after the tutorial."""
    for path in reader.home.iterdir():
        if path.name not in UNCHANGED:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    shutil.copytree(reader.saved, reader.home, symlinks=True, dirs_exist_ok=True)


@pytest.mark.xdist_group("docs")
@pytest.mark.parametrize("page", RUN, ids=lambda page: page.name)
def test_commands_of_a_page_do_what_it_shows(page: Page, reader: Reader) -> None:
    if page.name == TUTORIAL:
        problems = reader.problems
    else:
        assert page.starts_from == "the tutorial"
        go_back(reader)
        problems = run_page(page, reader.home, reader.env)
    assert not problems, "\n\n".join(problems)


def test_what_a_page_started_ends_with_it(tmp_path: Path) -> None:
    status, said = run_shell("trap '' TERM; sleep 600 > /dev/null & echo $!", tmp_path, dict(os.environ))
    assert status == 0
    command = Path(f"/proc/{int(said)}/cmdline")
    wait_until(lambda: not command.exists() or not command.read_bytes())  # a zombie has an empty one


def test_what_a_page_shows_is_compared() -> None:
    assert is_as_shown("compiled a in 0.4 s\n", "compiled a in 12.5 s")
    assert is_as_shown("size   1.5 KB\nx\ny\nend", "size 20 MB\n…\nend")
    assert is_as_shown("", "")
    assert not is_as_shown("compiled b in 0.4 s", "compiled a in 0.4 s")
    assert not is_as_shown("a\nb", "a")
    assert not is_as_shown("", "a")
