"""Makes wheels by hand, as a build back end packs a lazy library and its bundle, and installs
them."""

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from wheel.wheelfile import WheelFile


def make_wheel(
    dist: Path,
    directory: Path,
    files: Iterable[Path],
    version: str,
    *,
    into: str = "vectors",
    tag: str = "py3-none-any",
) -> Path:
    """Make a wheel of the distribution `vectors` whose package has `files`, at their places below
    `directory`."""
    dist.mkdir(parents=True, exist_ok=True)
    path = dist / f"vectors-{version}-{tag}.whl"
    path.unlink(missing_ok=True)
    with WheelFile(str(path), "w") as wheel:
        wheel.writestr("vectors/__init__.py", "")
        for file in files:
            wheel.write(str(file), f"{into}/{file.relative_to(directory)}")
        info = f"vectors-{version}.dist-info"
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: Vectors\nVersion: {version}\n")
        wheel.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n")
    return path


def pip_install(site: Path, dist: Path, *words: str) -> None:
    """Install into the directory `site` from wheels in `dist` alone. This must succeed."""
    argv = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index"]
    done = subprocess.run(
        [*argv, "--find-links", str(dist), "--target", str(site), *words], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
