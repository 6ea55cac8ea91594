"""Finds what binds a source to its very library: a blob's code runs in one of its own."""

import re

from _lazyck.postbuild.reasons import Kind, Reason

_SECTION = re.compile(r'\b(?:__)?section(?:__)?\s*\(\s*"([A-Za-z_]\w*)"')
_BOUNDS = re.compile(r"\b__(?:start|stop)_([A-Za-z_]\w*)")
_NEXT = re.compile(r"\bdlv?sym\s*\(\s*\(?\s*\(\s*void\s*\*\s*\)\s*-\s*1")
_DLADDR = re.compile(r"\bdladdr1?\s*\(")
_MANAGED = re.compile(r"\(\(\s*(?:__)?managed(?:__)?\s*\)\)")


def reason(text: str, *, takes_late_managed: bool) -> Reason | None:
    """Return why a blob with this preprocessed text of its own must be compiled eagerly, or None.
    `takes_late_managed` is explained at `Toolchain`."""
    if not takes_late_managed and declares_managed(text):
        return Reason(Kind.MANAGED)
    if "section" in text and (m := _SECTION.search(text)):
        return Reason(Kind.SECTION, f"{m[1]}, by way of __start_{m[1]}")
    if m := _BOUNDS.search(text):
        return Reason(Kind.SECTION_BOUNDS, m[0])
    if "dl" in text and _NEXT.search(text):
        return Reason(Kind.RTLD_NEXT)
    if "dladdr" in text and _DLADDR.search(text):
        return Reason(Kind.DLADDR)
    return None


def declares_managed(text: str) -> int:
    """Return how many managed variables a preprocessed text declares."""
    return sum(1 for _ in _MANAGED.finditer(text)) if "managed" in text else 0
