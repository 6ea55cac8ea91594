"""Describe the compile of one entry as an action of the service. Its files are a Merkle tree, in
which each directory is named by the digest of its listing. Pure, but for `Inputs.read`."""

import hashlib
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lazyck import abi
from lazyck.errors import BuildError
from lazyck.formats.manifest import Manifest, encode
from lazyck.prebuild.farm.messages import OF_KEY
from lazyck.prebuild.farm.parcel import BUNDLE, parcel_files
from lazyck.prebuild.reapi.endpoint import Endpoint
from lazyck.prebuild.reapi.messages import messages
from lazyck.quantities import seconds_of
from lazyck.remote.payload import opened

TOOL = "lazyck-rt"
TOOLCHAIN = "toolchain"
# The words of a recipe are looked up here on a worker, if they have no directory of their own.
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_GRACE = 60  # seconds that an action may take besides its compile


@dataclass(frozen=True)
class Digest:
    """The service's name of a content: its SHA-256 and its size in bytes."""

    hash: str
    size: int

    @classmethod
    def of(cls, data: bytes) -> "Digest":
        return cls(hashlib.sha256(data).hexdigest(), len(data))

    @classmethod
    def read(cls, message: Any) -> "Digest":
        return cls(message.hash, message.size_bytes)

    def message(self) -> Any:
        return messages().Digest(hash=self.hash, size_bytes=self.size)


@dataclass(frozen=True)
class Input:
    """A file that an action reads: its digest, and whether it is a program."""

    digest: Digest
    is_program: bool = False


def make_tree(inputs: Mapping[str, Input | str]) -> tuple[Digest, dict[Digest, bytes]]:
    """Return the digest of the root, and the listing of each directory by its digest.

    `inputs` maps paths below the root, without `.` and `..`, to a file or the target of a link. The
    order of names in a listing is the one that the API requires, so that equal trees have equal
    digests.
    """
    root: dict[str, Any] = {}
    for path, what in inputs.items():
        *directories, name = path.split("/")
        node = root
        for part in directories:
            node = node.setdefault(part, {})
        node[name] = what
    listings: dict[Digest, bytes] = {}

    def add(node: dict[str, Any]) -> Digest:
        listing = messages().Directory()
        for name, what in sorted(node.items(), key=lambda item: item[0].encode("utf-8", "surrogateescape")):
            if isinstance(what, str):
                listing.symlinks.add(name=name, target=what)
            elif isinstance(what, Input):
                listing.files.add(name=name, digest=what.digest.message(), is_executable=what.is_program)
            else:
                listing.directories.add(name=name, digest=add(what).message())
        data: bytes = listing.SerializeToString(deterministic=True)
        listings[Digest.of(data)] = data
        return Digest.of(data)

    return add(root), listings


# Contents to upload: files on this machine, and data in memory.
Blobs = Mapping[Digest, Path | bytes]


@dataclass(frozen=True)
class Inputs:
    """The files that all actions of a library read: the root of their tree, and what to upload."""

    root: Digest
    blobs: Blobs
    manifest: str  # the path of the manifest below the root

    @classmethod
    def read(
        cls, rt: Path, manifest_file: Path, manifest: Manifest, endpoint: Endpoint, env: Mapping[str, str]
    ) -> "Inputs":
        """Return the inputs, whose files are read for their digests: the bundle, the library if
        blobs link to it, `lazyck-rt`, and the toolchain if it is one of the inputs. Raises
        `BuildError`."""
        own = f"{BUNDLE}/{manifest.library}/manifest"
        encoded = encode(manifest)
        files = {k: v for k, v in parcel_files(manifest_file, manifest, env).items() if k != own}
        inputs: dict[str, Input | str] = {own: Input(Digest.of(encoded))}
        paths: dict[Digest, Path] = {}
        try:
            if endpoint.toolchain:
                files |= _files_of_toolchain(Path(endpoint.toolchain), inputs)
            for place, path in {**files, TOOL: rt}.items():
                with opened(path) as contents:
                    digest = Digest(contents.sha256, contents.size)
                inputs[place] = Input(digest, os.access(path, os.X_OK))
                paths[digest] = path
        except OSError as e:
            raise BuildError(f"{e.filename}: {e.strerror}", "install the library again, with its bundle") from e
        root, listings = make_tree(inputs)
        return cls(root, {**paths, **listings, Digest.of(encoded): encoded}, own)


def _files_of_toolchain(home: Path, inputs: dict[str, Input | str]) -> dict[str, Path]:
    """Return the files of a toolchain by their place, and add its links to `inputs`. Raises
    `BuildError` for a link that leads out of it."""
    files = {}
    for path in sorted(home.rglob("*")):
        place = f"{TOOLCHAIN}/{path.relative_to(home).as_posix()}"
        if path.is_symlink():
            target = os.readlink(path)
            if os.path.isabs(target) or not os.path.normpath(path.parent / target).startswith(f"{home}/"):
                raise BuildError(f"{path}: this link leads out of the toolchain", "name a toolchain that is whole")
            inputs[place] = target
        elif path.is_file():
            files[place] = path
    return files


def make_action(
    inputs: Inputs, endpoint: Endpoint, blob: str, archs: Sequence[str], env: Mapping[str, str]
) -> tuple[Digest, Blobs]:
    """Return the action that compiles a blob or kernel for the archs, and its messages, which are
    to be uploaded. Settings of `env` that decide the key travel with it."""
    m = messages()
    words = [f"./{TOOL}", abi.RT_MAKE, abi.OPTION_FROM, inputs.manifest, abi.OPTION_QUIET]
    words += [abi.OPTION_TOOLCHAIN, TOOLCHAIN] if endpoint.toolchain else []
    words += [w for arch in archs for w in (abi.OPTION_ARCH, arch)]
    variables = {"PATH": _PATH} | {k: env[k] for k in (*OF_KEY, abi.ENV_COMPILE_TIMEOUT) if env.get(k)}
    # Servers read the platform in either message, and the outputs under either name, by their age.
    platform = m.Platform(properties=[m.Property(name=k, value=v) for k, v in endpoint.platform])
    command = m.Command(
        arguments=[*words, "--", blob],
        environment_variables=[m.EnvironmentVariable(name=k, value=v) for k, v in sorted(variables.items())],
        output_files=sorted((abi.MAKE_ENTRY, abi.MAKE_LOG, abi.MAKE_COST)),
        output_paths=sorted((abi.MAKE_ENTRY, abi.MAKE_LOG, abi.MAKE_COST)),
        platform=platform,
    ).SerializeToString(deterministic=True)
    action = m.Action(
        command_digest=Digest.of(command).message(), input_root_digest=inputs.root.message(), platform=platform
    )
    if seconds := compile_seconds(env):
        action.timeout.seconds = math.ceil(seconds) + _GRACE
    data: bytes = action.SerializeToString(deterministic=True)
    digest = Digest.of(data)
    return digest, {digest: data, Digest.of(command): command}


def compile_seconds(env: Mapping[str, str]) -> float:
    """Return the limit that the user sets for a compile, or 0 if the service's own is to apply."""
    return seconds_of(env.get(abi.ENV_COMPILE_TIMEOUT, "")) or 0.0  # the runtime reports a bad value
