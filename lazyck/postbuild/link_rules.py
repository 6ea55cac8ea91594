"""Decides what the options of a link mean for its blobs.

Each blob is in a library of its own, which lazyck links by its own words. An option that says what
references are bound to must hold there too. `--wrap` is repeated. For other options, and for those
that lazyck does not know, the blobs of the link are compiled eagerly.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, pairwise

from lazyck.abi import Role
from lazyck.postbuild.objects import elf
from lazyck.postbuild.objects.elf import SymbolNames
from lazyck.postbuild.objects.inputs import LinkInputs
from lazyck.postbuild.objects.reveal import private_name
from lazyck.postbuild.reasons import Reason, ReasonKind
from lazyck.toolchains import by_name, linker_options
from lazyck.toolchains.command import CompileCommand
from lazyck.toolchains.gpu_runtimes import GPU_RUNTIMES
from lazyck.toolchains.linker_options import LinkerItem

# It says nothing in the link of a program, whose own definitions come first in any case.
_OF_LIBRARIES = "dynamic-list"


def unrepeated(inputs: LinkInputs) -> Reason | None:
    """Return why no blob of a link can be lazy, if its options say so."""
    if inputs.scripts:
        return Reason(ReasonKind.LINKER_SCRIPT, inputs.scripts[0])
    for item in inputs.items:
        words = " ".join(item.words)
        if item.role is Role.UNKNOWN:
            return Reason(ReasonKind.UNKNOWN_LINK_OPTION, words)
        is_refused = isinstance(item, LinkerItem) and item.role is Role.REFUSE
        if is_refused and (inputs.shared or item.name.lstrip("-") != _OF_LIBRARIES):
            return Reason(ReasonKind.LINK_OPTION, words)
    # Other linkers than GNU's bind unique symbols, too, which then do not pin the library.
    linker = inputs.linker_name
    if linker != "bfd" and any(i.option == linker_options.BINDS_ALL for i in inputs.linker):
        return Reason(ReasonKind.LINK_OPTION, f"-{linker_options.BINDS_ALL} beside -fuse-ld={linker}")
    if linker_options.wrapped(inputs.linker) and inputs.has_lto:
        return Reason(ReasonKind.LINK_OPTION, "--wrap, of which LTO objects decide whether it holds for them")
    return None


def wrapping_launches(inputs: LinkInputs) -> dict[CompileCommand, Reason]:
    """Return the blobs for which lazyck would wrap a function that the project wraps itself."""
    wrapped = frozenset(linker_options.wrapped(inputs.linker))
    both = {gpu.toolchain: wrapped.intersection(gpu.functions) for gpu in GPU_RUNTIMES}
    return {
        blob: Reason(ReasonKind.LINK_OPTION, f"--wrap={min(names)}")
        for blob in inputs.blobs
        if (names := both.get(blob.call.toolchain, frozenset()))
    }


def wrapping_unseen(inputs: LinkInputs, defined: Iterable[str], library: elf.SharedSymbols, tag: str) -> Reason | None:
    """Return why blobs cannot be lazy if their references are to be wrapped, and the function that
    wraps or the one that is wrapped is among those `defined` in the link, but `library` does not
    export it, or blobs use it by a private name."""
    names = wrap_names(inputs)
    exported = (n for n in names if n in library.defined and private_name(n, tag) not in library.defined)
    unseen = names.intersection(defined).difference(exported)
    return Reason(ReasonKind.LINK_OPTION, f"--wrap, and {min(unseen)} is hidden") if unseen else None


def excluded(inputs: LinkInputs) -> frozenset[CompileCommand]:
    """Return the blobs of archives whose symbols the link hides (`--exclude-libs`)."""
    names = linker_options.excluded(inputs.linker)
    hidden = (p for p in inputs.archives if not names.isdisjoint({"ALL", os.path.basename(p)}))
    return frozenset(blob for path in hidden for blob in inputs.records.get(path, ()))


def bound(inputs: LinkInputs, names: SymbolNames, stubs: frozenset[str]) -> frozenset[str]:
    """Return those of the `names` of objects, and of `stubs`, that references within
    the library are bound to, whatever the loader finds before (`-Bsymbolic` and its kind)."""
    if not inputs.shared:
        return (names.defined | stubs) - wrap_names(inputs) if is_own_program(inputs) else frozenset()
    options = frozenset(item.option for item in inputs.linker)
    if linker_options.BINDS_ALL in options:
        return (names.defined - names.unique) | stubs  # GNU's linker leaves those to the loader
    if linker_options.BINDS_FUNCTIONS in options:
        return names.functions | stubs
    return (names.functions & names.strong) | stubs if linker_options.BINDS_STRONG in options else frozenset()


def is_own_program(inputs: LinkInputs) -> bool:
    """Return whether a link makes a program whose blobs can have all that they need of it under
    private names. A program exports nothing by itself, and LTO objects cannot be offered."""
    return not (inputs.shared or inputs.has_lto)


def wrap_names(inputs: LinkInputs) -> frozenset[str]:
    """Return the symbols that a link wraps, and those that wrap them, which blobs use by these
    names."""
    wrapped = linker_options.wrapped(inputs.linker)
    return frozenset(chain(wrapped, (linker_options.WRAPPER + symbol for symbol in wrapped)))


def hides_inline_functions(inputs: LinkInputs, blobs: Iterable[CompileCommand]) -> bool:
    """Return whether a library's link, or the options of all `blobs`, keep inline functions from
    giving way to another library's."""
    if not inputs.shared:
        return is_own_program(inputs)
    options = {item.option for item in inputs.linker}
    binding = {"version-script", linker_options.BINDS_ALL, linker_options.BINDS_FUNCTIONS}
    return not options.isdisjoint(binding) or all(map(_hides_inline_functions, blobs))


def _hides_inline_functions(blob: CompileCommand) -> bool:
    toolchain = by_name(blob.call.toolchain)
    base = toolchain.base_words(blob)
    return toolchain.hides_symbols(base) or "-fvisibility-inlines-hidden" in base


def repeated(inputs: LinkInputs) -> tuple[str, ...]:
    """Return the words for the link of a blob that repeat what the link does."""
    symbols = linker_options.wrapped(inputs.linker)
    return tuple(word for symbol in symbols for word in ("-Xlinker", f"--wrap={symbol}"))


def unwrapped(words: Sequence[str]) -> Mapping[str, str]:
    """Map the symbols that the words of a link wrap to names by which they are reached in spite of
    that."""
    items = linker_options.split(word for before, word in pairwise(words) if before == "-Xlinker")
    return {symbol: linker_options.WRAPPED + symbol for symbol in linker_options.wrapped(items)}
