"""Lists every reason why a source is eager, with what it says of the source and what to change.

A reason is kept as its kind and what it is about, in the manifest too. Sentences and advice are
made where they are shown, so that sources of one kind can be reported together.
"""

import os
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from lazyck.postbuild.cxx import demangle
from lazyck.visible import visible

_ELSEWHERE = "in a file that `--blobs` does not match"
_WRAPPER = (
    "Write a host function in this file that launches the kernel, and call that from other files. By kernel, the "
    "source's host code is compiled with the library, and only its kernels are lazy."
)


class ReasonKind(Enum):
    """Lists the kinds of reasons. `says` is what a source does or has, with the verb first; what
    the reason is about may follow. `advice` is what to change so that the source becomes lazy."""

    DATA = (
        "defines data that other files can use",
        f"Define the variable {_ELSEWHERE}, and declare it `extern` in this one. If no other file uses it, make it "
        "`static`, or put it into an unnamed namespace. A stub can stand for a function, not for data.",
    )
    TEMPLATE_DATA = (
        "has the only copy of a variable of a template or of an inline function that other files use",
        f"Instantiate the variable explicitly {_ELSEWHERE}, as in `template int Level<int>::step;`.",
    )
    VTABLE = (
        "defines the vtable of a class",
        f"Define the class's first virtual function that is neither inline nor pure {_ELSEWHERE}: compilers write the "
        "vtable where that function is.",
    )
    INITIALIZER = (
        "has code that runs when the library is loaded",
        "Move the variable whose constructor runs, the registration, or the function with "
        "`__attribute__((constructor))` into a file that `--blobs` does not match. Or make the variable a `static` "
        "one inside of a function: it is made when the function is first called.",
    )
    MANAGED = (
        "has managed variables, whose addresses HIP gives to a device at the first launch of any kernel on it",
        f"Define the `__managed__` variables and the kernels that use them {_ELSEWHERE}, or allocate the memory with "
        "`hipMallocManaged`.",
    )
    SECTION = (
        "puts something into a section that is read as a whole",
        f"Define what belongs into the section {_ELSEWHERE}.",
    )
    SECTION_BOUNDS = (
        "refers to the bounds of a section, of which each library has its own",
        f"Read the section by a function {_ELSEWHERE}, and call that.",
    )
    RTLD_NEXT = (
        "asks dlsym for RTLD_NEXT, the definition after its own library's",
        f"Call `dlsym` by a function {_ELSEWHERE}: a blob is in a library of its own.",
    )
    DLADDR = (
        "asks in which file code is (dladdr, $ORIGIN), and code of a blob is in a file of its own",
        f"Call `dladdr` by a function {_ELSEWHERE}, with the address of a function of that file, and `dlopen` with a "
        "path of `$ORIGIN` there, too.",
    )
    ASSEMBLER_FILES = (
        "makes the assembler read other files, which are in no list of what the compiler read",
        f"Put the assembler text with `.incbin` or `.include` {_ELSEWHERE}.",
    )
    NATIVE = (
        "is compiled for this machine's CPU, which the compiler does not describe in options",
        "Name the CPU instead of `native` (`-march=`, `-mtune=`, `-mcpu=`).",
    )
    AT_START = (
        "has a variable of a thread-local model that holds within one library or the program",
        f"Define the variable {_ELSEWHERE}, or leave out `tls_model`: a blob is a library of its own, loaded later.",
    )
    RESOLVER = (
        "is asked by a resolver (IFUNC), or by a function in place of the C or C++ library's, which may run while no "
        "blob can be loaded",
        f"Define what that asks for {_ELSEWHERE}, or that in a file that calls no function of a blob.",
    )
    VERSIONED = (
        "defines a symbol with a version",
        f"Define the function under a plain name, and give it its version (`.symver`) {_ELSEWHERE}.",
    )
    VERSIONS = (
        "names a symbol of which the library has several versions, and a blob's references have none",
        f"Call the function by another one {_ELSEWHERE}.",
    )
    UNTYPED = (
        "defines a symbol in assembler, without a type",
        "Write `.type NAME, @function` into the assembler text.",
    )
    VECTORS = (
        "defines a function with arguments in vector registers, which the first call would not keep",
        f"Define the function {_ELSEWHERE}.",
    )
    IR_ASSEMBLER = (
        "has assembler outside of functions, which may define anything",
        f"Put the assembler text {_ELSEWHERE}.",
    )
    IR_SAME_FILE = (
        "declares a symbol as one of the same file, and a blob is in a file of its own",
        "Make the LLVM IR as position-independent code with default visibility: its declarations are then neither "
        "`dso_local` nor `hidden`.",
    )
    IR_LOCAL_EXEC = (
        "has a variable that is thread_local(localexec), which no library can have",
        "Make the LLVM IR as position-independent code: thread-local variables then have another model.",
    )
    IR_UNREACHABLE = (
        "defines functions that no stub can stand for",
        "Give the functions that other files call default visibility, and a linkage other than `linkonce`.",
    )
    NOT_COMPILED = (
        "does not compile for the host",
        "Fix the error that the compiler names. lazyck compiles the host code alone, without any device code.",
    )
    UNLISTED = (
        "reads files that cannot be listed",
        "Make the compiler's option `-M` work with the options of this source: the message says what is missing.",
    )
    IN_DOUBT = (
        "is linked as an object, since only its own compile could tell what it defines",
        "Write what the reason names so that no compile is needed to understand it: instantiate functions rather than "
        "a class, initialize variables with constants, avoid attributes and `#pragma`s that make symbols. Up to eight "
        "such sources of a link, or one in eight of its blobs, are lazy in any case.",
    )
    STATIC = (
        "is linked into a static program, which cannot load blobs at run time",
        "Link the program without `-static`, or make a shared library of these sources.",
    )
    LINK_OPTION = (
        "is linked with an option that holds within one library, and a blob is in a library of its own",
        "Link without the option, or keep these sources out of `--blobs`.",
    )
    UNKNOWN_LINK_OPTION = (
        "is linked with an option that lazyck does not know",
        "Link without the option. What lazyck knows of linkers is in `lazyck/toolchains/linker_options.py`.",
    )
    LINKER_SCRIPT = (
        "is linked with a linker script that does more than name files",
        "Name the libraries on the command line instead. A version script does no harm (`--version-script=FILE`).",
    )
    FREESTANDING = (
        "is linked without the compiler's own libraries or start files, which the runtime needs",
        "Link without `-nostdlib`, `-nodefaultlibs`, `-nolibc` and `-nostartfiles`, or name what they leave out: "
        "`-lstdc++ -lgcc_s -lc`, `crtbeginS.o` and the other start files.",
    )
    LTO = (
        "is linked with LTO objects that no nm at hand can read",
        "Install the `nm` that reads the compiler's LTO objects (`gcc-nm`, `llvm-nm`), or compile the other files "
        "without `-flto`.",
    )
    NO_CUDART = (
        "needs the static CUDA runtime, of which no archive was found",
        "Link with `-cudart shared`, or name the directory of `libcudart_static.a` with `-L`.",
    )
    NOT_EXPORTED = (
        "needs a symbol that the library does not export",
        "Remove the hidden visibility from its declaration, compile the file that defines it without `-flto`, or take "
        "its archive out of `--exclude-libs`.",
    )
    HIDDEN = (
        "has a hidden function that other files may call",
        "Give the function default visibility, without an attribute or a `#pragma` that hides it, or make it `static` "
        "if no other file calls it. `-fvisibility=hidden` among the options does no harm.",
    )
    PROTECTED = (
        "could have a protected function, whose address would be another one within the blob",
        "Give the function default visibility: leave out `protected`, an attribute's or a `#pragma`'s.",
    )
    KERNEL_USED = ("has a kernel that another file launches, or takes the address of", _WRAPPER)
    KERNELS_HIDDEN = ("defines kernels for other files, which nvcc hides", _WRAPPER)
    KERNELS_ALONE = ("defines nothing but kernels, which no stub can stand for", _WRAPPER)
    NO_FUNCTION = (
        "defines no function that a stub could stand for",
        "Leave the source out of `--blobs`: it has nothing that a first call could ask for.",
    )
    UNNEEDED = (
        "is needed by nothing, and all that it defines may be inline",
        "Leave the source out of the build, or out of `--blobs`: compiling it makes no code that anybody calls.",
    )
    RIVALLED = (
        "defines a function that another file of the link defines, too",
        "Remove one of the two definitions, or link only one of the two files.",
    )
    STANDARD = (
        "defines a function of the C or C++ library, which the runtime needs before it can load a blob",
        f"Define the function {_ELSEWHERE}.",
    )
    NOT_PREPROCESSED = (
        "does not preprocess out of the library's bundle",
        "Have the headers found by directories of the command line (`-I`), or beside the files that include them: the "
        "message names what is missing.",
    )
    NOT_IN_BUNDLE = (
        "includes a file that is not found from where the bundle has its headers",
        "Have the file found by a directory of the command line (`-I`), or beside the file that includes it.",
    )
    ONLY_HERE = (
        "reads a file by a path that only this machine has",
        "Include the file by a name relative to a directory of `-I`, rather than by an absolute path, which a macro "
        "may hold (`-DHEADER=...`).",
    )
    OPTION_ONLY_HERE = (
        "has an option or variable for the compile that names a place of this machine",
        "Name a place in the toolchain's home or in the system's directories, or compile the source without that: the "
        "place is not in the library's bundle, and what it holds later may be another user's.",
    )
    ENVIRONMENT = (
        "is compiled otherwise outside of the build's environment",
        "Give what it takes from there on the command line, as options, or as programs that options name: a first call "
        "has neither the variables of a compiler's script, nor a PATH that the build itself made.",
    )
    NOT_BY_KERNEL = (
        "cannot be compiled by kernel",
        "Where the reason names managed variables, textures or surfaces, move them into another file. Otherwise lazyck "
        "does not know the steps of this compiler: use a release that lazyck's documentation names.",
    )
    BY_KERNEL = (
        "has its host code compiled with the library, as `--kernels` asks",
        "Match the source with `--blobs` instead of `--kernels`, which is for device code.",
    )
    OTHER = (
        "is eager for a reason that this lazyck does not know",
        "Ask the lazyck that built the library: `lazyck inspect` says which that is.",
    )

    def __init__(self, says: str, advice: str) -> None:
        self.says, self.advice = says, advice


@dataclass(frozen=True)
class Reason:
    """Says why a source is eager. `about` is one line: names, a place or a message."""

    kind: ReasonKind
    about: str = ""

    def __str__(self) -> str:
        """Return what the reason says of the source, which is the subject."""
        return f"{self.kind.says}: {self.about}" if self.about else self.kind.says

    def as_line(self) -> str:
        """Return the reason as a line for files: the kind, a tab, and what it is about."""
        return f"{self.kind.name}\t" + self.about.replace("\t", " ").replace("\n", " ")

    @classmethod
    def of_line(cls, line: str) -> "Reason":
        """Return the reason that `as_line` encoded, or `OTHER` for any other line."""
        kind, tab, about = line.partition("\t")
        return cls(ReasonKind[kind], about) if tab and kind in ReasonKind.__members__ else cls(ReasonKind.OTHER, line)


def sentence(reasons: Iterable[Reason]) -> str:
    """Return all that the reasons say of one source, which is the subject."""
    return "; it ".join(map(str, reasons))


def readable(reasons: Sequence[Reason], env: Mapping[str, str] | None = None) -> list[Reason]:
    """Return `reasons` with all names in them demangled, by a single start of `c++filt`."""
    shown = demangle.readable_lines([r.about for r in reasons], env)
    return [replace(r, about=about) for r, about in zip(reasons, shown, strict=True)]


@dataclass(frozen=True)
class Downgrade:
    """Names a source that is less lazy than requested, and why. `source` is its path from
    where the build was called. An eager GPU source may have two reasons: why it is no blob, and why
    it is not compiled by kernel either."""

    source: str
    reasons: tuple[Reason, ...]

    def __str__(self) -> str:
        return f"{self.source} {sentence(self.reasons)}"


def path_from(source: str, directory: str) -> str:
    """Return the path of `source` as a user in `directory` writes it, or an absolute one."""
    is_apart = not directory or os.path.commonpath([source, directory]) == os.sep
    return source if is_apart else os.path.relpath(source, directory)


def to_pair(found: Downgrade) -> tuple[str, str]:
    """Return a source as a manifest has it: its path, and a line for each reason."""
    return found.source, "\n".join(r.as_line() for r in found.reasons)


def of_pair(source: str, text: str) -> Downgrade:
    return Downgrade(source, tuple(map(Reason.of_line, text.split("\n"))))


def to_json(found: Downgrade) -> dict[str, Any]:
    reasons = [{"kind": r.kind.name, "about": r.about, "text": str(r), "advice": r.kind.advice} for r in found.reasons]
    return {"source": found.source, "reasons": reasons}


def of_json(raw: Any) -> Downgrade:
    """Return the source that `to_json` encoded. Raises `KeyError` or `TypeError`."""
    return Downgrade(raw["source"], tuple(Reason(ReasonKind[r["kind"]], r["about"]) for r in raw["reasons"]))


_WIDTH = 100
_LONGEST = 200  # characters of a name or a message among others
_FEW = 4


def by_kinds(found: Sequence[Downgrade]) -> list[tuple[tuple[ReasonKind, ...], list[Downgrade]]]:
    """Group the sources by the kinds of their reasons. The largest group comes first."""
    groups: dict[tuple[ReasonKind, ...], list[Downgrade]] = {}
    for one in found:
        groups.setdefault(tuple(r.kind for r in one.reasons), []).append(one)
    return sorted(groups.items(), key=lambda group: -len(group[1]))


def heading(kinds: Sequence[ReasonKind], count: int) -> str:
    """Return a sentence about so many sources with these kinds of reasons."""
    says = " and ".join(kind.says for kind in kinds)
    return f"1 source {says}" if count == 1 else f"{count} sources, each of which {says}"


def summary_lines(grade: str, found: Sequence[Downgrade]) -> list[str]:
    """Return a line for each reason why sources are of another `grade`. It says all of a single
    source, and lists a few names of many."""
    lines = []
    for kinds, members in by_kinds(found):
        if len(members) == 1:
            lines.append(f"{grade}: {visible(str(members[0]))}")
        else:
            more = "; ..." if len(members) > _FEW else ""
            lines.append(f"{grade}: {heading(kinds, len(members))}: {_listed(members[:_FEW], '')}{more}")
    return lines


def advise(found: Sequence[Downgrade]) -> str:
    """Return a paragraph for each reason why sources are eager: what to change, and where."""
    paragraphs = [_paragraph(kinds, members) for kinds, members in by_kinds(found)]
    return "\n\n".join(paragraphs or ["no source is eager: there is nothing to change"])


def _paragraph(kinds: Sequence[ReasonKind], members: Sequence[Downgrade]) -> str:
    advice = " Or: ".join(kind.advice for kind in kinds)
    base = _directory(members) if len(members) > 1 else ""
    where = f"in {visible(base)}: " if base else ""
    sources = _wrapped(where + _listed(members, base), "  ", "    ")
    return "\n".join([heading(kinds, len(members)), _wrapped(advice, "  ", "  "), sources])


def _directory(members: Sequence[Downgrade]) -> str:
    """Return the deepest directory of all the sources, with a slash, or an empty string."""
    is_mixed = len({m.source.startswith("/") for m in members}) > 1
    common = "" if is_mixed else os.path.commonpath([os.path.dirname(m.source) for m in members])
    return f"{common}/" if common.strip("/") else ""


def _listed(members: Sequence[Downgrade], base: str) -> str:
    """List sources by their paths from `base`, those with one name or message together."""
    by_about: dict[str, list[str]] = {}
    for m in members:
        about = "; ".join(textwrap.shorten(r.about, _LONGEST, placeholder=" ...") for r in m.reasons if r.about)
        by_about.setdefault(about, []).append(visible(m.source.removeprefix(base)))
    return "; ".join(", ".join(files) + (f" ({visible(a)})" if a else "") for a, files in by_about.items())


def _wrapped(text: str, first: str, others: str) -> str:
    return textwrap.fill(
        text, _WIDTH, initial_indent=first, subsequent_indent=others, break_long_words=False, break_on_hyphens=False
    )
