"""Defines what a namespace-scope declaration may be, and decides which variables are harmless."""

import re
from enum import Enum
from typing import NamedTuple

from lazyck.postbuild.cxx.lexer import IDENTIFIER, TOKEN, pointer_name, without_attributes


class Unsupported(Exception):
    """Signals that a blob holds something that only a compiler can judge. The message says what."""


class DeclarationKind(Enum):
    HEAD = "head"  # a function that the blob defines for others; `text` is its declaration without body or `;`
    SUPPORT = "support"  # a definition private to the blob that heads may need: alias, type, template, constant
    REPEATABLE = "repeatable"  # a declaration that may stand any number of times in one unit
    DIRECTIVE = "directive"  # using-directive, opening of a namespace: names nothing, may matter to all after it
    DATA = "data"  # a variable that other files can see
    SUSPECT = "suspect"  # a variable that may run code when the library is loaded


class Declaration(NamedTuple):
    kind: DeclarationKind
    context: tuple[str, ...]  # openings around it: `namespace a`, `extern "C"`
    text: str
    names: tuple[str, ...] = ()
    reference: str = ""  # an explicit instantiation: a pointer's declaration with %s for its name and attributes
    is_instance: bool = False  # an explicit instantiation
    is_constant: bool = False  # a variable that is private for being constant, unless another declaration says `extern`
    initializers: str = ""  # a constructor's, since a member may have no other way to be made; or `DEFAULT`


DEFAULT = "= default;"  # in place of a body
ASSIGN = re.compile(r"(?<![=!<>+\-*/%&|^])=(?!=)")
LAST_NAME = re.compile(r"([A-Za-z_]\w*)\s*(?:\[[^\]]*\]\s*)*$")
_BRACES = re.compile(r"\{.*\}", re.DOTALL)
_LATER = re.compile(r",\s*[*&]?\s*([A-Za-z_]\w*)\s*(?=[=\[,]|$)")  # variables after the first
_DEVICE_DATA = re.compile(r"__(?:device|constant|managed)__|\(\(\s*(?:__)?(?:device|constant|managed)(?:__)?\s*\)\)")
_NO_CALL = re.compile(r"\bsizeof\s*\(|^\{")  # braces right after the name are an initializer
_BUILTIN_WORDS = (
    "int unsigned signed short long char bool float double void auto size_t ssize_t std ptrdiff_t wchar_t char8_t "
    "char16_t char32_t int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t intptr_t uintptr_t __int128 "
    "const volatile static constexpr constinit inline extern thread_local __thread __restrict__ * & ::"
)
_BUILTIN = frozenset(_BUILTIN_WORDS.split())


def is_anonymous(context: tuple[str, ...]) -> bool:
    """Return whether what stands in `context` is private to its file."""
    return any(re.fullmatch(r"(?:inline\s+)?namespace", without_attributes(c).strip()) for c in context)


def _without_angles(text: str) -> str:
    """Return a variable's declaration without the template arguments before its name."""
    head = text.partition("=")[0]
    at = head.rfind(">")
    return text if at < 0 or "<" not in head else re.sub(r"<.*", " ", head[: at + 1], flags=re.S) + text[at + 1 :]


def variable_name(plain: str) -> str:
    head = re.split(r"[={(]", _without_angles(plain), maxsplit=1)[0]
    m = LAST_NAME.search(head)
    return m[1] if m else head.strip()[-60:]


def variable(found: list[Declaration], context: tuple[str, ...], text: str, is_c: bool) -> None:
    """Decide whether a variable is harmless, data for others, or may run code at load."""
    plain = without_attributes(text)
    pointer = pointer_name(plain)
    if not pointer:
        plain = _without_angles(plain)
    head = re.split(r"=|\{" if pointer else r"[={(]", plain, maxsplit=1)[0]
    initializer = plain[len(head) :]
    name = pointer or variable_name(plain)
    if not IDENTIFIER.fullmatch(name) or (not pointer and len(IDENTIFIER.findall(head)) < 2):
        raise Unsupported("statement: " + " ".join(text.split())[:80])
    words = set(IDENTIFIER.findall(head))
    type_words = [m[0] for m in TOKEN.finditer(head)]
    kind = DeclarationKind.SUPPORT
    is_const = bool(re.search(r"\bconst\b(?:\s*(?:volatile|static|__restrict__))*\s*$", head[: head.rindex(name)])) or (
        "const" in words and "*" not in head and "&" not in head
    )
    is_const = is_const and "volatile" not in words
    is_device = bool(_DEVICE_DATA.search(text))
    is_internal = "static" in words or is_anonymous(context) or (is_const and "extern" not in words and not is_c)
    if "extern" in words and not initializer:
        found.append(Declaration(DeclarationKind.REPEATABLE, context, text + ";", (name,)))
        return
    is_own_member = "::" in head[: head.rindex(name)].rstrip()[-2:]
    if "constexpr" in words and "extern" not in words:
        kind = DeclarationKind.SUPPORT
    elif is_device:
        kind = (
            DeclarationKind.SUPPORT
        )  # lives on the device: nvcc and clang make the host's variable local, and register it
    elif is_own_member or not is_internal:
        kind = DeclarationKind.DATA
    elif not is_c:  # C has constant initializers only
        builtin = all(t in _BUILTIN or t == name or t in "[]0123456789" for t in type_words if not t.isdigit())
        calls = re.search(r"[\w>\])}]\s*[({]|^\s*\[", _NO_CALL.sub("", initializer.lstrip("= ")))
        if not builtin or calls or "->" in initializer:
            kind = DeclarationKind.SUSPECT
    is_constant = kind is not DeclarationKind.DATA and not words & {"static", "inline"} and not is_anonymous(context)
    names = (name, *_LATER.findall(_BRACES.sub("", text))) if is_constant else (name,)
    found.append(Declaration(kind, context, text + ";", names, is_constant=is_constant))
