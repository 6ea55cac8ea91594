"""Sizes, and the text that each is shown as."""

from __future__ import annotations

SHOWN = {
    0: "0 B", 999: "999 B", 1000: "1.0 KB", 1023: "1.0 KB", 1280: "1.3 KB", 1536: "1.5 KB", 99 << 10: "99.0 KB",
    102_348: "99.9 KB", 102_349: "100 KB", 150 << 10: "150 KB", 1_023_487: "999 KB", 1_023_488: "1.0 MB",
    3 << 30: "3.0 GB", 20 << 30: "20.0 GB", 5 << 40: "5.0 TB", 5000 << 40: "5000 TB",
}  # fmt: skip
