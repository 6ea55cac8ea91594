"""Changes files between builds."""

import time
from pathlib import Path


def change(path: Path, text: str) -> None:
    """Write `text` so that build tools see the file as newer, and what they make of it as newer
    still, even if the file system's times are coarse."""
    time.sleep(0.05)  # longer than the step of a file system's clock, which no event tells
    path.write_text(text)
    time.sleep(0.05)  # as above
