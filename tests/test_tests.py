"""Tests how the tests are chosen, and how they wait."""

import importlib.metadata
import json
import os
import re
import subprocess
import sys

from packaging.requirements import Requirement
from support import REPOSITORY
from support.layout import rooms, tracked

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# What the short form has something of, beside each room.
ALSO = {"fake_rocm", "faults"}

# Refuses to import what belongs to none of the packages that it is started with.
REFUSE = """
import importlib.abc, importlib.metadata, json, sys
class Refuse(importlib.abc.MetaPathFinder):
    owners = importlib.metadata.packages_distributions()
    allowed = set(json.loads(sys.argv[1]))
    def find_spec(self, name, path=None, target=None):
        owners = {o.lower().replace("_", "-") for o in self.owners.get(name.partition(".")[0], ())}
        if owners and not owners & self.allowed:
            raise ModuleNotFoundError(f"{name} belongs to {owners}", name=name)
sys.meta_path.insert(0, Refuse())
import pytest
sys.exit(pytest.main(sys.argv[2:]))
"""


def quick() -> list[str]:
    """Return the files and tests of the short form."""
    text = (REPOSITORY / "tests" / "quick.txt").read_text()
    return re.sub(r"#.*", "", text).split()


def required_by(package: Requirement) -> list[Requirement]:
    """Return what an installed package requires; of lazyck, what pyproject.toml says now."""
    if package.name == "lazyck":
        project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
        more = (text for extra in package.extras for text in project["optional-dependencies"][extra])
        return [Requirement(text) for text in (*project["dependencies"], *more)]
    try:
        found = map(Requirement, importlib.metadata.requires(package.name) or ())
        return [r for r in found if not r.marker or r.marker.evaluate({"extra": ""})]
    except importlib.metadata.PackageNotFoundError:
        return []


def brought_by(package: Requirement) -> set[str]:
    """Return the names of the packages that an installation of this one brings."""
    waiting, seen = [package], set[str]()
    while waiting:
        if (one := waiting.pop()) and str(one) not in seen:
            seen.add(str(one))
            waiting += required_by(one)
    return {normalized(Requirement(text).name) for text in seen}


def normalized(name: str) -> str:
    return name.lower().replace("_", "-")


def test_the_short_form_has_something_of_everything() -> None:
    assert rooms() | ALSO <= {name.split("/")[1] for name in quick()}
    assert len(set(quick())) == len(quick())
    for name in quick():
        file, _, function = name.partition("::")
        text = (REPOSITORY / file).read_text()
        assert not function or f"\ndef {function.partition('[')[0]}(" in text, name
        assert not function or file not in quick(), f"{name} is listed with its file, too"


def test_the_short_form_needs_no_package_but_its_own() -> None:
    names = json.dumps(sorted(brought_by(Requirement("lazyck[quick]"))))
    argv = [sys.executable, "-c", REFUSE, names, "--collect-only", "-q", *quick()]
    env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # plugins of other packages need more
    done = subprocess.run(argv, cwd=REPOSITORY, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def test_no_test_waits_for_a_time_to_pass_without_saying_why() -> None:
    unexplained = []
    for name in tracked():
        if name.startswith("tests/") and name.endswith(".py") and name != "tests/test_tests.py":
            lines = (REPOSITORY / name).read_text().splitlines()
            for before, line in zip(["", *lines], lines, strict=False):
                if "time.sleep(" in line and "#" not in line and not before.lstrip().startswith("#"):
                    unexplained.append(f"{name}: {line.strip()}")
    assert unexplained == ["tests/support/__init__.py: time.sleep(pause)"], "wait_until(), or say why not"
