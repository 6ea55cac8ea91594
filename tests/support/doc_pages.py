"""Reads the code blocks of the documents and runs those with commands. docs/contributing.md has the
rules."""

import contextlib
import os
import platform
import re
import shlex
import signal
import socket
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from markdown_it import MarkdownIt

from lazyck.cli import cli
from support import REPOSITORY

PAGES = {str(p.relative_to(REPOSITORY)): p for p in (REPOSITORY / "README.md", *(REPOSITORY / "docs").rglob("*.md"))}
COMMANDS = ("console", "sh")
OTHERS = ("text", "c", "cpp", "python", "make", "cmake", "meson", "dockerfile", "yaml", "toml", "html")
STARTS = ("an empty home", "the tutorial")
WHY_NOT = (
    "needs a GPU",
    "needs a HIP compiler",
    "needs docker",
    "needs Slurm",
    "needs Kubernetes",
    "needs the network",
    "needs a server of its own",
    "needs a project of yours",
    "needs a chroot of another distribution",
    "takes minutes",
    "is the test suite",
)
_NOTE = re.compile(r"<!-- (not run|starts from): (.*?) -->")
_FIGURE = r"\d[\d.]* (?:s|ms|m|B|KB|MB)(?: \d+ s)?"
PORT = "38786"  # the port of the one server that a page starts
_STEP = "\x1elazyck-step "


@dataclass(frozen=True)
class Block:
    """A code block.

    `title` is the file that the block is for, and `why_not` the reason why it is not run. Either is
    an empty string if there is none.
    """

    page: str
    line: int
    language: str
    title: str
    why_not: str
    text: str

    @property
    def is_run(self) -> bool:
        is_script = bool(self.title) and self.language in COMMANDS  # another block of the page runs it
        return self.language in (*COMMANDS, "yaml", "dockerfile") and not is_script and not self.why_not

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True)
class Page:
    """A document: its blocks, the texts between single backticks, and the state that its commands
    start from."""

    name: str
    blocks: tuple[Block, ...]
    spans: tuple[str, ...]
    starts_from: str


@dataclass(frozen=True)
class Step:
    """A command, or a block of commands, and its expected output. None means that any output will
    do."""

    block: Block
    command: str
    expected: str | None


def read_page(name: str) -> Page:
    """Read a document by the rules of CommonMark."""
    blocks, spans, start, why_not = [], [], "", ""
    for token in MarkdownIt("commonmark").enable("table").parse(PAGES[name].read_text()):
        if token.type == "html_block" and (note := _NOTE.search(token.content)):
            if note[1] == "not run":
                why_not = note[2]
            else:
                start = note[2]
        elif token.type in ("fence", "code_block"):
            info = token.info if token.type == "fence" else "indented"
            title = re.search(r'title="([^"]*)"', info)
            line = (token.map or [0])[0] + 1
            blocks.append(
                Block(name, line, (info.split() or [""])[0], title[1] if title else "", why_not, token.content)
            )
            why_not = ""
        elif why_not:
            raise AssertionError(f"{name}: `not run: {why_not}` stands before something else than a code block")
        spans += [child.content for child in token.children or () if child.type == "code_inline"]
    return Page(name, tuple(blocks), tuple(spans), start)


# -- running ---------------------------------------------------------------------------------------


def steps_of(block: Block) -> list[Step]:
    """Split a block into steps.

    A session has one step per command, with the lines below the command as its output. A YAML file
    has one step per `run` line. Any other block is one step.
    """
    if block.language == "sh":
        return [Step(block, block.text, None)]
    if block.language == "yaml":
        return [Step(block, f"( {line} )", None) for line in lines_of(block)]
    if block.language == "dockerfile":
        return [Step(block, stages(block), None)]
    steps: list[tuple[list[str], list[str]]] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            steps.append(([line[2:]], []))
        elif steps and not steps[-1][1] and steps[-1][0][-1].endswith("\\"):
            steps[-1][0].append(line)
        else:
            assert steps, f"{block}: a session begins with `$ `"
            steps[-1][1].append(line)
    return [Step(block, "\n".join(command), "\n".join(output)) for command, output in steps]


def stages(block: Block) -> str:
    """Translate a Dockerfile into a shell script.

    `~` is the build's context. Each stage is a directory `~/stages/<name>` that stands for `/`.
    Commands that install packages are left out: each stage has the lazyck of `~/lazyck-env`.
    """
    script, stage = ["("], ""
    for line in block.text.replace("\\\n", " ").splitlines():
        word, _, rest = line.partition(" ")
        here = f"$HOME/stages/{stage}"
        words = rest.split()
        if word == "FROM":
            stage = words[2] if "AS" in words else "last"
            script.append(f"mkdir -p ~/stages/{stage}/opt && ln -s ~/lazyck-env ~/stages/{stage}/opt/lazyck")
        elif word == "COPY":
            of, *paths = words if words[0].startswith("--from=") else ("", *words)
            source = f"$HOME/stages/{of.removeprefix('--from=')}{paths[0]}" if of else f"$HOME/{paths[0]}"
            script.append(f'mkdir -p "$(dirname {here}{paths[1]})" && cp -r {source} {here}{paths[1]}')
        elif word == "WORKDIR":
            script.append(f"cd {here}{rest}")
        elif word == "ENV":
            script.append(f"export {rest}")
        elif word == "RUN" and not re.search(r"apt-get|-m venv", rest):
            script.append(re.sub(r"(?<![\w.])/(?=opt/|src/)", f"{here}/", rest))
        else:
            assert word in ("RUN", ""), f"{block}: {line}"
    return "\n".join([*script, ")"])


def script_of(page: Page, stage: Path, seen_as: Path) -> tuple[str, list[Step]]:
    """Return a bash script that runs the commands of a page in order, and its steps.

    The script first creates the files that the page shows. They are written into `stage`, which the
    shell sees as `seen_as`. `outputs_of` reads the script's output.
    """
    script = ["exec 2>&1", f"step() {{ printf '\\n{_STEP}%s\\n' \"$1\"; }}", "set -e"]
    steps: list[Step] = []
    stage.mkdir(exist_ok=True)
    for block in page.blocks:
        if block.title and not block.why_not:
            shown = f"{page.name.replace('/', '_')}.{block.line}"
            (stage / shown).write_text(block.text)
            script.append(f"cp {shlex.quote(str(seen_as / shown))} {shlex.quote(block.title)}")
        for step in steps_of(block) if block.is_run else ():
            script += [f"step {len(steps)}", step.command.rstrip("\n")]
            steps.append(step)
    script.append(f"step {len(steps)}")
    return "\n".join(script).replace(PORT, free_port()), steps


def outputs_of(stdout: str) -> list[str]:
    """Return the output of each step that was begun, and one more part if all steps were done."""
    return [part.partition("\n")[2] for part in stdout.split(f"\n{_STEP}")[1:]]


def run_page(page: Page, home: Path, env: dict[str, str]) -> list[str]:
    """Run the commands of a page in order, in one shell. Return a description of each problem."""
    stage = home.parent / "shown"
    script, steps = script_of(page, stage, stage)
    status, stdout = run_shell(script, home, env)
    outputs = outputs_of(stdout)
    problems = [
        f"{step.block}: $ {step.command}\nprinted\n{text}\nnot\n{step.expected}"
        for step, text in zip(steps, outputs, strict=False)
        if step.expected is not None and not is_as_shown(text.replace(str(home), "~"), step.expected)
    ]
    if len(outputs) != len(steps) + 1:
        failed = steps[len(outputs) - 1] if outputs else None
        where = f"{failed.block}: {failed.command}" if failed else page.name
        problems.append(f"{where}\nended with status {status}:\n{stdout[-3000:]}")
    return problems


def run_shell(script: str, home: Path, env: dict[str, str]) -> tuple[int, str]:
    """Run a script and return its status and output. Its background processes are killed at its
    end."""
    shell = subprocess.Popen(
        ["bash", "-c", script], cwd=home, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        stdout, _ = shell.communicate(timeout=600)
        return shell.returncode, stdout
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)


def free_port() -> str:
    """Return a free port for a page's server. The port that the page names may be in use by another
    test run."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return str(listening.getsockname()[1])


def is_as_shown(printed: str, shown: str) -> bool:
    """Return whether a command printed what a page shows.

    `…` stands for any text, and a line of only `…` for any number of lines. Times and sizes, their
    columns, and the machine's name may differ.
    """
    pattern = ""
    for line in shown.strip().splitlines():
        if line.strip() == "…":
            pattern += r"(?:.*\n)*?"
            continue
        line = re.sub(r"\d[\d.]* (?:s|ms|B|KB|MB)\b", "\0", line)
        words = [re.escape(w).replace("\0", _FIGURE).replace("…", ".*") for w in line.split(" ") if w]
        pattern += " *" + " +".join(words) + " *\n"
    text = printed.strip().replace(platform.machine(), "x86_64")
    return re.fullmatch(pattern, f"{text}\n" if text else "") is not None


# -- reading commands without running them ---------------------------------------------------------


def lines_of(block: Block) -> list[str]:
    """Return the shell lines of a block, with continued lines joined."""
    text = block.text.replace("\\\n", " ")
    if block.language == "console":
        return [line[2:] for line in text.splitlines() if line.startswith("$ ")]
    if block.language == "dockerfile":
        return [line.removeprefix("RUN ") for line in text.splitlines() if line.startswith("RUN ")]
    if block.language == "yaml":
        return [line.split("run: ", 1)[1] for line in text.splitlines() if line.strip().startswith("- run: ")]
    return text.splitlines() if block.language == "sh" else []


def commands_of(line: str) -> list[list[str]]:
    """Return the commands of a shell line, each as a list of words. Leading assignments and
    redirections are left out."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|()")
    lexer.whitespace_split = True
    found: list[list[str]] = [[]]
    for word in lexer:
        if re.fullmatch(r"\d?>>?", word):
            next(lexer)
        elif word and set(word) <= set(";&|()"):
            found.append([])
        elif found[-1] or not re.match(r"\w+=", word):
            found[-1].append(word)
    return [words for words in found if words]


def check_command(words: Sequence[str]) -> None:
    """Parse a command line with lazyck's own parser, without running it. Raises `click.UsageError`.

    Files that options name need not exist. A shell variable may stand for a number.
    """
    words = [re.sub(r"\$\{?\w+\}?", "1", word) for word in words]
    context = cli.make_context("lazyck", words)
    while isinstance(context.command, click.Group):
        name, command, rest = context.command.resolve_command(context, [*context._protected_args, *context.args])
        assert command is not None
        try:
            context = command.make_context(name, rest, parent=context)
        except click.BadParameter as e:
            if isinstance(e.param, click.Parameter) and "does not exist" in e.message:
                return
            raise
