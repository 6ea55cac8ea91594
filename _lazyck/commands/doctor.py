"""`lazyck doctor`: shows what this machine has to build with."""

import json
import sys

import click

from _lazyck import doctor
from _lazyck.commands.options import JSON
from _lazyck.config import environment


@click.command("doctor")
@JSON
def command(as_json: bool) -> None:
    """Show which toolchains are here and for which archs, what is missing, and the command that
    installs it.

    Ends with status 0 if a library can be built here, else 1.
    """
    found = doctor.examine(environment())
    click.echo(json.dumps(doctor.to_json(found), indent=1) if as_json else doctor.render_text(found))
    sys.exit(0 if found.healthy else 1)
