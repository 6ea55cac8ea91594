"""The options of `lazyck build full`, as `options.json` in the tmp dir: for the post-build
steps, which a shim starts inside the build, and for `quick`."""

import fnmatch
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from lazyck import abi
from lazyck.errors import FormatError
from lazyck.files import write_if_different

OPTIONS_VERSION = 1
_NAME = "options.json"


@dataclass(frozen=True)
class BuildOptions:
    """The options of one `lazyck build full`. Paths are absolute. An empty string means not given.

    `kernels` are the globs of --kernels. `blobs` are those of --blobs, which take precedence.
    `archs` are those of --gpu-archs. `env_archs` holds, for each toolchain, the archs in GPU_ARCHS
    and its kin, for blobs whose commands name none.

    `homes` maps a toolchain to its real home, and `shim_homes` maps the home of a shim to the real
    one that it mirrors. `composed` maps a home that lazyck made for the build to the real one that
    recipes name.

    With `beside`, the build has the bundle beside each library, as an install dir has. With
    `says_links`, each link reports what it did, since there is no summary at the end. Users write
    the paths of sources relative to `project_dir`. `path` is the PATH of the user.
    """

    tmp_dir: str
    install_dir: str = ""
    name: str = abi.DEFAULT_CACHE_NAME
    root: str = ""
    archs: tuple[str, ...] = ()
    blobs: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()
    env_archs: tuple[tuple[str, tuple[str, ...]], ...] = ()
    jobs: int = 1
    verbose: bool = False
    homes: tuple[tuple[str, str], ...] = ()
    shim_homes: tuple[tuple[str, str], ...] = ()
    composed: tuple[tuple[str, str], ...] = ()
    beside: bool = False
    says_links: bool = False
    project_dir: str = ""
    path: str = ""
    version: int = OPTIONS_VERSION

    @property
    def tmp(self) -> Path:
        return Path(self.tmp_dir)

    @property
    def origins(self) -> dict[str, str]:
        """Maps the homes that builds see to the real ones that recipes name."""
        composed = dict(self.composed)
        return {shim: composed.get(home, home) for shim, home in self.shim_homes} | composed

    def grade_of(self, source: str) -> str:
        """Return "kernels" for a source whose host code is compiled with the build, else "blob"."""
        if not self.kernels:
            return "blob"
        paths = (source, os.path.realpath(source))

        def match(globs: Sequence[str]) -> bool:
            return any(fnmatch.fnmatchcase(path, glob) for path in paths for glob in globs)

        return "kernels" if match(self.kernels) and not match(self.blobs) else "blob"

    def home(self, toolchain: str) -> str:
        """Return the real home of `toolchain`, or an empty string if it has none."""
        return dict(self.homes).get(toolchain, "")


def save_options(options: BuildOptions) -> None:
    write_if_different(options.tmp / _NAME, json.dumps(asdict(options), indent=1).encode())


def load_options(tmp: Path) -> BuildOptions:
    """Read the options in a tmp dir, which may have been moved since. Raises `FormatError`."""
    path = tmp / _NAME
    try:
        raw = json.loads(path.read_text())
        if raw.get("version") != OPTIONS_VERSION:
            raise FormatError(
                f"{path}: written by another lazyck (version {raw.get('version')})", "run `lazyck build full` again"
            )
        for key in ("homes", "shim_homes", "composed"):
            raw[key] = tuple((a, b) for a, b in raw.get(key, ()))
        for key in ("archs", "blobs", "kernels"):
            raw[key] = tuple(raw.get(key, ()))
        raw["env_archs"] = tuple((name, tuple(archs)) for name, archs in raw["env_archs"])
        return replace(BuildOptions(**raw), tmp_dir=str(tmp))
    except FileNotFoundError as e:
        raise FormatError(
            f"{tmp}: not a tmp dir of lazyck (no {path.name})", "give the --tmp-dir of a `lazyck build full`"
        ) from e
    except (ValueError, TypeError, KeyError) as e:
        raise FormatError(f"{path}: damaged ({e})", "run `lazyck build full` again") from e
