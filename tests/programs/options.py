"""The options that compilers and linkers list, each of which is a trait: `options/-fabc`,
`linker-options/-z now`."""

import functools
import re
import subprocess
from collections.abc import Iterator

GNU_CLASSES = ("common", "c++", "optimizers", "warnings", "target", "undocumented")
# Options that ask for another action than a compile, eat the next word, or are for other machines.
_OTHER = re.compile(
    r"-(###|E|S|M|MM|MG|MD|MMD|MP|c|o|x|v|V|d[A-Z]?|Q|P|C|CC|pass-exit-codes|fsyntax-only|extract-api|rewrite.*)$"
    r"|-(emit|dump|print|cl|arcmt|objcmt|maix|mllvm|ffixed|fcall-saved|mno-cconv|mhexagon|ccc).*"
    r"|--(debug|dump.*|output|optimize|verbose|completion|target|help|version|autocomplete|gpu|cuda|hip|offload|analy).*"
)
# What a value may be 1 of.
_COUNTED = re.compile("limit|depth|steps|size|align|version|level|branch-cost|boundary|larger-than|threshold|usage")


@functools.cache
def compiler_options(compiler: str) -> tuple[str, ...]:
    """Return what the compiler lists, with values where the list says which there may be."""
    classes = GNU_CLASSES if compiler == "g++" else ("hidden",)
    form = "--help={}" if compiler == "g++" else "--help-{}"
    found = dict.fromkeys(option for name in classes for option in _parse(_said(compiler, form.format(name))))
    return tuple(option for option in found if not _OTHER.fullmatch(option))


@functools.cache
def has_embed(compiler: str) -> bool:
    """Return whether the compiler understands `#embed`."""
    asked = "#ifdef __has_embed\nyes\n#endif\n"
    return "yes" in subprocess.run([compiler, "-xc++", "-E", "-"], input=asked, capture_output=True, text=True).stdout


@functools.cache
def linker_options() -> tuple[str, ...]:
    """Return what `ld --help` lists and takes no file."""
    found: dict[str, None] = {}
    for line in _said("ld", "--help").splitlines():
        if match := re.match(r"  (-.*?)(  +.*)?$", line):
            for form in match[1].split(", "):
                if re.fullmatch(r"-z [a-z-]+|-z [\w-]+=SIZE|--?[A-Za-z][\w-]*", form):
                    found[form.replace("SIZE", "0x10000")] = None
    return tuple(found)


def _said(*argv: str) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


def _parse(text: str) -> Iterator[str]:
    # "Known valid arguments for -march= option:", and below it the values
    for option, values in re.findall(r"^  \w.*?(-[\w-]+=).*:\n((?:    .*\n)+)", text, re.MULTILINE):
        yield from (option + value for value in values.split())
    for line in text.splitlines():
        match = re.match(r"  (-[^ ]+)( <[^ ]+>)?", line)
        if not match or match[2]:
            continue
        word = match[1].rstrip(",")
        if choices := re.match(r"(-[\w+-]+=)\[(.*)\]$", word):
            yield from (choices[1] + choice for choice in choices[2].split("|"))
        elif (number := re.match(r"(.*)<(\d*)\D.*>$", word)) and (number[2] or _COUNTED.search(word)):
            yield number[1] + (number[2] or "1")
        elif re.fullmatch(r"--?[\w+=.-]+[^=<>]", word):
            yield word
