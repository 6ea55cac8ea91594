"""Turn files into the tree of directories that an action sees, without any I/O: a Merkle tree, in
which each directory is named by the digest of its listing."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from _lazyck.prebuild.reapi.messages import messages


@dataclass(frozen=True)
class Digest:
    """What the service calls a content: its SHA-256 and its size in bytes."""

    hash: str
    size: int

    @classmethod
    def of(cls, data: bytes) -> Digest:
        """Return the digest of `data`."""
        return cls(hashlib.sha256(data).hexdigest(), len(data))

    @classmethod
    def read(cls, message: Any) -> Digest:
        """Return the digest in a message."""
        return cls(message.hash, message.size_bytes)

    def message(self) -> Any:
        """Return the message of this digest."""
        return messages().Digest(hash=self.hash, size_bytes=self.size)


@dataclass(frozen=True)
class Input:
    """A file that an action reads: its digest, and whether it is a program."""

    digest: Digest
    is_program: bool = False


@dataclass(frozen=True)
class Link:
    """A symbolic link among the inputs."""

    target: str


@dataclass
class _Node:
    files: dict[str, Input] = field(default_factory=dict)
    links: dict[str, Link] = field(default_factory=dict)
    below: dict[str, _Node] = field(default_factory=dict)


def make_tree(inputs: Mapping[str, Input | Link]) -> tuple[Digest, dict[Digest, bytes]]:
    """Return the digest of the root, and the listing of each directory by its digest.

    `inputs` maps paths below the root, without `.` and `..`, to what is there. The order of names
    in a listing is the one that the API requires, so that equal trees have equal digests.
    """
    root = _Node()
    for path, what in inputs.items():
        *directories, name = path.split("/")
        node = root
        for part in directories:
            node = node.below.setdefault(part, _Node())
        if isinstance(what, Link):
            node.links[name] = what
        else:
            node.files[name] = what
    listings: dict[Digest, bytes] = {}
    return _list(root, listings), listings


def _list(node: _Node, listings: dict[Digest, bytes]) -> Digest:
    m = messages()
    listing = m.Directory()
    for name, file in sorted(node.files.items(), key=_by_bytes):
        listing.files.add(name=name, digest=file.digest.message(), is_executable=file.is_program)
    for name, below in sorted(node.below.items(), key=_by_bytes):
        listing.directories.add(name=name, digest=_list(below, listings).message())
    for name, link in sorted(node.links.items(), key=_by_bytes):
        listing.symlinks.add(name=name, target=link.target)
    data: bytes = listing.SerializeToString(deterministic=True)
    digest = Digest.of(data)
    listings[digest] = data
    return digest


def _by_bytes(item: tuple[str, object]) -> bytes:
    return item[0].encode("utf-8", "surrogateescape")


@dataclass(frozen=True)
class Blobs:
    """Contents to upload: files on this machine, and data in memory."""

    files: Mapping[Digest, Path] = field(default_factory=dict)
    data: Mapping[Digest, bytes] = field(default_factory=dict)

    @property
    def digests(self) -> list[Digest]:
        """Return what all of them are called."""
        return [*self.files, *self.data]
