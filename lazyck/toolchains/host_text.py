"""What lets a host's compiler alone, without nvcc's cudafe++, read preprocessed text, and fast."""

from __future__ import annotations

import re

from lazyck.toolchains.base import accepts

# gcc collects garbage all the time with its defaults, a fifth of what it does with large headers. Not taken by clang.
_FEWER_COLLECTIONS = ("--param", "ggc-min-expand=1000", "--param", "ggc-min-heapsize=1000000")
# Attributes of device code that mean nothing to a host's compiler and yet are errors: before deduction guides; with
# arguments that depend on a template's parameters.
_WHERE = ("__attribute__((device))", "__attribute__((host))")
_BOUNDS = re.compile(r"__attribute__\(\((?:launch_bounds|maxnreg|cluster_dims|block_size)\(")
# Questions that cudafe++ answers; of a type that is no lambda, with no.
_OF_LAMBDAS = re.compile(r"\b__nv_is_extended_\w+\s*\(")
# On what CUDA's headers declare again that the C++ library has: not `constexpr`, which cudafe++ alone lets pass.
_REPEATED = "__attribute__((host)) __attribute__((device)) __attribute__((cudart_builtin))"
_PAREN = re.compile(r"[()]")
_END = re.compile(r"[;{}]")


def fewer_collections(compiler: tuple[str, ...]) -> tuple[str, ...]:
    """Options with which a gcc takes more memory and less time; none for other compilers."""
    return _FEWER_COLLECTIONS if accepts(compiler, (*_FEWER_COLLECTIONS, "-Werror"), "c++") else ()


def language(*, is_c: bool) -> tuple[str, ...]:
    """Options by which a compiler takes the next file for preprocessed text."""
    return ("-x", "cpp-output" if is_c else "c++-cpp-output")


def readable_by_host(text: str) -> str:
    """Preprocessed CUDA as a host's compiler can read it, but for launches."""
    out: list[str] = []
    done = 0
    for mark in re.finditer(re.escape(_REPEATED), text):
        start = max(done, *(text.rfind(end, done, mark.start()) + 1 for end in ";{}"))
        end = _END.search(text, mark.end())
        if end and end[0] == ";" and "cudaError_t" not in text[start : end.end()]:
            out.append(text[done:start])
            done = end.end()
    text = _replaced(_replaced("".join((*out, text[done:])), _BOUNDS, ""), _OF_LAMBDAS, "false")
    for attribute in _WHERE:
        text = text.replace(attribute, "")
    return text


def _replaced(text: str, call: re.Pattern[str], by: str) -> str:
    """`text` with `by` in the place of each `call`, up to the end of its parentheses."""
    out: list[str] = []
    done = 0
    for mark in call.finditer(text):
        if mark.start() >= done:
            out += [text[done : mark.start()], by]
            done = _behind_parens(text, mark.start())
    return "".join((*out, text[done:]))


def _behind_parens(text: str, at: int) -> int:
    """The index behind the parentheses that open first at or after `at`."""
    depth = 0
    for paren in _PAREN.finditer(text, at):
        depth += 1 if paren[0] == "(" else -1
        if depth == 0:
            return paren.end()
    return len(text)
