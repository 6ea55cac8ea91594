"""Implement an object store for fsspec whose library has no limits, as others might. Its files lie
below $SHELF_ROOT. If $SHELF_FROM names a port of this machine, everything is read from there until
the end."""

import os
import socket
from pathlib import Path
from typing import Any

from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem

ENTRY_POINT = "[fsspec.specs]\nshelf = shelf:Shelf\n"


class Shelf(DirFileSystem):  # type: ignore[misc]
    """Serves `shelf://BUCKET/PATH`."""

    protocol = "shelf"

    def __init__(self, **_: Any) -> None:
        super().__init__(os.environ.get("SHELF_ROOT", "/nonexistent"), LocalFileSystem(auto_mkdir=True))

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **how: Any) -> Any:
        """Read a file as any file system does, or everything that the server at $SHELF_FROM
        sends."""
        if "SHELF_FROM" not in os.environ:
            return super().cat_file(path, start=start, end=end, **how)
        with socket.create_connection(("127.0.0.1", int(os.environ["SHELF_FROM"]))) as s, s.makefile("rb") as f:
            s.sendall(b"GET\r\n\r\n")
            return f.read()

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **how: Any) -> Any:
        """Write a file and create its directories, which DirFileSystem does not do."""
        whole = Path(self._join(path))
        whole.parent.mkdir(parents=True, exist_ok=True)
        with open(whole, "xb" if mode == "create" else "wb") as f:
            f.write(value)


def install(directory: Path) -> None:
    """Install this module in `directory` as a package that Python finds."""
    (directory / "shelf.py").write_bytes(Path(__file__).read_bytes())
    info = directory / "shelf-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shelf\nVersion: 1\n")
    (info / "entry_points.txt").write_text(ENTRY_POINT)
