"""Lets names pass a version script, which lists what a link exports."""

import re
from collections.abc import Iterator

_TOKEN = re.compile(r'/\*.*?\*/|#[^\n]*|\s+|"[^"\n]*"|[{};:]|[^\s{};:"#]+', re.DOTALL)


def opened(text: str, pattern: str) -> str:
    """Return the version script `text`, which exports names of the `pattern` as well, in its first
    node. A text without a node is returned as it is."""
    tokens = _tokens(text)
    begin = next((end for token, _, end in tokens if token == "{"), -1)
    if begin < 0:
        return text
    added = f"{pattern};"
    label, start, _ = next(tokens, ("", len(text), 0))
    colon, _, behind = next(tokens, ("", 0, 0))
    if colon == ":" and label == "global":
        return f"{text[:behind]} {added}{text[behind:]}"
    if colon == ":" and label == "local":
        return f"{text[:start]}global: {added} {text[start:]}"
    return f"{text[:begin]} {added}{text[begin:]}"


def _tokens(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield the tokens of a script, without blanks and comments, and where they begin and end."""
    found = ((m[0], m.start(), m.end()) for m in _TOKEN.finditer(text))
    return (
        (token, start, end) for token, start, end in found if token.strip() and token[:2] != "/*" and token[0] != "#"
    )
