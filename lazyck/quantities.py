"""Sizes, times and counts as users write and read them."""

from __future__ import annotations

import re

from lazyck.errors import UsageError

_SIZES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_AGES = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def parse_size(text: str, what: str) -> int:
    """`20G`, `500M`, `1.5T` or a number of bytes. Raises `UsageError` that begins with `what`."""
    found = re.fullmatch(r"(\d{1,15}(?:\.\d{1,9})?)([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if not found:
        raise UsageError(f"{what} {text!r}: not a size", "write 20G, 500M, or a number of bytes")
    return int(float(found[1]) * _SIZES[found[2].upper()])


def parse_age(text: str, what: str) -> int:
    """`30d`, `12h`, `90m`, `2w` in seconds. Raises `UsageError` that begins with `what`."""
    found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)([smhdw])", text.strip().lower())
    if not found:
        raise UsageError(f"{what} {text!r}: not an age", "write 30d, 12h, 90m or 2w")
    return int(float(found[1]) * _AGES[found[2]])


def show_size(count: float) -> str:
    """`1.5 GB`, in powers of 1024 as `ls -h` and `du -h` count."""
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TB"


def show_kib(kib: float) -> str:
    """The same for a number of KiB."""
    return show_size(kib * 1024)


def show_seconds(seconds: float) -> str:
    """`0.4 s`, `3 m 20 s`, `2 h 05 m`, `3 d 04 h`."""
    if seconds < 99.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for unit, name, next_unit, next_name in ((86400, "d", 3600, "h"), (3600, "h", 60, "m")):
        if whole >= unit:
            return f"{whole // unit} {name} {whole % unit // next_unit:02} {next_name}"
    return f"{whole // 60} m {whole % 60:02} s"


def counted(n: int, one: str, many: str = "") -> str:
    """`1 blob`, `2 blobs`."""
    return f"{n} {one if n == 1 else many or one + 's'}"
