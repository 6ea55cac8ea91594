"""Makes compilers that log their calls, so that tests can count compiles rather than measure
seconds."""

import os
import shutil
from pathlib import Path


class CountingCompiler:
    """The compiler `at`/bin/NAME, which runs g++ and logs each call."""

    def __init__(self, at: Path, name: str = "c++") -> None:
        self.path, self._log = at / "bin" / name, at / "compiles.log"
        if not self.path.exists():
            self.path.parent.mkdir()
            self.release()
        self._log.write_text("")

    def release(self, remark: str = "") -> None:
        """Install the compiler. Another `remark` makes it another compiler."""
        real = shutil.which("g++") or "g++"
        self.path.write_text(f'#!/bin/sh\n# {remark}\necho "$*" >> {self._log}\nexec {real} "$@"\n')
        self.path.chmod(0o755)

    def compiles(self, name: str = "") -> int:
        """Return the number of compiles since this object was made: of the source called `name`, or
        of all. What only asks how one would be made (`-###`) is none."""
        lines = [f" {line} " for line in self._log.read_text().splitlines() if " -### " not in line]
        return sum(" -c " in line and (not name or f"/{name}.cpp " in line) for line in lines)

    def forget(self) -> None:
        self._log.write_text("")


class CountingProgram:
    """A wrapper of the program NAME in a directory of its own below `at`.

    It logs each call and runs the program that PATH has. In the environment `env`, the wrapper is
    found first.
    """

    def __init__(self, at: Path, name: str) -> None:
        directory, self._log = at / "counting", at / f"{name}.log"
        directory.mkdir()
        (directory / name).write_text(f'#!/bin/sh\necho called >> {self._log}\nexec {shutil.which(name)} "$@"\n')
        (directory / name).chmod(0o755)
        self.env = {"PATH": f"{directory}:{os.environ['PATH']}"}

    def calls(self) -> int:
        return self._log.read_text().count("called\n") if self._log.exists() else 0
