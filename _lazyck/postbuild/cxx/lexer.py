"""Does just enough C++ lexing of text whose macros are expanded."""

import re

_LITERAL = r"""R"([^()\\\s]{0,16})\((?s:.*?)\)%s"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'"""

IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
TOKEN = re.compile(_LITERAL % r"\1" + r"|[A-Za-z_]\w*|\.?\d(?:[eEpP][+-]|[\w.']|)*|::|->|\S")
STRUCTURE = re.compile(_LITERAL % r"\1" + r"|[(){};]|^[ \t]*\#[^\n]*", re.MULTILINE)
_COMMENT = re.compile(_LITERAL % r"\1" + r"|//[^\n]*|/\*(?s:.*?)\*/")
# These words are followed by parentheses without being a function's name.
_ATTRIBUTE = re.compile(
    r"\b(?:__attribute__|__attribute|__declspec|decltype|typeof|__typeof__|__decltype|alignas|_Alignas|noexcept|throw"
    r"|explicit|__launch_bounds__|__align__|__cluster_dims__|__block_size__|__maxnreg__)\s*(?=\()"
)
_BRACKETED = re.compile(r"\[\[.*?\]\]", re.DOTALL)
_PAREN = re.compile(r"[()]")
_BASE_CLAUSE = re.compile(r"(?<!:):(?!:)")
_QUALIFIER = re.compile(r"\b[A-Za-z_]\w*\s*::\s*")
_NO_NAMES = ("class", "struct", "final", "const", "volatile")
_ANGLES = re.compile(r"<[^<>]*>")


def without_comments(text: str) -> str:
    """Return source text with each comment replaced by a blank, its line breaks kept."""
    if "//" not in text and "/*" not in text:
        return text
    return _COMMENT.sub(lambda m: " " + "\n" * m[0].count("\n") if m[0][0] == "/" else m[0], text)


def matching_paren(text: str, at: int) -> int:
    """Return the index after the parenthesis that closes the one at `at`, or the text's length."""
    depth = 0
    for m in _PAREN.finditer(text, at):
        depth += 1 if m[0] == "(" else -1
        if depth == 0:
            return m.end()
    return len(text)


def matching_brace(text: str, at: int) -> int:
    """Return the index after the brace that closes the one at `at`, or the text's length."""
    depth = 0
    for m in STRUCTURE.finditer(text, at):
        depth += (m[0] == "{") - (m[0] == "}")
        if depth == 0:
            return m.end()
    return len(text)


def without_attributes(text: str) -> str:
    """Return a declaration without attributes and other words with parentheses of their own."""
    if "[[" in text:
        text = _BRACKETED.sub(" ", text)
    while m := _ATTRIBUTE.search(text):
        text = text[: m.start()] + " " + text[matching_paren(text, m.end()) :]
    return text


def flat(text: str) -> str:
    """Return `text` without the content of its outermost parentheses."""
    parts, depth, start = [], 0, 0
    for m in _PAREN.finditer(text):
        if m[0] == "(":
            if depth == 0:
                parts.append(text[start : m.end()])
            depth += 1
        else:
            depth -= 1
            if depth == 0:
                start = m.start()
    parts.append(text[start:])
    return "".join(parts)


def after_angles(text: str, at: int) -> int:
    """Return the index after the `>` that closes the `<` at `at`, or -1 if none does. Brackets
    within parentheses do not count."""
    depth, parens = 0, 0
    for i in range(at, len(text)):
        c = text[i]
        if c == "(":
            parens += 1
        elif c == ")":
            parens -= 1
        elif parens == 0 and c == "<":
            depth += 1
        elif parens == 0 and c == ">" and text[i - 1] != "-":
            depth -= 1
            if depth == 0:
                return i + 1
    return -1


_TEMPLATE = re.compile(r"\s*template\s*(?=<)")


def template_prefixes(text: str) -> tuple[list[str], str]:
    """Return (`template<...>` prefixes, the rest of the declaration)."""
    found = []
    while m := _TEMPLATE.match(text):
        end = after_angles(text, m.end())
        if end < 0:
            break
        found.append(text[:end].strip())
        text = text[end:]
    return found, text.strip()


def top_level(text: str) -> str:
    """Return what `flat` does, also without what stands in angle brackets."""
    top = flat(text)
    if "operator" in top:
        return top
    while (shorter := _ANGLES.sub(" ", top)) != top:
        top = shorter
    return top


def is_of_variable(head: str) -> bool:
    """Return whether braces after `head`, which follows the word `struct`, are an initializer. They
    are if `head` has a `=`, or a name beside the type's, as ` A table[] = ` and ` n::A value`
    have."""
    top = top_level(_BASE_CLAUSE.split(head)[0])
    return "=" in top or len([w for w in IDENTIFIER.findall(_QUALIFIER.sub("", top)) if w not in _NO_NAMES]) > 1


def declarator(declaration: str) -> tuple[str, str]:
    """Return (name before the parameter list, the parameters) of a function's declaration, from
    which template prefixes and attributes have been removed. The name is empty for an operator and
    for what is no plain function."""
    angles, last, previous, hidden = 0, "", "", 0
    for m in TOKEN.finditer(declaration):
        t = m[0]
        if m.start() < hidden:
            continue
        if t == "(" and angles:
            hidden = matching_paren(declaration, m.start())
            continue
        if t == "operator":
            return "", ""
        if t == "<":
            angles += 1
        elif t == ">":
            angles -= 1
        elif angles == 0:
            if t == "(":
                name = last if previous == ">" or previous == last else ""
                return name, declaration[m.end() : matching_paren(declaration, m.start()) - 1]
            if IDENTIFIER.match(t):
                last = t
        previous = t
    return "", ""


_QUALIFIED = re.compile(r"(?:::\s*)?(?:[A-Za-z_]\w*\s*::\s*)*[A-Za-z_]\w*\s*$")


def function_parts(declaration: str) -> tuple[str, str, str] | None:
    """Return (return type, qualified name with template arguments, parameters in parentheses) of a
    plain function's declaration without attributes. Return None for what is not that simple."""
    name, parameters = declarator(declaration)
    end = declaration.rfind(f"({parameters})") if name else -1
    if end <= 0:
        return None
    before = declaration[:end].rstrip()
    depth, at = 0, len(before)
    while at and (depth or before[at - 1] == ">"):
        at -= 1
        depth += {">": 1, "<": -1}.get(before[at], 0)
    m = _QUALIFIED.search(before[:at])
    if m is None or not before[: m.start()].strip():
        return None
    return before[: m.start()].strip(), before[m.start() :].strip(), f"({parameters})"
