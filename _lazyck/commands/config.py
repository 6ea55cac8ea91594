"""`lazyck config`: shows the settings in effect, and where they come from."""

import json
import sys

import click

from _lazyck import configuration
from _lazyck.commands.options import JSON
from _lazyck.config import own_environment


@click.command("config")
@JSON
def command(as_json: bool) -> None:
    """Print every LAZYCK_ variable with its value, and whether that comes from the environment or
    the user's file, or is the default.

    Ends with status 1 if a value is invalid, or a variable is not one of lazyck's.
    """
    found = configuration.examine(own_environment())
    click.echo(json.dumps(configuration.to_json(found), indent=1) if as_json else configuration.render(found))
    sys.exit(0 if found.is_good else 1)
