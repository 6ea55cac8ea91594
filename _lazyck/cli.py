"""The `lazyck` command: parses the command line, calls one function, prints the result."""

import difflib
import signal
import sys
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import NoReturn

import click

from _lazyck import __version__, abi, terminal
from _lazyck.config import environment, environment_problems
from _lazyck.errors import LazyckError, of_unexpected

PACKAGE = Path(__file__).parent
CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


def print_dir(directory: Path) -> Callable[[click.Context, click.Parameter, bool], None]:
    """Return the callback of an option that prints a directory and exits."""

    def show(context: click.Context, _parameter: click.Parameter, is_given: bool) -> None:
        if is_given and not context.resilient_parsing:
            click.echo(str(directory))
            context.exit()

    return show


# Each command and its module in _lazyck.commands, which defines it as `group` or `command`.
COMMANDS = {
    "build": "build",
    "cache": "cache",
    "check": "check",
    "cmake-target": "cmake_target",
    "completion": "completion",
    "config": "config",
    "doctor": "doctor",
    "help": "help",
    "inspect": "inspect",
    "pack": "pack",
    "prebuild": "prebuild",
    "profile": "profile",
    "report": "report",
}


class LazyGroup(click.Group):
    """A group that imports the module of a command only when that command is asked for, since each
    command needs only a part of lazyck. The technique is from click's own documentation."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of that name, or None."""
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"_lazyck.commands.{COMMANDS[cmd_name]}")
        found = getattr(module, "group", None) or module.command
        assert isinstance(found, click.Command)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the words begin with. The error for a misspelt command names the
        nearest one."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as e:
            if near := difflib.get_close_matches(args[0], COMMANDS, n=1):
                raise click.UsageError(f"{e.format_message()} Did you mean '{near[0]}'?", ctx) from e
            raise


@click.group(cls=LazyGroup, context_settings=CONTEXT)
@click.version_option(__version__, prog_name="lazyck")
@click.option(
    "--include-dir",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=print_dir(PACKAGE / "runtime" / "src"),
    help="Print the directory of lazyck.h, the C interface of lazy libraries, and exit.",
)
@click.option(
    "--cmake-dir",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=print_dir(PACKAGE.parent / "lazyck" / "cmake"),
    help="Print the directory of lazyckConfig.cmake, for CMake's find_package(lazyck), and exit.",
)
@click.pass_context
def cli(context: click.Context) -> None:
    """Build GPU kernel libraries lazily: each generated kernel is compiled on its first call."""
    if context.invoked_subcommand != "config":  # `config` says more about these problems
        for problem in environment_problems():
            terminal.warn(problem)


def main() -> NoReturn:
    """Run the command line. Only this function turns an error into an exit status."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if it is ignored, Python takes every status for 0
    try:
        cli.main(prog_name="lazyck", standalone_mode=False)
        sys.exit(0)
    except LazyckError as e:
        terminal.tell_error(e.render())
        sys.exit(e.exit_code)
    except click.UsageError as e:
        e.show()
        sys.exit(2)
    except click.ClickException as e:
        e.show()
        sys.exit(e.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.stderr.write("lazyck: interrupted\n")
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
    except Exception as e:  # no traceback reaches a user who did not ask for it
        if environment().get(abi.ENV_LOG) == "debug":
            traceback.print_exc()
        terminal.tell_error(of_unexpected(e).render())
        sys.exit(1)
