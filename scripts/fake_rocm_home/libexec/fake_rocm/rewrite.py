"""Rewrites, in preprocessed text, the two pieces of HIP syntax that macros cannot teach a C++
compiler.

    kernel<<<grid, block>>>(x)     ->  kernel ->*::fake_rocm::Configure(archs, grid, block)(x)
    extern __shared__ float s[];   ->  extern float s[] __asm__("fake_rocm_dynamic_shared");

Line markers and everything else stay as they are, so diagnostics and debug information keep their
places.
"""

import re

_TOKEN = re.compile(
    r"""
      R"(?P<delimiter>[^()\\\s]{0,16})\(.*?\)(?P=delimiter)"   # raw string
    | "(?:\\.|[^"\\\n])*"                                      # string
    | \b\d[\w.']*                                              # number, which may hold ' between its digits
    | '(?:\\.|[^'\\\n])*'                                      # character
    | \boperator\s*<<<?                                        # operator<< <T>: not a launch
    | (?P<open><<<)
    | (?P<close>>>>)
    | (?P<in>[(\[{])
    | (?P<out>[)\]}])
    | (?P<end>;)
    """,
    re.VERBOSE | re.DOTALL,
)
# This is `extern __shared__` after __shared__ has become `static` (see include/fake_rocm/tu.h). g++
# puts line markers around the expansion of a system header's macro.
_SPACE = r"(?:\s|(?<=\n)\#[^\n]*\n)+"
_DYNAMIC_SHARED = re.compile(rf"\b(?:extern{_SPACE}static|static{_SPACE}extern)\b([^;={{}}]*?\b\w+)\s*\[\s*\]\s*;")
_DYNAMIC_SHARED_SOURCE = re.compile(r"\bextern\s+__shared__|__shared__\s+extern\b")

_CONFIGURE = "->*::fake_rocm::Configure(::fake_rocm::k_tu_archs, "


def may_need_rewrite(source: str) -> bool:
    """Return whether source text, before preprocessing, shows one of the two; then it need not be
    compiled in vain first."""
    return "<<<" in source or _DYNAMIC_SHARED_SOURCE.search(source) is not None


def rewrite(preprocessed: str) -> str:
    return _rewrite_launches(_DYNAMIC_SHARED.sub(r'extern\1[] __asm__("fake_rocm_dynamic_shared");', preprocessed))


def _rewrite_launches(text: str) -> str:
    if "<<<" not in text:
        return text
    pieces: list[str] = []
    done = 0
    # One number per launch whose >>> is still to come: the depth of brackets since its <<<.
    depths: list[int] = []
    for token in _TOKEN.finditer(text):
        kind = token.lastgroup
        if kind == "open":
            replacement = _CONFIGURE
            depths.append(0)
        elif kind == "close" and depths and depths[-1] == 0:
            replacement = ")"
            depths.pop()
        else:
            if depths and kind in ("in", "out"):
                depths[-1] += 1 if kind == "in" else -1
            elif kind == "end":
                depths.clear()
            continue
        pieces += [text[done : token.start()], replacement]
        done = token.end()
    return "".join(pieces) + text[done:]
