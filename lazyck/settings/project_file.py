"""The project's settings for `lazyck build full`: `[tool.lazyck]` of its pyproject.toml."""

import sys
from pathlib import Path

from lazyck.errors import FormatError, UsageError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def read_project(directory: Path) -> dict[str, object]:
    """Return the table `[tool.lazyck]` of the pyproject.toml in `directory`, or an empty one.
    Directories above may be another user's. Raises `FormatError`, `UsageError`."""
    path = directory / "pyproject.toml"
    try:
        found = tomllib.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as e:
        raise FormatError(f"{path}: {e}", "lazyck looks there for [tool.lazyck]; repair the file") from e
    tool = found.get("tool", {})
    table = tool.get("lazyck", {}) if isinstance(tool, dict) else {}
    if not isinstance(table, dict):
        raise UsageError(f"{path}: tool.lazyck is not a table", "write [tool.lazyck], and options below it")
    return table
