"""Sizes, times and counts as users write and read them."""

import math
import re

from lazyck import abi
from lazyck.errors import UsageError

_NUMBER = r"(\d+\.?\d*|\.\d+)"
_SECONDS = re.compile(_NUMBER, re.ASCII)
_SIZE = re.compile(_NUMBER + r"( ?(?:([KMGT])(?:i?B)?|B))?", re.ASCII | re.IGNORECASE)
_AGES = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def size_of(text: str) -> int | None:
    """Return the bytes of a size such as `20G`, `1.5 GB`, `512MiB`, `7B` or `0`, in powers of 1024,
    or None for anything else. The runtime's `size_in` (base/text.h) reads the same grammar."""
    found = _SIZE.fullmatch(text)
    if not found or (not found[2] and float(found[1]) != 0):  # a bare 20 could mean anything
        return None
    size = float(found[1]) * 1024 ** " KMGT".index((found[3] or " ").upper())
    return int(size) if size < abi.TOO_MANY_BYTES else None


def seconds_of(text: str) -> float | None:
    """Return a number of seconds such as `90` or `0.5`, or None for anything else. The runtime
    reads the same grammar (`seconds_in` of runtime/src/base/text.h)."""
    seconds = float(text) if _SECONDS.fullmatch(text) else math.inf
    return seconds if seconds <= abi.LONGEST_SECONDS else None


def parse_size(text: str, what: str) -> int:
    """Return the bytes of a size. Raises `UsageError`, whose message begins with `what`."""
    size = size_of(text)
    if size is None:
        raise UsageError(f"{what} {text!r}: not a size", "write 20G, 500MB, 1.5GiB, 4096B, or 0")
    return size


def parse_age(text: str, what: str) -> int:
    """Return the seconds of an age such as `30d`. Raises `UsageError` as `parse_size` does."""
    found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)([smhdw])", text.strip().lower())
    if not found:
        raise UsageError(f"{what} {text!r}: not an age", "write 30d, 12h, 90m or 2w")
    return int(float(found[1]) * _AGES[found[2]])


def show_size(count: float) -> str:
    """Return a size in bytes as text such as `1.5 GB`, in powers of 1024 as `ls -h` counts. The
    runtime's `size_text` (base/text.h) and `bytes` of report/page.js follow this form."""
    unit = 0
    while count >= 999.5 and unit < 4:
        count /= 1024
        unit += 1
    digits = 1 if unit and count < 99.95 else 0
    return f"{math.floor(count * 10**digits + 0.5) / 10**digits:.{digits}f} {('B', 'KB', 'MB', 'GB', 'TB')[unit]}"


def show_kib(kib: float) -> str:
    """Return a size in KiB as `show_size` does."""
    return show_size(kib * 1024)


def show_seconds(seconds: float) -> str:
    """Return a duration as text: `0.4 s`, `3 m 20 s`, `2 h 05 m`, `3 d 04 h`."""
    if seconds < 99.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for unit, name, next_unit, next_name in ((86400, "d", 3600, "h"), (3600, "h", 60, "m")):
        if whole >= unit:
            return f"{whole // unit} {name} {whole % unit // next_unit:02} {next_name}"
    return f"{whole // 60} m {whole % 60:02} s"


def counted(n: int, one: str, many: str = "") -> str:
    """Return a number with its noun: `1 blob`, `2 blobs`."""
    return f"{n} {one if n == 1 else many or one + 's'}"
