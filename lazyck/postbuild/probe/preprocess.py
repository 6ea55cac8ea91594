"""Splits the result of one host preprocess for all blobs of a group into each blob's own text.

The unit `#include`s every blob by its path. Text belongs to a blob if it stands in the blob's file,
or in a file that it includes and that has no include guard (`launcher.inc` after `#define HEAD_DIM
64`). All other text is shared headers.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from lazyck.files import encode
from lazyck.postbuild.cxx.lexer import IDENTIFIER, without_comments
from lazyck.postbuild.reasons import Reason, ReasonKind

_ESCAPE = re.compile(rb"\\([0-7]{3}|.)")
_PLAIN = {b"n": b"\n", b"t": b"\t"}
MARKER = re.compile(r'^# (\d+) "((?:[^"\\]|\\.)*)"((?: \d)*)', re.MULTILINE)  # of a line
_MACRO = re.compile(r"^[ \t]*#[ \t]*(?:define|undef)[ \t]+([A-Za-z_]\w*)", re.MULTILINE)
_DIRECTIVE = re.compile(r"\s*#\s*([a-z_]+)\b\s*(.*)", re.DOTALL)
DIRECTIVE_LINE = re.compile(r"^[ \t]*#(?:[^\n\\]|\\\n|\\.)*", re.MULTILINE)
_GUARD = re.compile(r"\s*(?:#\s*ifndef\s+(\w+)|#\s*if\s*!\s*defined\s*\(?\s*(\w+)\s*\)?)\s*\n\s*#\s*define\s+(\w+)")
_MACRO_CALL = re.compile(r"^[ \t]*([A-Za-z_]\w{3,})[ \t]*\(", re.MULTILINE)
_CONDITIONAL = re.compile(r"^[ \t]*#[ \t]*(if|endif)", re.MULTILINE)  # `if` stands for ifdef and ifndef too
_INCLUDE = re.compile(r"#\s*(?:include|include_next|import)\b")
_ODD = re.compile(r"\*/[ \t]*(?:#|%:|\?\?=)|^[ \t]*(?:%:|\?\?=)|^[ \t]*#[ \t]*\w*[ \t]*(?:/\*|\\\n)", re.MULTILINE)
_PRAGMA_ONCE = re.compile(r"^[ \t]*#[ \t]*pragma[ \t]+once\b", re.MULTILINE)
# With these a file can read otherwise, or have others read otherwise, in a unit of several.
_OF_A_UNIT = re.compile(r"\b__(?:INCLUDE_LEVEL|BASE_FILE)__\b|^[ \t]*#[ \t]*(?:un)?assert\b", re.MULTILINE)
_MAYBE_OF_A_UNIT = re.compile(r"__INCLUDE_LEVEL__|__BASE_FILE__|#[ \t]*(?:un)?assert")  # is found much faster
_COUNT = "typedef __typeof__(sizeof(char["  # begins a declaration that says how often `__COUNTER__` was used
_COUNTED = f"{_COUNT}__COUNTER__ + 1])) lazyck_counts__;"
_CODE_SUFFIXES = frozenset(
    {".c", ".cc", ".cpp", ".cxx", ".cu", ".hip", ".inc", ".inl", ".ipp", ".tpp", ".def", ".impl", ".in"}
)
_SYSTEM = "3"


@dataclass
class Split:
    """Holds what a preprocessed batch says. `guarded_code` are files of code that only the first of
    the blobs that include them gets to read, and that blob."""

    texts: dict[str, str] = field(default_factory=dict)  # each blob's own text
    files: set[str] = field(default_factory=set)  # the headers that all blobs share, as the compiler spells them
    own_files: dict[str, set[str]] = field(default_factory=dict)  # each blob's files besides
    owned: dict[tuple[str, int], str] = field(default_factory=dict)  # (file, line) of an `#include` → a blob's file
    guarded_code: dict[str, str] = field(default_factory=dict)
    odd: set[str] = field(default_factory=set)  # blobs whose text has lines like the preprocessor's own
    counting: set[str] = field(default_factory=set)  # blobs that use `__COUNTER__`, themselves or by headers


def read_source(path: str | Path) -> str:
    """Return a file's text, empty if it cannot be read, which the compiler will say better."""
    try:
        return Path(path).read_bytes().decode("utf-8", "surrogateescape")
    except OSError:
        return ""


def place_of(name: str, path: str) -> str:
    """Return where in a source file a variable is defined, for people. The place is found by the
    variable's name, or by the name of a macro that it contains."""
    text, file = read_source(path), os.path.basename(path)
    plain = IDENTIFIER.findall(name.rpartition("::")[2])[:1] or [name]
    if m := re.search(rf"\b{re.escape(plain[0])}\b", text):
        return f"{file}:{text.count(chr(10), 0, m.start()) + 1}"
    for m in _MACRO_CALL.finditer(text):
        if m[1] in name:
            return f"{file}:{text.count(chr(10), 0, m.start(1)) + 1}, {m[1]}"
    return file


def word_of_a_unit(text: str) -> str:
    """Return a word of a text that depends on where in a unit it is read, or an empty string."""
    return m[0] if _MAYBE_OF_A_UNIT.search(text) and (m := _OF_A_UNIT.search(text)) else ""


@lru_cache(maxsize=65536)
def word_in(path: str) -> str:
    """Return what `word_of_a_unit` does, for a file."""
    return word_of_a_unit(read_source(path))


@lru_cache(maxsize=65536)
def is_guarded(path: str) -> bool:
    """Return whether a second `#include` of this file gives nothing."""
    text = without_comments(read_source(path)).strip()
    if _PRAGMA_ONCE.search(text):
        return True
    m = _GUARD.match(text)
    if m is None or (m[1] or m[2]) != m[3]:
        return False
    depth = 0
    for directive in _CONDITIONAL.finditer(text):
        depth += 1 if directive[1] == "if" else -1
        if depth == 0:  # the guard's own end: nothing may follow
            return "\n" not in text[directive.end() :]
    return False


def macros_of(text: str) -> set[str]:
    """Return the names that the text defines or undefines, also in branches that are not taken."""
    return set(_MACRO.findall(text)) if "#" in text else set()


def include_line(path: str) -> str:
    """Return the directive that includes a file. No directive can name a path with a newline."""
    return f"#include <{path}>" if '"' in path else f'#include "{path}"'


@lru_cache(maxsize=65536)
def marked_path(text: str) -> str:
    """Return the path that a line marker spells as `text`."""
    if "\\" not in text:
        return text
    plain = _ESCAPE.sub(lambda m: _PLAIN.get(m[1]) or (bytes([int(m[1], 8)]) if m[1].isdigit() else m[1]), encode(text))
    return os.fsdecode(plain)


def render_batch(blobs: Sequence[str], macros: Mapping[str, Iterable[str]]) -> tuple[str, dict[int, str]]:
    """Return (unit with all blobs that forgets the `macros` of each, blob per line of it). It says
    before and after each blob how often `__COUNTER__` was used."""
    lines = [_COUNTED]
    where: dict[int, str] = {}
    for blob in blobs:
        names = sorted(macros.get(blob, ()))
        lines += [f'#pragma push_macro("{n}")' for n in names]
        lines.append(include_line(blob))
        where[len(lines)] = blob
        lines += [f'#pragma pop_macro("{n}")' for n in names]
        lines.append(_COUNTED)
    return "\n".join(lines) + "\n", where


_BATCH, _OWN, _SHARED = range(3)


def split(
    batch: Path, blobs: Iterable[str], cwd: str, see: Callable[[str, bool], None] = lambda line, is_own: None
) -> Split:
    """Split the preprocessed `batch` by its line markers. `see` gets each line, and whether it is
    of a blob's own text, to which markers do not belong. Markers lead back to where they came from;
    if they do not, a text has lines like them."""
    wanted = set(blobs)
    out = Split()
    stack: list[tuple[str, int]] = [("", _BATCH)]
    names = [""]  # of the files in `stack`, as the last marker in each has it
    mode, blob = _BATCH, ""
    count = 0  # how often `__COUNTER__` was used before the blob that was read last
    parts: list[str] = []
    with batch.open(encoding="utf-8", errors="surrogateescape", newline="\n") as lines:
        for line in lines:
            m = MARKER.match(line) if line[0] == "#" else None
            see(line, m is None and mode == _OWN)
            if m is None:
                if mode == _OWN:
                    parts.append(line)
                elif mode == _BATCH and line.startswith(_COUNT):
                    now = int(line[len(_COUNT) :].split()[0])
                    if now > count + 1:
                        out.counting.update([*out.texts][-1:])
                    count = now
                continue
            flags = m[3].split()
            if "1" in flags:
                path = marked_path(m[2])
                mode = _enter(out, stack, path, flags, wanted, blob, cwd)
                if stack[-1][1] == _BATCH and mode == _OWN:
                    blob, parts = path, []
                stack.append((path, mode))
                names.append(m[2])
            elif "2" not in flags:
                names[-1] = m[2]
            elif len(stack) == 1 or m[2] != names[-2]:
                out.odd |= {blob} if blob else wanted
            else:
                names.pop()
                left, left_mode = stack.pop()
                above, mode = stack[-1]
                if mode == _BATCH and left_mode == _OWN:
                    out.texts[left] = out.texts.get(left, "") + "".join(parts)
                    blob, parts = "", []
                elif left_mode == _OWN:
                    out.owned[above, int(m[1]) - 1] = left
    if blob:
        out.odd.add(blob)
    return out


def headers_in(batch: Path, blobs: Iterable[str], cwd: str) -> tuple[Split, str]:
    """Return what `split` does, and all lines that are not the blobs' own."""
    lines: list[str] = []
    found = split(batch, blobs, cwd, lambda line, is_own: None if is_own else lines.append(line))
    return found, "".join(lines)


def thin(batch: Path, blobs: Iterable[str], cwd: str, seen: set[int]) -> None:
    """Leave out of the preprocessed `batch` what headers have said in another: `seen` has the
    hashes of lines between two markers, and gets those that are kept."""
    kept: list[str] = []
    run: list[str] = []

    def flush() -> None:
        key = hash("".join(run))
        if run and key not in seen:
            seen.add(key)
            kept.extend(run)
        run.clear()

    def see(line: str, is_own: bool) -> None:
        if is_own or line[0] == "#":
            flush()
            kept.append(line)
        else:
            run.append(line)

    split(batch, blobs, cwd, see)
    flush()
    batch.write_text("".join(kept), encoding="utf-8", errors="surrogateescape")


def _enter(
    out: Split, stack: list[tuple[str, int]], path: str, flags: list[str], wanted: set[str], blob: str, cwd: str
) -> int:
    parent = stack[-1][1]
    if parent == _BATCH and path in wanted:
        return _OWN
    if path.startswith("<"):
        return _SHARED
    full = os.path.join(cwd, path)
    if not os.path.isfile(full):
        out.odd.add(blob)
    # A system header without guard, such as <assert.h>, takes effect each time it is read.
    is_code = os.path.splitext(full)[1] in _CODE_SUFFIXES
    if parent == _OWN and (is_code or (_SYSTEM not in flags and not is_guarded(full))):
        if is_guarded(full):
            out.guarded_code[full] = blob
        out.own_files.setdefault(blob, set()).add(full)
        return _OWN
    out.files.add(full)
    return _SHARED


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield (number of the last physical line, text) of each line, with continued lines joined."""
    pending = ""
    for number, line in enumerate(text.split("\n"), 1):
        if line.endswith("\\"):
            pending += line[:-1] + " "
            continue
        yield number, pending + line
        pending = ""


def skeleton(path: str, owned: Mapping[tuple[str, int], str], above: frozenset[str] = frozenset()) -> str:
    """Return the file's directives alone, in order. Compiling them reads the same shared headers
    under the same macros: owned includes are replaced by their own skeleton, and quoted names next
    to the file are made absolute. A file that includes itself has each directive once."""
    out: list[str] = []
    if path in above:
        return ""
    for number, line in _logical_lines(without_comments(read_source(path))):
        m = _DIRECTIVE.match(line)
        if m is None:
            continue
        word, rest = m[1], m[2].strip()
        if word in ("include", "include_next", "import"):
            inner = owned.get((path, number))
            if inner is not None:
                out.append(skeleton(inner, owned, above | {path}))
                continue
            if rest.startswith('"'):
                beside = os.path.join(os.path.dirname(path), rest[1:].partition('"')[0])
                if Path(beside).exists():
                    line = f'#{word} "{beside}"'
        elif word == "pragma":
            if not rest.startswith(("push_macro", "pop_macro")):
                continue
        elif word in ("error", "warning", "line", "ident"):
            continue
        out.append(line.strip())
    return "\n".join(out)


def decisive(skeleton_text: str) -> str:
    """Return the part of a blob's directives that can decide what shared headers say: all up to its
    last `#include` of one."""
    lines = skeleton_text.split("\n")
    last = max((i for i, line in enumerate(lines) if _INCLUDE.match(line)), default=-1)
    return "\n".join(lines[: last + 1])


def guarded(directives: str) -> str:
    """Return directives that leave no macro of their own behind."""
    names = sorted(macros_of(directives))
    push = [f'#pragma push_macro("{n}")' for n in names]
    return "\n".join([*push, directives, *(line.replace("push_", "pop_", 1) for line in push)])


def is_odd(text: str) -> bool:
    """Return whether a text may have directives that this reader takes for none: behind a comment,
    with one inside, with a line break inside, or with other characters in place of `#`."""
    return _ODD.search(text) is not None


# -- what binds a source to its library: a blob runs in a library of its own ----------------

# The name may stand in assembler text, too.
_SECTION = re.compile(
    r"""\b(?:__)?section(?:__)?\s*\(\s*"([A-Za-z_]\w*)"|\.(?:push)?section[ \t]+(?:\\")?([A-Za-z_]\w*)"""
)
_START_SECTION = re.compile(
    r'(?:\bsection(?:__)?\s*\(\s*"|\.(?:push)?section[ \t]+(?:\\")?)(\.(?:(?:pre)?init|fini|[cd]tors)\w*)'
)
# What a linker defines once for each library.
_BOUNDS = re.compile(
    r"\b(?:__(?:start|stop)_[A-Za-z_]\w*|__ehdr_start|__executable_start|__dso_handle|_DYNAMIC|_GLOBAL_OFFSET_TABLE_"
    r"|__bss_start)\b|\bextern\b[^;(){}]*\b_?(?:end|edata|etext)\b[^;(){}]*;"
)
_NEXT = re.compile(r"\bdlv?sym\s*\(\s*\(?\s*\(\s*void\s*\*\s*\)\s*-\s*1")
_DLADDR = re.compile(r"\bdladdr1?\s*\(")
_ORIGIN = re.compile(r"\$ORIGIN\b|\$\{ORIGIN\}|\bRTLD_DI_ORIGIN\b")
# The assembler reads another file. `x.include(y)` is C++.
_READING = re.compile(r"\.inc(?:bin|lude)\b(?!\s*[(.;,)\]=-])")
_AT_START = re.compile(r'\btls_model(?:__)?\s*\(\s*"(?!global-dynamic")([^"]*)"')
_PROTECTED = re.compile(r'visibility[\s_]*\(\s*"protected"|\bvisibility\s+push\s*\(\s*protected\b|\.protected\b')
_MANAGED = re.compile(r"\(\(\s*(?:__)?managed(?:__)?\s*\)\)")


def names_itself(directives: Iterable[str]) -> Reason | None:
    """Return why a blob with these directives must be compiled eagerly if it includes what
    `__FILE__` names, which is another file in a bundle."""
    is_named = any("__FILE__" in d and _INCLUDE.match(d.lstrip()) for d in directives)
    return Reason(ReasonKind.NOT_IN_BUNDLE, "__FILE__") if is_named else None


def what_binds(text: str, *, takes_late_managed: bool) -> Reason | None:
    """Return why a blob with this preprocessed text of its own must be compiled eagerly, or None.
    `takes_late_managed` is explained in `gpu_runtimes.py`."""
    if not takes_late_managed and declares_managed(text):
        return Reason(ReasonKind.MANAGED)
    if always := what_always_binds(text):
        return always[0]
    if "section" in text and (m := _START_SECTION.search(text)):
        return Reason(ReasonKind.INITIALIZER, m[1])
    if "section" in text and (m := _SECTION.search(text)):
        return Reason(ReasonKind.SECTION, f"{m[1] or m[2]}, by way of __start_{m[1] or m[2]}")
    if m := _BOUNDS.search(text):
        return Reason(ReasonKind.SECTION_BOUNDS, m[0])
    if "dl" in text and _NEXT.search(text):
        return Reason(ReasonKind.RTLD_NEXT)
    if "dladdr" in text and _DLADDR.search(text):
        return Reason(ReasonKind.DLADDR)
    if "ORIGIN" in text and (m := _ORIGIN.search(text)):
        return Reason(ReasonKind.DLADDR, m[0])
    return None


def what_always_binds(text: str) -> list[Reason]:
    """Return the reasons, one for each place in a preprocessed text, why every blob that reads it
    must be compiled eagerly, also if the place is in a header."""
    found = [Reason(ReasonKind.AT_START, m[1]) for m in _AT_START.finditer(text)] if "tls_model" in text else []
    # A function of a header may have it in its body, which the probe leaves out.
    sections = (m[2] for m in _SECTION.finditer(text) if m[2]) if "pushsection" in text else ()
    found += [Reason(ReasonKind.SECTION, f"{name}, by way of __start_{name}") for name in sections]
    return found + [Reason(ReasonKind.ASSEMBLER_FILES)] * (len(_READING.findall(text)) if ".inc" in text else 0)


def makes_assembler_read(text: str) -> bool:
    """Return whether assembler text in a source makes the assembler read other files. The compiler
    names these in no list of what it read."""
    return ".inc" in text and _READING.search(text) is not None


def protects(text: str) -> bool:
    """Return whether a preprocessed text makes something protected. What options hide is protected
    in the probe, too, and not told apart."""
    return "protected" in text and _PROTECTED.search(text) is not None


def declares_managed(text: str) -> int:
    """Return how many managed variables a preprocessed text declares."""
    return sum(1 for _ in _MANAGED.finditer(text)) if "managed" in text else 0
