"""The option `--quiet`, for commands that report what they do."""

import click

from _lazyck import abi
from _lazyck.config import setting
from _lazyck.terminal import is_quiet


def _silence(context: click.Context, _parameter: click.Parameter, is_given: bool) -> None:
    """Silence the command and the processes that it starts."""
    if is_given and not is_quiet():
        context.with_resource(setting(abi.ENV_LOG, "warn"))


QUIET = click.option(
    "-q", "--quiet", is_flag=True, expose_value=False, callback=_silence, help="Print only warnings and errors."
)
