"""A `build_ext` of setuptools that makes extension modules lazy: `cmdclass={"build_ext":
lazyck.setuptools.build_ext}`.

setuptools itself does the build, in another process under `lazyck build full`, whose options are in
`[tool.lazyck]` of pyproject.toml. `LAZYCK=0` builds ahead of time.
"""

import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from setuptools.command.build_ext import build_ext as _build_ext
from setuptools.errors import ExecError, OptionError

from lazyck import abi, proc
from lazyck.errors import UsageError
from lazyck.settings.environment import environment, switch

# The options that other commands set on build_ext, such as `build` and editable installations.
_TOLD = ("build_lib", "build_temp", "compiler", "debug", "force", "inplace", "parallel")
# A project without setup.py has the arguments of setup() in its pyproject.toml.
_WITHOUT_SCRIPT = ("-c", "import setuptools; setuptools.setup()")


class Lazily:
    """A mixin for a subclass of build_ext. Its `run` works in another process, under lazyck."""

    def run(self) -> None:
        """Build all extensions. Raises errors of `setuptools.errors`: `ExecError` if the build
        fails, `OptionError` for a wrong value of `LAZYCK`."""
        command: Any = self
        try:
            is_lazy = switch(environment(), abi.ENV_LAZY, default=True)
        except UsageError as e:
            raise OptionError(e.render()) from e
        if not command.extensions or not is_lazy:
            super().run()  # type: ignore[misc]
            return
        # If a front end such as pip runs setup.py, `script_name` is the name of the front end.
        scripts = (command.distribution.script_name or "", "setup.py")
        start = next(((script,) for script in scripts if Path(script).is_file()), _WITHOUT_SCRIPT)
        given = command.distribution.get_option_dict("build_ext")
        options = {name: value for name, (source, value) in given.items() if source == "command line"}
        options |= {name: getattr(command, name) for name in _TOLD}
        build = (sys.executable, *start, "build_ext", *words(options, command.boolean_options))
        # `build full` sets LAZYCK=0: in its process the class behind this mixin does the work.
        status = proc.passthrough((sys.executable, "-m", "lazyck", "build", "full", "--", *build))
        if status != 0:
            raise ExecError(f"lazyck build full ended with status {status} ({abi.ENV_LAZY}=0 builds without lazyck)")


def words(options: Mapping[str, object], flags: Collection[str]) -> list[str]:
    """Return a command's options as words. `flags` are those without a value."""
    long = {name.replace("_", "-"): value for name, value in options.items() if value}
    return [f"--{name}" if name in flags else f"--{name}={value}" for name, value in long.items()]


class build_ext(Lazily, _build_ext):  # type: ignore[misc]
    """setuptools' build_ext with lazy extension modules."""
