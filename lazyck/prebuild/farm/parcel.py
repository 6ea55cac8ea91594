"""Pack a bundle for the workers into one file. Equal contents give equal bytes, and the file's
SHA-256 is its name.

    lazyck/<library>/...                           the bundle, as it lies there

It is a tar, compressed by zlib. A worker unpacks it once for all runs, below its own directory of
tools.
"""

import os
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath

from filelock import FileLock

from lazyck import abi
from lazyck.errors import BuildError, FormatError
from lazyck.files import private_directory, write_atomic
from lazyck.formats.manifest import Manifest, encode
from lazyck.formats.tarball import write_tarball
from lazyck.remote.payload import opened
from lazyck.settings.environment import tools_dir

BUNDLE = "lazyck"
_DIRECTORY = "farm"
_HINT = "install the library again, with its directory `lazyck`; LAZYCK_ROOT names another one"


def parcel_files(manifest_file: Path, manifest: Manifest, env: Mapping[str, str]) -> dict[str, Path]:
    """Map the places of files that a library's compiles read to the files. Raises `BuildError`."""
    given = manifest_file.absolute()
    is_library = given.name != "manifest"
    beside = given.parent if is_library else given.parent.parent.parent
    roots = [Path(env[abi.ENV_ROOT])] if env.get(abi.ENV_ROOT) else [beside / BUNDLE]
    if not env.get(abi.ENV_ROOT):
        roots += [beside / manifest.root] if manifest.root else []
    root = next((r for r in roots if (r / manifest.library).is_dir()), None)
    sources = {b.source for b in manifest.blobs}
    outside = sorted(s for s in sources if s.startswith("/") or ".." in s.split("/"))
    if outside:
        raise BuildError(f"{outside[0]} is not in the library's bundle: workers cannot get it", _HINT)
    if root is None:
        raise BuildError(f"{given}: its bundle is not at {' or '.join(str(r) for r in roots)}", _HINT)
    bundle = root / manifest.library
    found = (p for p in sorted(bundle.rglob("*")) if p.is_file() and p.relative_to(bundle).parts[0] != abi.BUNDLE_CACHE)
    files = {f"{BUNDLE}/{p.relative_to(root).as_posix()}": p for p in found}
    if not (bundle / abi.BUNDLE_ARCHIVE).is_file():
        files |= {f"{BUNDLE}/{s}": root / s for s in sources}
    return files


def pack(target: Path, files: Mapping[str, Path], manifest: Manifest) -> None:
    """Write the parcel. Raises `BuildError`."""
    own = f"{BUNDLE}/{manifest.library}/manifest"
    members: dict[str, Path | bytes] = {**files, own: encode(manifest)}
    try:
        with target.open("wb") as out:
            write_tarball(out, sorted(members.items()))
    except OSError as e:
        raise BuildError(f"{e.filename}: {e.strerror}", _HINT) from e


def unpacked(digest: str, library: str, fetch: Callable[[Path], bool], env: Mapping[str, str]) -> Path:
    """Return the manifest of the unpacked parcel, which is fetched if this user of this host does
    not have it.

    `fetch` writes the file and returns whether there is one. Raises `BuildError` and `FormatError`.
    """
    home = private_directory(private_directory(tools_dir(env)) / _DIRECTORY)
    place = home / digest
    manifest_file = place / BUNDLE / library / "manifest"
    if manifest_file.is_file():
        return manifest_file
    with FileLock(home / f".{digest}.lock"):
        if manifest_file.is_file():
            return manifest_file
        with tempfile.TemporaryDirectory(dir=home, prefix=".new-") as name:
            parcel = Path(name) / "parcel"
            if not fetch(parcel):
                raise BuildError(
                    f"the bundle {digest} is not in the remote cache", "do all workers use the same remote cache?"
                )
            with opened(parcel) as contents:
                is_right = contents.sha256 == digest
            if not is_right:
                raise FormatError("the bundle that arrived is not the one that was sent", "run the same command again")
            unpack(parcel, Path(name) / "tree")
            shutil.rmtree(place, ignore_errors=True)
            (Path(name) / "tree").rename(place)
    return manifest_file


def unpack(parcel: Path, directory: Path) -> None:
    """Unpack plain files with plain names, and refuse anything else. Raises `FormatError`."""
    with tarfile.open(parcel, "r:gz") as tar:
        for member in tar:
            place = PurePosixPath(member.name)
            data = tar.extractfile(member) if member.isreg() else None
            if data is None or place.is_absolute() or ".." in place.parts or str(place) != os.fspath(member.name):
                raise FormatError(f"{parcel}: not a bundle: it contains {member.name!r}", "run the same command again")
            write_atomic(directory / place, data.read(), member.mode & 0o755 | 0o644)
