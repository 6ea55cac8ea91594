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

from lazyck import __version__, abi, terminal
from lazyck.errors import LazyckError, of_unexpected
from lazyck.settings.environment import environment, environment_problems

PACKAGE = Path(__file__).parent
CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


def dir_option(name: str, directory: Path, what: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return an option that prints a directory and exits."""

    def show(context: click.Context, _parameter: click.Parameter, is_given: bool) -> None:
        if is_given and not context.resilient_parsing:
            click.echo(str(directory))
            context.exit()

    text = f"Print the directory of {what}, and exit."
    return click.option(name, is_flag=True, is_eager=True, expose_value=False, callback=show, help=text)


# Each has a module of its name in lazyck.commands, which defines it as `group` or `command`.
COMMANDS = (
    "build", "cache", "check", "cmake-target", "completion", "config", "doctor", "help", "inspect", "pack", "prebuild",
    "profile", "report",
)  # fmt: skip


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
        module = import_module(f"lazyck.commands.{cmd_name.replace('-', '_')}")
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
@dir_option("--include-dir", PACKAGE / "runtime" / "src", "lazyck.h, the C interface of lazy libraries")
@dir_option("--cmake-dir", PACKAGE.parent / "lazyck" / "cmake", "lazyckConfig.cmake, for CMake's find_package(lazyck)")
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
