"""Reproducible gzipped tar archives of plain files, in GNU's format, which small systems read."""

import gzip
import io
import os
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO

EPOCH_VARIABLE = "SOURCE_DATE_EPOCH"
EPOCH = 315_532_800  # its default: 1980-01-01, the first day of zip files


def write_tarball(out: IO[bytes], members: Iterable[tuple[str, Path | bytes]]) -> None:
    """Write the members in their order: names, and files or their contents. Raises `OSError`."""
    with (
        gzip.GzipFile("", "wb", 6, out, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as tar,
    ):
        for name, what in members:
            data = what if isinstance(what, bytes) else what.read_bytes()
            info = tarfile.TarInfo(name)
            is_program = isinstance(what, Path) and os.access(what, os.X_OK)
            info.size, info.mode = len(data), 0o755 if is_program else 0o644
            tar.addfile(info, io.BytesIO(data))
