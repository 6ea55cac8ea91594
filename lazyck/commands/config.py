"""`lazyck config`: shows the settings in effect, and where they come from."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from lazyck import abi
from lazyck.commands.shared_options import JSON
from lazyck.errors import LazyckError, UsageError
from lazyck.remote.tiers import parse_tiers
from lazyck.settings.environment import cache_dir, own_environment
from lazyck.settings.user_file import UserFile, read_user_file
from lazyck.settings.variables import BY_NAME, VARIABLES, Variable, unknown_variables
from lazyck.visible import visible, without_secrets

_ENVIRONMENT = "environment"
_DEFAULT = "default"


@dataclass(frozen=True)
class Setting:
    """One variable: its value as it may be shown, where the value comes from, and what is wrong
    with it. `problem` is an empty string if nothing is."""

    name: str
    value: str
    source: str
    problem: str


@dataclass(frozen=True)
class Configuration:
    """All variables. `problems` are those of the user's file as a whole."""

    settings: tuple[Setting, ...]
    user_file: Path | None
    problems: tuple[str, ...]

    @property
    def is_good(self) -> bool:
        """Whether no setting and no file has a problem."""
        return not self.problems and not any(s.problem for s in self.settings)


@click.command("config")
@JSON
def command(as_json: bool) -> None:
    """Print every LAZYCK_ variable with its value, and whether that comes from the environment or
    the user's file, or is the default.

    Ends with status 1 if a value is invalid, or a variable is not one of lazyck's.
    """
    found = examine(own_environment())
    click.echo(json.dumps(to_json(found), indent=1) if as_json else render(found))
    sys.exit(0 if found.is_good else 1)


def examine(env: Mapping[str, str]) -> Configuration:
    """Return the settings of a process with the environment `env`, and with its user's file."""
    file = read_user_file(env)
    settings = [_setting(variable, env, file) for variable in VARIABLES]
    for source, names in ((_ENVIRONMENT, env), (str(file.path), file.values)):
        for name, problem in unknown_variables(names).items():
            settings.append(Setting(name, "", source, problem))
    return Configuration(tuple(settings), file.path, file.problems)


def _setting(variable: Variable, env: Mapping[str, str], file: UserFile) -> Setting:
    name = variable.name
    source = _ENVIRONMENT if name in env else f"{file.path}:{file.lines[name]}" if name in file.values else ""
    value = env.get(name, file.values.get(name, ""))
    if not value:
        default, problem = _default_cache(file, env) if name == abi.ENV_CACHE_DIR else ("", "")
        return Setting(name, default or variable.default, source or _DEFAULT, problem)
    problem = variable.problem(value)
    if name == abi.ENV_REMOTE:
        try:
            value = ",".join(tier.label for tier in parse_tiers(value))
        except LazyckError as e:
            value, problem = "", e.message
    return Setting(name, without_secrets(value), source, problem)


def _default_cache(file: UserFile, env: Mapping[str, str]) -> tuple[str, str]:
    """Return the place of the cache that no variable names, and what is wrong with that place."""
    every = {**file.values, **env}
    if BY_NAME[abi.ENV_NAME].problem(every.get(abi.ENV_NAME, "")):
        return "", ""  # that variable's own setting says so
    try:
        return str(cache_dir(every) or ""), ""
    except UsageError as e:
        return "", e.message


def to_json(found: Configuration) -> dict[str, object]:
    return asdict(found) | {"user_file": str(found.user_file or "")}


def render(found: Configuration) -> str:
    """Return a table for people: first what is set, then the defaults."""
    given = [s for s in found.settings if s.source != _DEFAULT]
    rest = [s for s in found.settings if s.source == _DEFAULT]
    lines = _table(given) + ["", "defaults:"] * bool(given) + _table(rest)
    lines += ["", f"the user's file: {found.user_file or 'none, since neither HOME nor XDG_CONFIG_HOME says where'}"]
    return "\n".join([*lines, *(f"  {visible(p)}" for p in found.problems)])


def _table(settings: Sequence[Setting]) -> list[str]:
    names = max((len(s.name) for s in settings), default=0)
    values = min(40, max((len(visible(s.value)) for s in settings), default=0))
    lines = []
    for s in settings:
        source = "" if s.source == _DEFAULT else s.source
        lines.append(f"{s.name:<{names}}  {visible(s.value):<{values}}  {visible(source)}".rstrip())
        lines += [f"  wrong: {s.problem}"] if s.problem else []
    return lines
