"""Finds the names with C linkage that a preprocessed text declares."""

import re
from collections.abc import Iterator

from lazyck.postbuild.cxx.lexer import NOT_OF_HEADS, matching

_LINKAGE = re.compile(r'\bextern\s*"C"\s*(\{)?')
_END = re.compile(r"[;{]")
_CALLED = re.compile(r"\b([A-Za-z_]\w*)\s*\(")
# A reference by an address cannot be to a thread's own variable.
_VARIABLE = re.compile(
    r"\bextern\b(?![^;]*\b(?:__thread|thread_local|_Thread_local)\b)[^;(){}]*?\b([A-Za-z_]\w*)\s*(?:\[[^;]*\])?;"
)
_WORDS = frozenset(
    {
        *("if", "while", "for", "switch", "return", "sizeof", "alignof", "alignas", "static_assert", "_Static_assert"),
        *("noexcept", "throw", "decltype", "typeof", "__typeof__", "asm", "__asm", "__asm__", "__declspec"),
    }
)


def c_names(text: str, *, is_c: bool) -> frozenset[str]:
    """Return the functions and variables with C linkage that `text`, which is all C if it `is_c`,
    declares or calls. Names of other things may be among them."""
    found: set[str] = set()
    for part in [text] if is_c else _c_parts(text):
        plain = NOT_OF_HEADS.sub(" ", part)
        found.update(_CALLED.findall(plain), _VARIABLE.findall(plain))
    return frozenset(found - _WORDS)


def _c_parts(text: str) -> Iterator[str]:
    """Yield the blocks and the single declarations of `text` that have C linkage."""
    for m in _LINKAGE.finditer(text):
        if m[1]:
            yield text[m.end() : matching(text, m.end() - 1)]
        elif end := _END.search(text, m.end()):
            # Alone, a variable has no `extern` of its own.
            yield f"extern {text[m.end() : end.start()]};"
