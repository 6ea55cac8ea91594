"""Fetch the sources of projects and keep them: Debian's source packages with apt, PyPI's archives
by their checksum."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from support import REPOSITORY

from world.project import Debian, Project, PyPI

ETC_APT = Path("/etc/apt")


class Unavailable(Exception):
    """Says that the sources are not available here, or what the build needs and lacks."""


@dataclass(frozen=True)
class Unpacked:
    """Describes a project's sources: their directory and their version."""

    directory: Path
    version: str


def unpacked(project: Project, world: Path) -> Unpacked:
    """Return the sources below `world`. Fetch them if they are missing. Raises `Unavailable`."""
    place = world / "sources" / project.name
    stamp = place / "version.json"
    if stamp.is_file():
        version, directory = json.loads(stamp.read_text())
        return Unpacked(place / directory, version)
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    if isinstance(project.source, Debian):
        found = _from_debian(project.source, place, world / "apt")
    else:
        found = _from_pypi(project.source, place)
    stamp.write_text(json.dumps([found.version, found.directory.name]))
    return found


def missing_packages(project: Project) -> list[str]:
    """Return the Debian packages that the project's build needs and this machine lacks."""
    return [name for name in project.packages if not _is_installed(name)]


def install(packages: Sequence[str]) -> None:
    """Install Debian packages. If this user may not, raises `Unavailable` with the line to run."""
    line = ["apt-get", "install", "-y", "--no-install-recommends", *packages]
    if os.geteuid() != 0:
        raise Unavailable(f"as root: {' '.join(line)}")
    done = subprocess.run(
        line, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"}, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise Unavailable(f"`{' '.join(line)}` fails: {_last_line(done.stderr)}")


def _is_installed(package: str) -> bool:
    argv = ["dpkg-query", "-W", "-f", "${Status}", package]
    return "install ok installed" in subprocess.run(argv, capture_output=True, text=True, check=False).stdout


def _from_debian(source: Debian, place: Path, state: Path) -> Unpacked:
    for tool in ("apt-get", "dpkg-source"):
        if not shutil.which(tool):
            raise Unavailable(f"no {tool} (Debian: dpkg-dev)")
    with tempfile.TemporaryDirectory() as private:
        env = _private_apt(Path(private), state)
        _apt(env, place, "apt-get", "update", "-q")
        shown = _apt(env, place, "apt-cache", "showsrc", "--only-source", source.package)
        versions = re.findall(r"^Version: (.+)$", shown, re.MULTILINE)
        if not versions:
            raise Unavailable(f"the distribution has no source package {source.package}")
        # The newest version comes first. A version that the mirror has replaced may still be
        # listed.
        trouble = ""
        for version in [*dict.fromkeys(reversed(versions)), *dict.fromkeys(versions)]:
            try:
                _apt(env, place, "apt-get", "source", "-q", f"{source.package}={version}")
            except Unavailable as e:
                trouble = str(e)
                continue
            directories = [path for path in place.iterdir() if path.is_dir()]
            return Unpacked(directories[0], version)
        raise Unavailable(trouble)


def _private_apt(private: Path, state: Path) -> dict[str, str]:
    """Return an environment in which apt uses the machine's own mirrors for sources only. apt
    changes nothing on the machine, because its lists lie below `state`."""
    parts = private / "parts"
    parts.mkdir()
    for directory in (state / "lists" / "partial", state / "cache" / "archives" / "partial"):
        directory.mkdir(parents=True, exist_ok=True)
    lists = [ETC_APT / "sources.list", *sorted((ETC_APT / "sources.list.d").glob("*.list"))]
    lines = [line for path in lists if path.is_file() for line in path.read_text().splitlines()]
    sources = dict.fromkeys(re.sub(r"^deb(-src)?\s", "deb-src ", line) for line in lines if line.startswith("deb"))
    (parts / "own.list").write_text("".join(f"{line}\n" for line in sources))
    for path in sorted((ETC_APT / "sources.list.d").glob("*.sources")):
        text = re.sub(r"(?im)^Types:.*$", "Types: deb-src", path.read_text())
        (parts / path.name).write_text(text)
    config = private / "apt.conf"
    # The sandbox's user could not write here.
    config.write_text(
        f'Dir::Etc::sourcelist "/dev/null";\nDir::Etc::sourceparts "{parts}";\nDir::State::lists "{state}/lists";\n'
        f'Dir::Cache "{state}/cache";\nAPT::Sandbox::User "root";\nAcquire::Retries "2";\n'
    )
    return {**os.environ, "APT_CONFIG": str(config), "LC_ALL": "C"}


def _apt(env: Mapping[str, str], cwd: Path, *argv: str) -> str:
    done = subprocess.run(argv, env=env, cwd=cwd, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode != 0:
        raise Unavailable(f"`{' '.join(argv)}` fails: {_last_line(done.stderr)}")
    return done.stdout


def _last_line(text: str) -> str:
    return next((line for line in reversed(text.splitlines()) if line.strip()), "it says nothing")


def _from_pypi(source: PyPI, place: Path) -> Unpacked:
    """Fetch the archive as the examples do, because pip would run the project's setup."""
    script = (
        "import sys; from pathlib import Path; from sources import Source, fetch; "
        "print(fetch(Source(*sys.argv[1:4]), Path(sys.argv[4])))"
    )
    argv = [sys.executable, "-c", script, source.requirement, source.archive, source.sha256, str(place)]
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY / "examples")}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Unavailable(f"{source.requirement}: {_last_line(done.stderr)}")
    return Unpacked(Path(done.stdout.splitlines()[-1]), source.requirement.partition("==")[2])
