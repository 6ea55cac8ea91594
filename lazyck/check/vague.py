"""Tells apart what a blob defines for everybody and what each file that uses it defines anew.

Every file that uses them emits inline functions, implicit instantiations, and vtables of classes
without a key function. If a library lacks them, it hurts nobody. Explicit instantiations, and
vtables of classes with a key function, are emitted once. In an object all of these look alike. The
blob is therefore compiled again: by GCC without implicit instantiations and weak symbols, or by
clang to LLVM IR, which tells them apart.
"""

import re
from collections.abc import Iterator, Mapping

from lazyck import abi
from lazyck.check.ahead import BlobCompile
from lazyck.check.blob_objects import BlobObject
from lazyck.errors import ToolchainError
from lazyck.postbuild.objects import elf
from lazyck.postbuild.probe.group import compile_one
from lazyck.toolchains import by_name
from lazyck.toolchains.identity import compiler_identity

# Without weak symbols GCC keeps inline functions local to the file, including explicit
# specializations of templates.
_EXPLICIT_ONLY = ("-fno-implicit-templates", "-fno-implicit-inline-templates", "-fno-weak", "-w")
_TABLE = re.compile(r"_ZT[VISTC]")  # vtable, typeinfo, its name, VTT, construction vtable
_IR_NAME = re.compile(r'@(?:"([^"]+)"|([\w.$-]+))')


def vague_names(unit: BlobCompile, blob: BlobObject, wanted: frozenset[str], env: Mapping[str, str]) -> frozenset[str]:
    """Return those of the symbols `wanted` in `blob`, the object of `unit`, that every file which
    uses them defines anew. The set is empty if the compiler does not tell."""
    merged = frozenset(s.name for s in blob.symbols if s.is_merged and s.name in wanted)
    if not merged:
        return frozenset()
    call = unit.blob.call
    toolchain = by_name(call.toolchain)
    try:
        identity = compiler_identity(call.argv[: call.prefix], env)
    except ToolchainError:
        return frozenset()
    again = unit.object.with_suffix(".again")
    to_ir = (*toolchain.host_only, "-S", "-emit-llvm")
    if identity.startswith(("clang", "hip")) and not compile_one(unit.blob, again, env, to_ir).status:
        return merged & frozenset(_discardable(again.read_text("utf-8", "surrogateescape")))
    passing = "-Xcompiler" if call.toolchain == abi.TOOLCHAIN_CUDA else ""
    more = [word for flag in _EXPLICIT_ONLY for word in (passing, flag) if word]
    if compile_one(unit.blob, again, env, (*toolchain.host_only, *more)).status:
        return frozenset()
    image = elf.open_image(again)
    explicit = frozenset(s.name for s in image.symbols() if s.section != 0 and s.binding != "LOCAL")
    with_key = frozenset(_classes_with_key(elf.open_image(unit.object)))
    return frozenset(name for name in merged if is_vague(name, explicit, with_key))


def is_vague(name: str, explicit: frozenset[str], with_key: frozenset[str]) -> bool:
    """Return whether every file that uses the merged symbol `name` defines it anew. `explicit` are
    the symbols that the file defines for others without implicit instantiations and weak symbols.
    `with_key` are the classes, as in mangled names, whose key function it has."""
    if name.startswith("_ZGV"):  # a guard goes with its variable
        name = f"_Z{name[4:]}"
    if name.startswith("_ZZ"):  # a static variable of an inline function or of an instance
        return not any(name[2:].startswith(f[2:] + "E") for f in explicit)
    if _TABLE.match(name) and not is_instance(name):
        return name[4:] not in with_key
    return name not in explicit or "." in name  # f.resolver, by which `target_clones` chooses


def is_instance(name: str) -> bool:
    rest, at = "", 4 if _TABLE.match(name) else 0
    while at < len(name):
        digits = re.compile(r"\d+").match(name, at)
        if digits and name[at - 1 : at] not in ("S", "T", "L"):
            at = digits.end() + int(digits[0])
        else:
            rest += name[at]
            at += 1
    return "I" in rest


def _classes_with_key(image: elf.ElfImage) -> Iterator[str]:
    """Yield the classes with a vtable in an object that names a function of this object alone."""
    table = image.symbols()
    vtables = {s.section: s.name[4:] for s in table if s.name.startswith("_ZTV") and s.section != 0}
    for section, name in vtables.items():
        for _, index, _ in image.relocations(section):
            s = table[index]
            inside = name[1:-1] if name.startswith("N") else name
            if s.type == "FUNC" and s.binding == "GLOBAL" and s.section != 0 and s.name.startswith(f"_ZN{inside}"):
                yield name


def _discardable(text: str) -> Iterator[str]:
    """Yield the names that an LLVM IR module defines, but may discard if it does not need them."""
    for line in text.splitlines():
        is_definition = line.startswith(("@", "define "))
        if is_definition and re.search(r"\blinkonce(_odr)?\b", line[:4000]) and (found := _IR_NAME.search(line)):
            yield found[1] or found[2]
