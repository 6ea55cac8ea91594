"""Makes mutants of C++ sources by clang's AST.

All mutants of a file are compiled into one text. Each stands behind a switch, and the environment
variable MUTANT turns one of them on. So the sources are compiled once, and not once per mutant.
"""

import json
import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SWITCHES = "mutant_switches.h"
# An active mutant is one number, and 0 is none. REACHED names a file to which the numbers of the
# mutants that were reached are written at the end.
SWITCHES_TEXT = r"""#pragma once
#include <cstdio>
#include <cstdlib>
namespace mutants {
inline unsigned char reached[COUNT + 1];
struct State {
    int active = std::getenv("MUTANT") ? std::atoi(std::getenv("MUTANT")) : 0;
    ~State() {
        const char* const path = std::getenv("REACHED");
        std::FILE* const file = path ? std::fopen(path, "w") : nullptr;
        for (int i = 1; file && i <= COUNT; ++i) {
            if (reached[i]) std::fprintf(file, "%d\n", i);
        }
        if (file) std::fclose(file);
    }
};
inline State state;
inline bool on(int number) {
    reached[number] = 1;
    return state.active == number;
}
template <typename T>
T moved(int up, int down, T value) {
    return on(up) ? T(value + 1) : on(down) ? T(value - 1) : value;
}
template <typename B>
bool both(int number, bool a, B b) { return a ? on(number) || b() : on(number) && b(); }
template <typename B>
bool either(int number, bool a, B b) { return a ? !on(number) || b() : !on(number) && b(); }
#define SWAPPED(name, op, other) \
    template <typename A, typename B> \
    auto name(int number, A a, B b) { return on(number) ? a other b : a op b; }
"""
_BOUNDARIES = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
_COMPARISONS = {*_BOUNDARIES, "==", "!="}
_ARITHMETIC = {
    "+": "-", "-": "+", "*": "/", "/": "*", "%": "*", "<<": ">>", ">>": "<<", "&": "|", "|": "&", "^": "&",
}  # fmt: skip
_SWAPS = {**_BOUNDARIES, **_ARITHMETIC}
_NAMES = {op: f"swap_{i}" for i, op in enumerate(_SWAPS)}
_CALLS = {"CallExpr", "CXXMemberCallExpr", "CXXOperatorCallExpr", "CompoundAssignOperator", "CXXThrowExpr"}
_JUMPS = {"ReturnStmt", "ContinueStmt", "BreakStmt"}
_FUNCTIONS = {"FunctionDecl", "CXXMethodDecl", "CXXConstructorDecl", "CXXDestructorDecl"}
# What is below these is evaluated by the compiler, or was not written at this place.
_OPAQUE = {
    "ConstantExpr", "TemplateArgument", "StaticAssertDecl", "EnumConstantDecl", "CXXDefaultArgExpr",
    "CXXDefaultInitExpr", "ClassTemplateSpecializationDecl", "DecltypeType", "UnaryExprOrTypeTraitExpr",
}  # fmt: skip

Node = dict[str, Any]


@dataclass(frozen=True)
class Mutant:
    """One change of a source: which characters it concerns, and what it does to them."""

    number: int
    path: str
    line: int
    what: str
    begin: int
    end: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: [{self.number}] {self.what}"


@dataclass(frozen=True)
class _Wrap:
    """Text around the characters from `begin` to `end`, and one replacement among them."""

    mutants: tuple[Mutant, ...]
    begin: int
    end: int
    before: str
    after: str
    replaced: tuple[int, int, str] | None = None


@dataclass
class Mutated:
    """A source in which all mutants stand behind switches."""

    path: str
    original: str
    wraps: list[_Wrap] = field(default_factory=list)

    @property
    def mutants(self) -> list[Mutant]:
        return [m for wrap in self.wraps for m in wrap.mutants]

    def drop_lines(self, lines: set[int]) -> None:
        """Take away what does not compile in one of these lines."""

        def is_there(wrap: _Wrap) -> bool:
            first, last = (self.original.count("\n", 0, at) + 1 for at in (wrap.begin, wrap.end))
            return any(first <= line <= last for line in lines)

        self.wraps = [wrap for wrap in self.wraps if not is_there(wrap)]

    def drop_constants(self, lines: set[int]) -> None:
        """Leave the constants as they are that these lines name: the compiler must know their
        values there, as those of the sizes of arrays."""
        written = self.original.split("\n")
        used = {name for line in lines for name in re.findall(r"\w+", written[line - 1])}
        kept = []
        for wrap in self.wraps:
            if wrap.replaced and not wrap.mutants:
                name = re.search(r"(\w+)\s*[={]", self.original[wrap.begin : wrap.end])
                if name and name[1] in used:
                    kept.append((wrap.begin, wrap.end))
        self.wraps = [w for w in self.wraps if not any(b <= w.begin and w.end <= e for b, e in kept)]

    def text(self) -> str:
        """Return the source with the switches. Lines keep their numbers."""
        edits: list[tuple[int, int, tuple[int, int], int, str]] = []
        for seq, wrap in enumerate(self.wraps):
            # What ends at a place comes before what begins there. The outer of two begins first and
            # ends last.
            edits.append((wrap.begin, 1, (-wrap.end, seq), wrap.begin, wrap.before))
            edits.append((wrap.end, 0, (-wrap.begin, -seq), wrap.end, wrap.after))
            if wrap.replaced:
                begin, end, text = wrap.replaced
                edits.append((begin, 1, (0, 0), end, text))
        out, at = [f'#include "{SWITCHES}"\n#line 1\n'], 0
        for begin, _, _, end, text in sorted(edits):
            out += [self.original[at:begin], text]
            at = max(at, end)
        return "".join([*out, self.original[at:]])


def switches(count: int) -> str:
    """Return the text of the header that the mutated sources include."""
    swaps = "".join(f"SWAPPED({_NAMES[op]}, {op}, {other})\n" for op, other in _SWAPS.items())
    return SWITCHES_TEXT.replace("COUNT", str(count)) + swaps + "}\n"


def mutate(src: Path, path: str, options: Sequence[str], number: int, clang: str = "clang++-19") -> Mutated:
    """Return `path`, a source below `src`, with its mutants, which are numbered from `number` on.

    `options` are those to compile it with. Raises `CalledProcessError` if clang cannot.
    """
    argv = [clang, *options, "-fsyntax-only", "-w", "-Xclang", "-ast-dump=json"]
    argv += ["-Xclang", "-ast-dump-filter=lazyck::rt", str(src / path)]
    dump = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    maker = _Maker(str(src / path), path, (src / path).read_bytes().decode("latin-1"), number)
    decoder, at = json.JSONDecoder(), 0
    while (at := dump.find("{", at)) >= 0:
        node, at = decoder.raw_decode(dump, at)
        maker.visit(node)
    return Mutated(path, maker.text, maker.wraps)


def compile_errors(src: Path, path: str, options: Sequence[str], clang: str = "clang++-19") -> set[int]:
    """Return the lines of `path` with errors, and those that ask for a template with errors."""
    argv = [clang, *options, "-fsyntax-only", "-w", "-ferror-limit=0", "-fno-caret-diagnostics", str(src / path)]
    said = subprocess.run(argv, capture_output=True, text=True).stderr
    told = re.findall(rf"{re.escape(path)}:(\d+):\d+: (?:(?:fatal )?error|note: in instantiation)", said)
    return set(map(int, told))


class _Maker:
    """Walks an AST in the order in which clang wrote it: a place names its file only if it differs
    from that of the place before."""

    def __init__(self, file: str, path: str, text: str, number: int) -> None:
        self.text, self.wraps = text, list[_Wrap]()  # one character per byte, since clang counts bytes
        self._file, self._path, self._number = file, path, number
        self._last_file = ""
        self._seen: set[tuple[int, int, str]] = set()

    def visit(self, node: Node, *, is_last: bool = False, is_inside: bool = False, is_quiet: bool = False) -> None:
        """Make the mutants of `node` and of what is below it.

        `is_last`: it ends a function. `is_inside`: it is in a function. `is_quiet`: it is only
        looked at for the names of files.
        """
        kind = node.get("kind", "")
        begin, end = self._place(node)
        # The range of a loop is written, though the variable that holds it is not.
        is_made = bool(node.get("isImplicit")) and not node.get("name", "").startswith("__range")
        is_quiet = is_quiet or kind in _OPAQUE or is_made
        is_macro = begin == -2
        is_quiet = is_quiet or (is_macro and kind not in _FUNCTIONS)
        if kind == "VarDecl" and node.get("constexpr"):
            is_quiet = is_quiet or not self._make_variable(node, begin, end, is_inside)
        if not is_quiet and begin >= 0:
            self._mutate(node, kind, begin, end, is_inside)
        children = node.get("inner", [])
        for i, child in enumerate(children):
            if not isinstance(child, dict):
                continue
            below_kind = child.get("kind", "")
            is_twin = kind == "LambdaExpr" and below_kind == "CXXRecordDecl"
            is_twin |= kind == "FunctionTemplateDecl" and below_kind in _FUNCTIONS and i > _first_function(children)
            is_hidden = kind == "CXXForRangeStmt" and i not in (1, len(children) - 1)
            is_null = kind == "ImplicitCastExpr" and node.get("castKind") == "NullToPointer"
            is_end = i == len(children) - 1
            is_body = below_kind == "CompoundStmt" and (kind in _FUNCTIONS or kind == "LambdaExpr")
            if is_body or kind == "CompoundStmt" or self._is_branch(kind, i, children):
                self._mutate_statement(child, is_last=is_end and (is_last or is_body), is_quiet=is_quiet or is_hidden)
            self.visit(
                child,
                is_last=is_body or (is_last and is_end and kind == "CompoundStmt"),
                is_inside=is_inside or kind in _FUNCTIONS or kind == "LambdaExpr",
                is_quiet=is_quiet or is_twin or is_hidden or is_null,
            )

    @staticmethod
    def _is_branch(kind: str, i: int, children: list[Node]) -> bool:
        if kind == "IfStmt":
            return i > 0
        return kind in ("ForStmt", "WhileStmt", "CXXForRangeStmt") and i == len(children) - 1

    def _place(self, node: Node) -> tuple[int, int]:
        """Return where a node begins and ends in the file, or -1 if it is elsewhere, or -2 if a
        macro made it."""
        self._see(node.get("loc", {}))
        spots = node.get("range", {})
        begin, end = spots.get("begin", {}), spots.get("end", {})
        self._see(begin)
        is_here = self._last_file == self._file
        self._see(end)
        if "expansionLoc" in begin or "expansionLoc" in end:
            return -2, -2
        if not is_here or self._last_file != self._file or "offset" not in begin or "offset" not in end:
            return -1, -1
        return begin["offset"], end["offset"] + end["tokLen"]

    def _see(self, spot: Node) -> None:
        for each in (spot.get("spellingLoc"), spot.get("expansionLoc"), spot):
            if each and "file" in each:
                self._last_file = each["file"]

    def _peek(self, node: Node) -> tuple[int, int]:
        """Return the place of a child that is not visited yet, if it has a plain one."""
        spots = node.get("range", {})
        begin, end = spots.get("begin", {}), spots.get("end", {})
        if "offset" not in begin or "offset" not in end or self._last_file != self._file:
            return -1, -1
        if begin.get("file", self._file) != self._file or end.get("file", self._file) != self._file:
            return -1, -1
        return begin["offset"], end["offset"] + end["tokLen"]

    def _add(
        self, begin: int, end: int, whats: Sequence[str], make: Callable[..., tuple[str, str]], **rest: Any
    ) -> None:
        if begin < 0 or (begin, end, whats[0]) in self._seen:
            return
        self._seen.add((begin, end, whats[0]))
        line = self.text.count("\n", 0, begin) + 1
        shown = " ".join(self.text[begin:end].split())
        shown = shown if len(shown) < 70 else shown[:67] + "..."
        made = tuple(
            Mutant(self._number + i, self._path, line, f"{what}: {shown}", begin, end) for i, what in enumerate(whats)
        )
        self._number += len(whats)
        before, after = make(*(m.number for m in made))
        self.wraps.append(_Wrap(made, begin, end, before, after, **rest))

    def _negate(self, begin: int, end: int) -> None:
        self._add(begin, end, ["negated"], lambda n: (f"(mutants::on({n}) != static_cast<bool>(", "))"))

    def _mutate(self, node: Node, kind: str, begin: int, end: int, is_inside: bool) -> None:
        opcode = node.get("opcode", "")
        children = [c for c in node.get("inner", []) if isinstance(c, dict)]
        if kind == "BinaryOperator":
            self._mutate_operator(opcode, children, begin, end, is_inside)
        elif kind in ("UnaryOperator", "CXXOperatorCallExpr") and _is_decided(node):
            self._negate(begin, end)
        elif kind in ("IfStmt", "WhileStmt", "ConditionalOperator"):
            if not node.get("hasVar") and not node.get("hasInit") and not node.get("isConstexpr"):
                condition = _bare(children[0])
                if not _is_decided(condition):
                    self._negate(*self._peek(condition))
        elif kind in ("IntegerLiteral", "FloatingLiteral"):
            self._add(begin, end, ["one more", "one less"], lambda a, b: (f"mutants::moved({a}, {b}, ", ")"))

    def _mutate_operator(self, opcode: str, children: list[Node], begin: int, end: int, is_inside: bool) -> None:
        left, right = (self._peek(c) for c in children)
        if left[0] < 0 or right[0] < 0:
            return
        spot = self._operator_between(left[1], right[0], opcode)
        if opcode in _COMPARISONS:
            self._negate(begin, end)
        if spot is None:
            return
        replaced = (spot, spot + len(opcode), ", ")
        is_difference = opcode == "-" and all(_type(c).endswith("*") for c in children)
        if opcode in _SWAPS and not is_difference:
            swap = f"{opcode} becomes {_SWAPS[opcode]}"
            self._add(begin, end, [swap], lambda n: (f"mutants::{_NAMES[opcode]}({n}, ", ")"), replaced=replaced)
        elif opcode in ("&&", "||") and is_inside:
            name, other = ("both", "||") if opcode == "&&" else ("either", "&&")
            replaced = (spot, spot + 2, "), [&] { return static_cast<bool>(")
            self._add(
                begin, end, [f"{opcode} becomes {other}"],
                lambda n: (f"mutants::{name}({n}, static_cast<bool>(", "); })"), replaced=replaced,
            )  # fmt: skip

    def _operator_between(self, begin: int, end: int, opcode: str) -> int | None:
        at = self.text.find(opcode, begin, end)
        return at if at >= 0 and not self.text[begin:at].strip(" \n\t)") else None

    def _mutate_statement(self, node: Node, *, is_last: bool, is_quiet: bool) -> None:
        """Make the mutant without the statement `node`."""
        begin, end = self._peek(node)
        if is_quiet or begin < 0:
            return
        bare = _bare(node)
        kind, opcode = bare.get("kind", ""), bare.get("opcode", "")
        is_change = opcode == "=" or (kind == "UnaryOperator" and opcode in ("++", "--"))
        if kind in _CALLS or is_change:
            self._add(begin, end, ["dropped"], lambda n: (f"(mutants::on({n}) ? void() : void(", "))"))
        elif kind in _JUMPS and not is_last:
            semicolon = self.text.index(";", end - 1) + 1
            self._add(begin, semicolon, ["dropped"], lambda n: (f"{{ if (!mutants::on({n})) ", " }"))

    def _make_variable(self, node: Node, begin: int, end: int, is_inside: bool) -> bool:
        """Let a constant be made at run time. Return whether that is possible."""
        is_array = "[" in node.get("type", {}).get("qualType", "")
        declared = self.text[begin : begin + len("constexpr")] if begin >= 0 else ""
        if declared != "constexpr" or is_array or is_inside:
            return False
        if (begin, end, "variable") not in self._seen:
            self._seen.add((begin, end, "variable"))
            self.wraps.append(_Wrap((), begin, end, "", "", (begin, begin + len("constexpr"), "const    ")))
        return True


def _type(node: Node) -> str:
    names = node.get("type", {})
    return str(names.get("desugaredQualType", names.get("qualType", "")))


def _first_function(children: list[Node]) -> int:
    return next(i for i, c in enumerate(children) if c.get("kind") in _FUNCTIONS)


def _bare(node: Node) -> Node:
    """Return the expression below casts and clean-ups that nobody wrote."""
    while node.get("kind") in (
        "ImplicitCastExpr",
        "ExprWithCleanups",
        "CXXBindTemporaryExpr",
        "MaterializeTemporaryExpr",
    ):
        node = node["inner"][0]
    return node


def _is_decided(node: Node) -> bool:
    """Return whether negating the node is another node's mutant."""
    kind, opcode = node.get("kind"), node.get("opcode", "")
    if kind == "UnaryOperator":
        return bool(opcode == "!")
    if kind == "CXXOperatorCallExpr":
        return _operator(node["inner"][0]) in _COMPARISONS
    return kind == "BinaryOperator" and opcode in _COMPARISONS


def _operator(node: Node) -> str:
    """Return the operator whose function a node names."""
    for each in _below(node):
        name = each.get("referencedDecl", {}).get("name", "")
        if name.startswith("operator"):
            return str(name.removeprefix("operator"))
    return ""


def _below(node: Node) -> Iterator[Node]:
    yield node
    for each in node.get("inner", []):
        yield from _below(each)
