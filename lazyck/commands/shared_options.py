"""Options that several commands share."""

from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any, TypeVar

import click

from lazyck import abi
from lazyck.settings.environment import setting
from lazyck.terminal import is_quiet

F = TypeVar("F", bound=Callable[..., Any])

ANY = click.Path(path_type=Path)
FILE = click.Path(dir_okay=False, path_type=Path)
THERE = click.Path(exists=True, dir_okay=False, path_type=Path)
DIRECTORY = click.Path(file_okay=False, path_type=Path)


def _silence(context: click.Context, _parameter: click.Parameter, is_given: bool) -> None:
    """Silence the command and the processes that it starts."""
    if is_given and not is_quiet():
        context.with_resource(setting(abi.ENV_LOG, "warn"))


QUIET = click.option(
    "-q", "--quiet", is_flag=True, expose_value=False, callback=_silence, help="Print only warnings and errors."
)
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def jobs_option(what: str = "Parallel compiles.", where: str = "") -> Callable[[F], F]:
    """Return the option for how many compiles run at a time."""
    default = f"[default: LAZYCK_JOBS, else the number of cores{where}]"
    return click.option("--jobs", type=click.IntRange(min=1), help=f"{what} {default}")


def files_option(name: str, parameter: str, metavar: str, what: str, *, required: bool = False) -> Callable[[F], F]:
    """Return an option for a file, which can be given several times."""
    text = f"{what}; repeatable."
    return click.option(name, parameter, type=ANY, multiple=True, required=required, metavar=metavar, help=text)


def archs_option(what: str = "Archs.") -> Callable[[F], F]:
    """Return the option for the archs of a library's entries."""
    default = "[default: LAZYCK_ARCHS, else the build's]"
    return click.option("--gpu-archs", "--arch", default="", metavar="LIST", help=f"{what} {default}")


def together(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Return a decorator that adds several options, in this order."""
    return lambda command: reduce(lambda made, option: option(made), reversed(options), command)
