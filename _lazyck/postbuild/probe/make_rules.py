"""Reads the rules of make that compilers write into depfiles."""

from __future__ import annotations

import os
import re
from pathlib import Path


def rule_files(depfile: Path, cwd: str) -> set[str]:
    """Return the prerequisites of the rule in `depfile`, relative ones joined to `cwd`."""
    text = depfile.read_text(encoding="utf-8", errors="surrogateescape").replace("\\\n", " ").replace("\\\r\n", " ")
    words = re.findall(r"(?:\\.|\S)+", text.partition(": ")[2])
    return {os.path.join(cwd, re.sub(r"\\(.)", r"\1", w).replace("$$", "$")) for w in words}
