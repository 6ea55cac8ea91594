"""Let a host compiler read preprocessed CUDA text without nvcc's cudafe++, and fast."""

import re

from lazyck.toolchains.base import accepts

# With its defaults, gcc collects garbage all the time, which is a fifth of its work on large
# headers. clang has no such option.
_FEWER_COLLECTIONS = ("--param", "ggc-min-expand=1000", "--param", "ggc-min-heapsize=1000000")
# Attributes of device code that mean nothing to a host compiler but are errors for it: before
# deduction guides, and with arguments that depend on a template's parameters.
_WHERE = ("__attribute__((device))", "__attribute__((host))")
_BOUNDS = re.compile(r"__attribute__\(\((?:launch_bounds|maxnreg|cluster_dims|block_size)\(")
# Queries that cudafe++ answers. For a type that is not a lambda, the answer is no.
_OF_LAMBDAS = re.compile(r"\b__nv_is_extended_\w+\s*\(")
# The attributes with which CUDA's headers redeclare functions of the C++ library. The
# redeclarations lack `constexpr`, which only cudafe++ accepts.
_REPEATED = "__attribute__((host)) __attribute__((device)) __attribute__((cudart_builtin))"
_PAREN = re.compile(r"[()]")
_END = re.compile(r"[;{}]")


def fewer_collections(compiler: tuple[str, ...]) -> tuple[str, ...]:
    """Return options with which gcc uses more memory and less time, or none for other compilers."""
    return _FEWER_COLLECTIONS if accepts(compiler, (*_FEWER_COLLECTIONS, "-Werror"), "c++") else ()


def language(*, is_c: bool) -> tuple[str, ...]:
    """Return the options that make a compiler take the next file for preprocessed text."""
    return ("-x", "cpp-output" if is_c else "c++-cpp-output")


def readable_by_host(text: str) -> str:
    """Return preprocessed CUDA in a form that a host compiler can read, except for launches."""
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
    """Return `text` with `by` in place of each `call`, up to the end of its parentheses."""
    out: list[str] = []
    done = 0
    for mark in call.finditer(text):
        if mark.start() >= done:
            out += [text[done : mark.start()], by]
            done = _behind_parens(text, mark.start())
    return "".join((*out, text[done:]))


def _behind_parens(text: str, at: int) -> int:
    """Return the index behind the parentheses that open first at or after `at`."""
    depth = 0
    for paren in _PAREN.finditer(text, at):
        depth += 1 if paren[0] == "(" else -1
        if depth == 0:
            return paren.end()
    return len(text)
