"""`lazyck completion`: completes lazyck's commands and options in a shell."""

from pathlib import Path

import click
from click.shell_completion import get_completion_class

from lazyck.errors import LazyckError, UsageError
from lazyck.files import write_atomic
from lazyck.settings.environment import environment

PROGRAM = "lazyck"
SHELLS = ("bash", "zsh", "fish")


def place(shell: str, env: dict[str, str]) -> Path:
    """Return where the shell looks for a user's completions by itself. zsh does so only if its
    fpath has the directory. Raises `UsageError` without a home directory."""
    home = env.get("HOME", "")
    if not home.startswith("/"):
        raise UsageError("HOME is not set", "set it, or print the script without --install and put it where you want")
    data = Path(env.get("XDG_DATA_HOME") or f"{home}/.local/share")
    config = Path(env.get("XDG_CONFIG_HOME") or f"{home}/.config")
    return {
        "bash": data / "bash-completion" / "completions" / "lazyck",
        "zsh": data / "zsh" / "site-functions" / f"_{PROGRAM}",
        "fish": config / "fish" / "completions" / "lazyck.fish",
    }[shell]


@click.command("completion")
@click.option("--install", is_flag=True, help="Write the script where the shell looks for a user's completions.")
@click.argument("shell", type=click.Choice(SHELLS), required=False)
@click.pass_context
def command(context: click.Context, install: bool, shell: str | None) -> None:
    """Print the script with which SHELL (default: the login shell) completes lazyck's commands and
    options."""
    env = environment()
    name = shell or Path(env.get("SHELL", "")).name
    if name not in SHELLS:
        raise UsageError(f"no completion for {name or 'an unknown shell'!r}", f"name one of: {', '.join(SHELLS)}")
    kind = get_completion_class(name)
    assert kind is not None
    try:
        text = kind(context.find_root().command, {}, "lazyck", "_LAZYCK_COMPLETE").source()
    except RuntimeError as e:  # such as bash before 4.4
        raise LazyckError(f"no completion for {name}: {e}", "use a newer one, or another shell") from e
    if not install:
        click.echo(text.rstrip("\n"))
        return
    file = place(name, env)
    write_atomic(file, text.encode())
    click.echo(f"lazyck: wrote {file}; each new {name} will load it")
    if name == "zsh":
        click.echo(f"lazyck: add to ~/.zshrc, before compinit: fpath=({file.parent} $fpath)")
