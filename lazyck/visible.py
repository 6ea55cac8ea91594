"""Makes texts safe to print: on one line, without control characters, without passwords."""

import re


def _is_control(c: str) -> bool:
    """Return whether `c` moves the cursor, sets colours, turns the direction, or is no UTF-8."""
    n = ord(c)
    return n < 0x20 or 0x7F <= n < 0xA0 or 0x2028 <= n <= 0x202E or 0x2066 <= n <= 0x2069 or 0xD800 <= n <= 0xDFFF


def _escaped(c: str) -> str:
    is_byte = 0xDC80 <= ord(c) <= 0xDCFF  # a byte of a file name that is not UTF-8
    raw = bytes([ord(c) - 0xDC00]) if is_byte else c.encode("utf-8", "surrogatepass")
    return "".join(f"\\x{byte:02x}" for byte in raw)


def visible(text: str) -> str:
    """Return `text` with control characters as `\\xNN`, as in the runtime's messages."""
    return "".join(_escaped(c) if _is_control(c) else c for c in text)


def without_secrets(text: str) -> str:
    """Return a setting's value without what a URL in it may hold in secret: user, password and
    query. More than these may be missing, since a password need not be written as URLs demand."""
    return re.sub(r"(?s)(://[^?#]*[?#]).*", r"\1…", re.sub(r"(?s)://.*@", "://…@", text))


def visible_lines(text: str) -> str:
    """Return a text of several lines with each line as `visible` returns it. Tabs stay too."""
    return "\n".join("\t".join(visible(part) for part in line.split("\t")) for line in text.split("\n"))
