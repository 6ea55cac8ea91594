"""Splits a blob's own preprocessed text into namespace-scope declarations, and says what each is.

The correctness of the whole rests on this. Text that is not understood raises `Unsupported`, and is
never skipped: such a blob is compiled to learn the truth.
"""

import re
from collections.abc import Iterator

from lazyck.postbuild.cxx.declaration_kinds import (
    ASSIGN,
    DEFAULT,
    LAST_NAME,
    Declaration,
    DeclarationKind,
    Unsupported,
    is_anonymous,
    variable,
    variable_name,
)
from lazyck.postbuild.cxx.lexer import (
    IDENTIFIER,
    STRUCTURE,
    Piece,
    declarator,
    flat,
    function_parts,
    is_of_variable,
    matching,
    pieces,
    pointer_name,
    template_prefixes,
    top_level,
    without_attributes,
)

_NAMESPACE = re.compile(r"(?:inline\s+)?namespace\b[^=]*$")
_LINKAGE = re.compile(r'extern\s*"C(?:\+\+)?"')
_CLASS_HEAD = re.compile(
    r"(?:(?:typedef|static|const|constexpr|inline|extern|thread_local|volatile)\s+)*(struct|class|union|enum)\b"
)
_BASE_CLAUSE = re.compile(r"(?<!:):(?!:)")
_REQUIRES_BLOCK = re.compile(r"\brequires\s*(?:\([^()]*\)\s*)?$")
# A function's whole body may be a `try` block, which `catch` blocks follow.
_TRY = re.compile(r"(?:\btry|\}\s*catch\b[^{}]*)$")
_DEFAULTED = re.compile(r"\s*=\s*default\s*$")
_INLINE = re.compile(r"\b(?:inline|__inline__|__inline|constexpr|consteval|static)\b")
_NEEDS_BODY = re.compile(r"\b(?:constexpr|consteval|auto)\b")
_DEVICE = re.compile(r"__device__|__attribute__\s*\(\(\s*(?:__)?device(?:__)?\s*\)\)")
_HOST = re.compile(r"__host__|__attribute__\s*\(\(\s*(?:__)?host(?:__)?\s*\)\)")
_ATTRIBUTE = r"(?:__attribute__\s*\(\(|\[\[)[^;{}]*?\b(?:__)?"
_RUN_AT_LOAD = re.compile(_ATTRIBUTE + r"(?:constructor|destructor|init_priority)\b")
# These attributes give a function a second symbol, or another kind of symbol, without a body.
_SYMBOL = re.compile(
    _ATTRIBUTE + r"(alias|ifunc|weakref|symver|target_clones|target_version|target(?=\s*\(\s*\"default))\b"
)
# A `#pragma` that is not among these may change what declarations mean.
_PLAIN_PRAGMA = re.compile(
    r"\s*#\s*pragma\s+(?:once|(?:push|pop)_macro|(?:no)?unroll|message|warning|region|endregion|mark|STDC|nv_\w+|diag_\w+"
    r"|hd_warning_disable|(?:GCC|clang)\s+(?:diagnostic|ivdep|unroll|system_header|warning|error|poison|dependency|loop))\b"
)
_PRAGMA = re.compile(r"\s*#\s*pragma\b\s*(.*)")
_TAG = re.compile(r"\b(?:struct|class|union|enum)\s+([A-Za-z_]\w*)\s*\{")
# In C, these may be names. The reader takes them for words of C++.
_OF_CXX = re.compile(
    r"\b(?:throw|explicit|decltype|noexcept|alignas|requires|constexpr|consteval|operator|template|namespace|using|concept)\b"
)
_USING_ALIAS = re.compile(r"using\s+([A-Za-z_]\w*)\b[^=]*=")


def parse(text: str, *, is_c: bool = False) -> list[Declaration]:
    """Return the namespace-scope declarations of `text`, in order. Raises `Unsupported`."""
    if ("__attribute__" in text or "[[" in text) and (symbol := _SYMBOL.search(text)):
        raise Unsupported(f"has the attribute {symbol[1]}")
    if is_c and (word := _OF_CXX.search(text)):
        raise Unsupported(f"has {word[0]}, a word of C++")
    found: list[Declaration] = []
    context: list[str] = []
    openings: dict[tuple[str, ...], None] = {}
    for piece in pieces(text, _opens_scope, _is_whole):
        before, here = text[piece.start : piece.end - 1], tuple(context)
        if not piece.is_balanced:
            raise Unsupported("unbalanced brackets")
        if piece.ends == "{":
            context.append(before.strip())
            openings[tuple(context)] = None
        elif piece.ends == "#":
            line = text[piece.start : piece.end]
            if (pragma := _PRAGMA.match(line)) and not _PLAIN_PRAGMA.match(line):
                raise Unsupported(f"has a #pragma {pragma[1][:80]}")
        elif piece.ends == "block":
            head = text[piece.start : piece.last].strip()
            if _TRY.search(head):
                head = re.split(r"\btry\b", head)[0].strip()
            end = _constructor_end(head)
            _function(found, here, head[:end], text[piece.start : piece.end], is_defined=True)
            if found[-1].kind is DeclarationKind.HEAD and end < len(head):
                found[-1] = found[-1]._replace(initializers=head[end:])
        elif piece.ends == ";":
            if statement := before.strip():
                _statement(found, here, statement, is_c)
        elif piece.ends and context and not before.strip():
            context.pop()
        elif piece.ends or context or text[piece.start :].strip():
            raise Unsupported("unbalanced brackets")
    if any(d.kind is DeclarationKind.DIRECTIVE or d.text.startswith("namespace") for d in found):
        # These may name a namespace of which nothing else is needed.
        found[:0] = [Declaration(DeclarationKind.DIRECTIVE, c, "") for c in openings if not is_anonymous(c)]
    return found


def _opens_scope(head: str) -> bool:
    """Return whether `head` opens a namespace or linkage block, rather than any other block."""
    head = head.strip()
    return bool(_NAMESPACE.match(head) or _LINKAGE.fullmatch(head))


def _is_whole(text: str, piece: Piece) -> bool:
    """Return whether the block that `piece` ends with is the last one of a function."""
    head = text[piece.start : piece.last].strip()
    if _TRY.search(head):
        return not text[piece.end : piece.end + 200].lstrip().startswith("catch")
    return _block_kind(head) == "body"


def _block_kind(head: str) -> str:
    """Return what the braces after `head` hold: the `body` of a function, or a `part` of a
    declaration that goes on."""
    plain = without_attributes(template_prefixes(head)[1])
    if _REQUIRES_BLOCK.search(plain):
        return "part"
    if _CLASS_HEAD.match(plain) and "(" not in top_level(_BASE_CLAUSE.split(plain)[0]):
        return "part"
    end = _constructor_end(plain)
    top = top_level(plain[:end])
    if "operator" not in top and ASSIGN.search(top):
        return "part"
    if "(" not in top:
        return "part"
    if end < len(plain) and (plain[-1].isalnum() or plain[-1] in "_>"):
        return "part"  # a constructor's `: member{...}`
    return "body"


def _constructor_end(head: str) -> int:
    """Return where a constructor's member initializers begin, or the length of `head`."""
    depth = 0
    for m in re.finditer(r"[()]|(?<!:):(?!:)", head):
        if m[0] == ":":
            if depth == 0 and head[: m.start()].rstrip()[-1:] == ")":
                return m.start()
        else:
            depth += 1 if m[0] == "(" else -1
    return len(head)


def _function(found: list[Declaration], context: tuple[str, ...], head: str, full: str, *, is_defined: bool) -> None:
    """Add a function's definition (`head` has no body), or an explicit instantiation of one."""
    linkage = _LINKAGE.match(head)
    if linkage:
        context, head = (*context, linkage[0]), head[linkage.end() :].strip()
    prefixes, rest = template_prefixes(head)
    if _RUN_AT_LOAD.search(rest):
        found.append(
            Declaration(
                DeclarationKind.SUSPECT, context, full, (declarator(without_attributes(rest))[0] or "a function",)
            )
        )
        return
    is_template = any(p.replace(" ", "") != "template<>" for p in prefixes)
    plain = without_attributes(rest)
    before = flat(plain).partition("(")[0]
    is_private = bool(_INLINE.search(before)) or is_anonymous(context)
    is_device_only = bool(_DEVICE.search(rest)) and not _HOST.search(rest)
    name = declarator(plain)[0]
    if is_template or is_private or is_device_only:
        names = (name,) if name else ()
        if not is_template and prefixes:
            names = ()  # a private explicit specialization: nothing needs its declaration
        elif _NEEDS_BODY.search(before) and is_defined and "->" not in flat(plain):
            found.append(Declaration(DeclarationKind.SUPPORT, context, full.strip(), names))
            return
        elif name and re.search(rf"::\s*{name}\s*[(<]", plain):
            names = ()  # a member: its class declares it, and nothing else may
        # GCC exports a specialization of a template that is only declared, whatever options say.
        body = " { __builtin_trap(); }" if is_template and is_defined and names else ";"
        found.append(Declaration(DeclarationKind.REPEATABLE, context, head + body, names))
        return
    found.append(Declaration(DeclarationKind.HEAD, context, head, (name,) if name else ()))


def _is_defaulted(found: list[Declaration], context: tuple[str, ...], text: str) -> bool:
    """Return whether `text` defines a function by `= default`. If so, add its declaration."""
    head = _DEFAULTED.sub("", text)
    if head == text:
        return False
    _function(found, context, head, text + ";", is_defined=True)
    if found[-1].kind is DeclarationKind.HEAD:
        found[-1] = found[-1]._replace(initializers=DEFAULT)
    return True


def _statement(found: list[Declaration], context: tuple[str, ...], text: str, is_c: bool) -> None:
    """Add a declaration that ends with `;`."""
    word = IDENTIFIER.match(text)
    first = word[0] if word else ""
    if text.startswith("{"):
        raise Unsupported("a body after the declarations of its parameters")  # K&R C
    if first == "using":
        alias = _USING_ALIAS.match(text)
        if alias:
            found.append(Declaration(DeclarationKind.SUPPORT, context, text + ";", (alias[1],)))
        elif re.match(r"using\s+namespace\b", text):
            found.append(Declaration(DeclarationKind.DIRECTIVE, context, text + ";"))
        else:
            names = tuple(re.findall(r"([A-Za-z_]\w*)\s*(?:,|$)", text))
            found.append(Declaration(DeclarationKind.REPEATABLE, context, text + ";", names))
    elif first == "template":
        _template(found, context, text)
    elif first == "typedef":
        last = LAST_NAME.search(flat(text).rstrip("() \n\t"))
        name = pointer_name(without_attributes(text)) or (last[1] if last else "")
        if not name:
            raise Unsupported("typedef: " + text[:80])
        found.append(Declaration(DeclarationKind.SUPPORT, context, text + ";", (name, *_TAG.findall(text)[:1])))
    elif first in ("static_assert", "_Static_assert"):
        pass
    elif first in ("asm", "__asm__", "__asm"):
        raise Unsupported("asm at namespace scope")
    elif first == "namespace":
        alias = re.match(r"namespace\s+([A-Za-z_]\w*)\s*=", text)
        if not alias:
            raise Unsupported("namespace: " + text[:80])
        found.append(Declaration(DeclarationKind.SUPPORT, context, text + ";", (alias[1],)))
    elif linkage := _LINKAGE.match(text):
        inner: list[Declaration] = []
        _statement(inner, (*context, linkage[0]), text[linkage.end() :].strip(), is_c)
        # `extern "C" int x;` only declares `x`, while `extern "C" { int x; }` defines it.
        for d in inner:
            is_declared = d.kind is DeclarationKind.DATA and not ASSIGN.search(flat(d.text)) and "{" not in d.text
            kind = DeclarationKind.REPEATABLE if is_declared else d.kind
            found.append(d._replace(kind=kind, text="extern " + d.text if is_declared else d.text))
    elif re.match(r"extern\s+template\b", text):
        pass
    elif _is_type(text):
        _type(found, context, text)
    elif _is_function(text) and _RUN_AT_LOAD.search(text):
        found.append(
            Declaration(DeclarationKind.SUSPECT, context, text + ";", (declarator(without_attributes(text))[0],))
        )
    elif _is_function(text):
        plain = without_attributes(text)
        if _is_defaulted(found, context, text):
            return
        if "operator" not in plain and ASSIGN.search(flat(plain)):
            return
        name = declarator(plain)[0]
        found.append(Declaration(DeclarationKind.REPEATABLE, context, text + ";", (name,) if name else ()))
    else:
        variable(found, context, text, is_c)


def _template(found: list[Declaration], context: tuple[str, ...], text: str) -> None:
    prefixes, rest = template_prefixes(text)
    if not prefixes:  # explicit instantiation
        rest = text[len("template") :].strip()
        plain = without_attributes(rest)
        if _CLASS_HEAD.match(plain) and "(" not in flat(plain):
            raise Unsupported("explicit instantiation of a class: " + " ".join(rest.split())[:80])
        if "(" not in top_level(plain):
            raise Unsupported("explicit instantiation of a variable: " + rest[:80])
        rest = re.sub(r"^(?:inline|extern)\b\s*", "", rest)
        _function(found, context, "template<> " + rest, text, is_defined=False)
        # A pointer would not tell what an attribute says, such as a visibility.
        parts = function_parts(rest) if without_attributes(rest) == rest else None
        if found and found[-1].kind is DeclarationKind.HEAD:
            reference = f"{parts[0]} (*const %s){parts[2]} = &{parts[1]};" if parts else ""
            found[-1] = found[-1]._replace(reference=reference, is_instance=True)
        return
    plain = without_attributes(rest)
    is_specialization = all(p.replace(" ", "") == "template<>" for p in prefixes)
    if _CLASS_HEAD.match(plain) and (_is_type(rest)):
        _type(found, context, text, rest)
    elif alias := _USING_ALIAS.match(plain):
        found.append(Declaration(DeclarationKind.SUPPORT, context, text + ";", (alias[1],)))
    elif concept := re.match(r"concept\s+([A-Za-z_]\w*)", plain):
        found.append(Declaration(DeclarationKind.SUPPORT, context, text + ";", (concept[1],)))
    elif _is_function(rest):
        if is_specialization and _is_defaulted(found, context, text):
            return
        name = declarator(plain)[0]
        found.append(Declaration(DeclarationKind.REPEATABLE, context, text + ";", (name,) if name else ()))
    elif is_specialization and not re.search(r"\b(?:constexpr|inline)\b", plain):
        # This is a variable or a static member: data that other files can see.
        found.append(Declaration(DeclarationKind.DATA, context, text + ";", (variable_name(plain),)))
    else:
        found.append(Declaration(DeclarationKind.SUPPORT, context, text + ";", (variable_name(plain),)))
        found += _run_at_load(context, rest)


def _is_type(text: str) -> bool:
    """Return whether a statement only defines or declares a class or an enum."""
    plain = without_attributes(text)
    m = _CLASS_HEAD.match(plain)
    if not m:
        return False
    if "{" not in plain:  # tells `struct X;`, `struct X<int>;`, `enum class E : int;` from `struct X x;`
        rest = plain[m.end() :].strip()
        return re.fullmatch(r"(?:class\s+|struct\s+)?[\w:]+\s*(?:<.*>)?\s*(?::[\w:\s]+)?", rest, re.S) is not None
    head = plain[: plain.index("{")]
    return "(" not in top_level(_BASE_CLAUSE.split(head)[0]) and not is_of_variable(head[m.end() :])


def _type(found: list[Declaration], context: tuple[str, ...], text: str, declared: str = "") -> None:
    plain = without_attributes(declared or text)
    m = _CLASS_HEAD.match(plain)
    assert m
    if "{" not in plain:
        names = IDENTIFIER.findall(re.split(r"[<:]", plain[m.end() :].replace("::", " "))[0])[-1:]
        found.append(Declaration(DeclarationKind.REPEATABLE, context, text + ";", tuple(names)))
        return
    if plain[matching(plain, plain.index("{")) :].strip():
        raise Unsupported("a type and a variable in one declaration: " + text[:80])
    head, body = plain[m.end() : plain.index("{")], plain[plain.index("{") + 1 : plain.rindex("}")]
    words = [
        w for w in IDENTIFIER.findall(re.split(r"[<:]", head.replace("::", " "))[0]) if w not in ("class", "final")
    ]
    names = words[-1:]
    if not names and "static" in m[0]:
        raise Unsupported("an anonymous union that is a variable: " + text[:80])
    found += _inline_members(context, body)
    if m[1] == "enum" and not re.match(r"\s*(?:class|struct)\b", head):
        names += re.findall(r"(?:^|,)\s*([A-Za-z_]\w*)", body)
    is_specialization = bool(re.match(r"[^:]*<", head.replace("::", "")))
    kind = DeclarationKind.REPEATABLE if is_specialization else DeclarationKind.SUPPORT
    found.append(Declaration(kind, context, text + ";", tuple(names)))


_INLINE_MEMBER = re.compile(r"\b(?:static\s+(?:\w+\s+)*?inline|inline\s+(?:\w+\s+)*?static)\b")


def _inline_members(context: tuple[str, ...], body: str) -> Iterator[Declaration]:
    """Yield a class's `static inline` members that may run code at load."""
    for m in _INLINE_MEMBER.finditer(body):
        end = next((s for s in STRUCTURE.finditer(body, m.start()) if s[0] in ";{"), None)
        if end is None:
            continue
        head = body[m.start() : end.start()]
        is_braced = end[0] == "{"
        top = top_level(without_attributes(head))
        if "(" in top and not ASSIGN.search(top):
            continue  # a function
        text = head + body[end.start() : matching(body, end.start())] if is_braced else head
        yield from _run_at_load(context, text)


def _run_at_load(context: tuple[str, ...], text: str) -> list[Declaration]:
    """Return the variable that `text` defines, maybe not alone, if it may run code at load."""
    judged: list[Declaration] = []
    plain = re.sub(r"\b(?:inline|static)\b", "", text)
    plain = re.sub(r"(?:\b[A-Za-z_]\w*\s*(?:<[^<>]*>\s*)?::\s*)+(?=[A-Za-z_]\w*\s*(?:[={(;]|$))", "", plain)
    variable(judged, (*context, "namespace"), plain, False)
    return [d for d in judged if d.kind is DeclarationKind.SUSPECT]


_PARAMETER = re.compile(
    r"\s*(?:const\b|volatile\b|struct\b|class\b|enum\b|typename\b|unsigned\b|signed\b|int\b|long\b|short\b|char\b|bool\b"
    r"|float\b|double\b|void\b|auto\b|\.\.\.|[\w:]+\s*(?:<.*>)?\s*(?:const|volatile)\b|(?:std\s*::\s*)?size_t\b|[\w:]+\s*(?:<.*>)?(?:\s*[*&]+|\s+)\s*(?:const\b\s*)?"
    r"(?:[A-Za-z_]\w*\s*)?(?:\[.*\]\s*)?(?:=.*)?$|[\w:]+\s*(?:<.*>)?\s*[*&]+)",
    re.S,
)


def _is_function(text: str) -> bool:
    """Return whether a statement declares a function. Raises `Unsupported` when in doubt."""
    plain = without_attributes(text)
    top = top_level(plain)
    if "(" not in top.partition("{")[0]:  # what braces hold is an initializer
        return False
    assign = ASSIGN.search(top)
    if "operator" in top:
        return True
    if "," in top:
        raise Unsupported("several declarations in one: " + text[:80])
    if pointer_name(plain):
        return False
    if assign:
        return top[assign.end() :].strip() in ("delete", "default", "0")
    if re.match(r"(?:extern\s+)?void\b\s*[A-Za-z_]", plain):
        return True
    inside = _first_parameter(declarator(plain)[1])
    if not inside or _PARAMETER.match(inside):
        return True
    if re.search(r"[\"'+/!?]|\b\d|^&|\b(?:true|false|nullptr|this|sizeof)\b", inside):
        return False
    raise Unsupported("a function's declaration or a variable: " + text[:80])


def _first_parameter(parameters: str) -> str:
    depth = 0
    for i, c in enumerate(parameters):
        if c in "<([{":
            depth += 1
        elif c in ">)]}":
            depth -= 1
        elif c == "," and depth == 0:
            return parameters[:i].strip()
    return parameters.strip()
