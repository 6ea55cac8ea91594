"""What binds a source to the very library that it is linked into: code of a blob runs in a library of its own."""

from __future__ import annotations

import re

_SECTION = re.compile(r'\bsection(?:__)?\s*\(\s*"([A-Za-z_]\w*)"')
_BOUNDS = re.compile(r"\b__(?:start|stop)_([A-Za-z_]\w*)")
_NEXT = re.compile(r"\bdlv?sym\s*\(\s*\(?\s*\(\s*void\s*\*\s*\)\s*-\s*1")
_DLADDR = re.compile(r"\bdladdr1?\s*\(")
_MANAGED = re.compile(r"\(\(\s*(?:__)?managed(?:__)?\s*\)\)")
MANAGED = "has managed variables, whose addresses HIP gives to a device at the first launch of any kernel on it"


def reason(text: str, *, takes_late_managed: bool) -> str:
    """Why a blob with this preprocessed text of its own must be compiled eagerly; "" where nothing says so.
    `takes_late_managed`: see `Toolchain`."""
    if not takes_late_managed and declares_managed(text):
        return MANAGED
    if "section" in text and (m := _SECTION.search(text)):
        return f"puts something into section {m[1]}, which is read as a whole by way of __start_{m[1]}"
    if m := _BOUNDS.search(text):
        return f"refers to {m[0]}, of which each library has its own"
    if "dl" in text and _NEXT.search(text):
        return "asks dlsym for RTLD_NEXT, the definition after its own library's"
    if "dladdr" in text and _DLADDR.search(text):
        return "asks dladdr in which file code is: that of a blob is in a file of its own"
    return ""


def declares_managed(text: str) -> int:
    """How many managed variables a preprocessed text declares."""
    return sum(1 for _ in _MANAGED.finditer(text)) if "managed" in text else 0
