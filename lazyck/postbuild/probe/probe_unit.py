"""Makes the probe unit, which defines, with empty bodies, each function that blobs of a group do.

Each blob's functions go into a section of the blob's own, so the compiled object says which mangled
names belong to which blob. A definition needs nothing but the head: no declarator is ever taken
apart, no pointer type spelled.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from lazyck.machines import MACHINES
from lazyck.postbuild.cxx.declaration_kinds import DEFAULT, Declaration, DeclarationKind, is_anonymous
from lazyck.postbuild.cxx.instances import Instances
from lazyck.postbuild.cxx.lexer import IDENTIFIER, template_prefixes
from lazyck.postbuild.objects import kernels, vtables
from lazyck.postbuild.objects.elf import ElfImage, Symbol
from lazyck.postbuild.probe.group import Answer
from lazyck.postbuild.probe.real_object import TOOLCHAIN_DATA, defines
from lazyck.toolchains.base import TextCompile

_OWN, _COMMON = ".lazyck.b", ".lazyck.s"  # sections: of one blob, of a function that several blobs define
_INSTANCES = ".lazyck.i"  # section of one blob's explicit instantiations
_POINTERS = ".lazyck.r"  # section of the pointers to one blob's instantiations
_KERNELS, _KERNEL_INSTANCES = ".lazyck.k", ".lazyck.t"  # sections of one blob's kernels, and of instances among them
_LABEL = re.compile(r"lazyck-(?:(blob|shared)-(\d+)|prelude)")
_DIAGNOSTIC = re.compile(r"\b(error|warning|note|remark)\b[^:]*:")
_ATTRIBUTES = re.compile(r"(?:\s*\[\[.*?\]\])*\s*", re.DOTALL)
_NESTED = re.compile(
    r"\s*(?:struct|class|union)\s+(?:[A-Za-z_]\w*\s*::\s*)*([A-Za-z_]\w*)\s*::\s*[A-Za-z_]\w*\s*[\w\s]*[:{]"
)
_GLOBAL = re.compile(r"__global__|\(\(\s*(?:__)?global(?:__)?\s*\)\)")


@dataclass
class ProbeUnit:
    text: str = ""  # what to compile
    heads: dict[int, int] = field(default_factory=dict)  # the number of functions per blob
    shared: list[set[int]] = field(default_factory=list)  # the blobs behind each shared declaration
    renamed: dict[int, dict[str, str]] = field(default_factory=dict)  # per blob, names made unique, and what they were
    instances: set[str] = field(default_factory=set)  # sections of functions that several blobs instantiate explicitly
    kernels: dict[str, bool] = field(default_factory=dict)  # sections of shared kernels, and whether they are instances


def _kept(declarations: Sequence[Declaration]) -> list[Declaration]:
    """Return the heads, all that they need, and what may matter to all, in order."""
    by_name: dict[str, list[int]] = {}
    for i, d in enumerate(declarations):
        if d.kind is not DeclarationKind.HEAD:
            nested = _NESTED.match(d.text)  # destructors and constructors of the class around it may need it
            for name in (*d.names, *(nested.groups() if nested else ())):
                by_name.setdefault(name, []).append(i)
    heads = [i for i, d in enumerate(declarations) if d.kind is DeclarationKind.HEAD]
    needed = set(_closure(declarations, by_name, heads))
    return [d for i, d in enumerate(declarations) if i in needed or d.kind is DeclarationKind.DIRECTIVE]


def _closure(declarations: Sequence[Declaration], by_name: Mapping[str, list[int]], start: Iterable[int]) -> list[int]:
    seen = set(start)
    todo = list(seen)
    while todo and by_name:
        d = declarations[todo.pop()]
        for name in by_name.keys() & frozenset(IDENTIFIER.findall(d.text + d.initializers)):
            fresh = [i for i in by_name[name] if i not in seen]
            seen.update(fresh)
            todo += fresh
    return sorted(seen)


def render(blobs: Mapping[int, Sequence[Declaration]], prelude: str, by_reference: Collection[int] = ()) -> ProbeUnit:
    """Return the unit for `blobs` (index to declarations) of one cluster. `prelude` reads their
    headers. Blobs in `by_reference` have instantiations that their headers declare (`extern
    template`). These cannot be specialized then, so a pointer to each tells its name, and the
    instantiation itself its visibility.
    """
    unit = ProbeUnit()
    kept = {b: _kept(ds) for b, ds in blobs.items()}
    renames = _renames(kept)
    renamers = {b: _Renamer(renames.get(b, set()), b, ds) for b, ds in kept.items()}
    texts = {b: [(d.context, renamers[b](d.text)) for d in ds] for b, ds in kept.items()}
    heads = Counter(
        t for b, ds in kept.items() for d, t in zip(ds, texts[b], strict=True) if d.kind is DeclarationKind.HEAD
    )
    lines = ['# 1 "lazyck-prelude"', prelude]
    numbers: dict[tuple[tuple[str, ...], str], int] = {}
    instantiated: set[tuple[tuple[str, ...], str]] = set()
    for b, declarations in kept.items():
        unit.renamed[b] = renamers[b].names
        unit.heads[b] = sum(d.kind is DeclarationKind.HEAD for d in declarations)
        lines.append(f'# 1 "lazyck-blob-{b}"')
        for d, (context, text) in zip(declarations, texts[b], strict=True):
            is_head = d.kind is DeclarationKind.HEAD
            if is_head and d.reference and b in by_reference:
                pointer = f'__attribute__((used, section("{_POINTERS}{b}"))) lz_pointer_{len(lines)}'
                lines.append(_within(context, "static " + renamers[b](d.reference).replace("%s", pointer, 1)))
                if (context, text) not in instantiated:
                    instantiated.add((context, text))
                    lines.append(_within(context, f"template {text.removeprefix('template<> ')};"))
                continue
            initializers = renamers[b](d.initializers)
            section, label = f"{_section(d)}{b}", ""
            if heads[context, text] > 1 if is_head else text == d.text:
                number = numbers.setdefault((context, text), len(unit.shared))
                if number < len(unit.shared):
                    unit.shared[number].add(b)
                    continue
                unit.shared.append({b})
                section, label = f"{_COMMON}{number}", f'# 1 "lazyck-shared-{number}"'
                if d.is_instance:
                    unit.instances.add(section)
                if _GLOBAL.search(d.text):
                    unit.kernels[section] = d.is_instance
            line = _within(context, _definition(text, initializers, section) if is_head else text)
            lines += [label, line, f'# 1 "lazyck-blob-{b}"'] if label else [line]
    unit.text = "\n".join(lines) + "\n"
    return unit


def _section(head: Declaration) -> str:
    """Return the kind of section of one blob in which `head` stands with a body."""
    if _GLOBAL.search(head.text):
        return _KERNEL_INSTANCES if head.is_instance else _KERNELS
    return _INSTANCES if head.is_instance else _OWN


def _renames(kept: Mapping[int, Sequence[Declaration]]) -> dict[int, set[str]]:
    """Return, per blob, the private names to be made unique: all that differ between blobs."""
    variants: dict[str, dict[int, tuple[tuple[str, ...], ...]]] = {}
    apart: set[str] = set()  # equal text, yet a different type in every file
    for b, declarations in kept.items():
        by_name: dict[str, list[int]] = {}
        for i, d in enumerate(declarations):
            if d.kind is not DeclarationKind.HEAD:
                for name in d.names:
                    by_name.setdefault(name, []).append(i)
        for i, d in enumerate(declarations):
            if d.kind is DeclarationKind.SUPPORT:
                if is_anonymous(d.context):
                    apart.update(d.names)
                closure = _closure(declarations, by_name, [i])
                text = tuple((*declarations[j].context, declarations[j].text) for j in closure)
                for name in d.names:
                    known = variants.setdefault(name, {})
                    known[b] = known.get(b, ()) + text
    out: dict[int, set[str]] = {}
    for name, per_blob in variants.items():
        is_common = len(per_blob) == len(kept) and len(set(per_blob.values())) == 1 and name not in apart
        if len(per_blob) == 1 or is_common:
            continue
        for b in per_blob:
            out.setdefault(b, set()).add(name)
    return out


class _Renamer:
    """Gives a blob's private names a suffix, wherever they are not members of something else."""

    def __init__(self, names: set[str], blob: int, declarations: Sequence[Declaration]) -> None:
        self.names = {f"{n}__lz{blob}_": n for n in sorted(names)}
        self._new = {n: u for u, n in self.names.items()}
        self._scopes = {w for d in declarations for c in d.context for w in IDENTIFIER.findall(c)}
        either = "|".join(map(re.escape, sorted(names)))
        self._pattern = re.compile(
            rf"(?:([A-Za-z_]\w*|>)\s*::\s*|(?:\.|->)\s*|(?<!\w)::\s*)?(?<!\w)({either})\b" if names else r"(?!)"
        )

    def __call__(self, text: str) -> str:
        return self._pattern.sub(self._replace, text) if self.names else text

    def _replace(self, m: re.Match[str]) -> str:
        before = m[0][: m.start(2) - m.start()]
        is_member = before.startswith((".", "->")) or (m[1] is not None and m[1] not in self._scopes)
        return m[0] if is_member else before + self._new[m[2]]


def _within(context: tuple[str, ...], text: str) -> str:
    return "".join(c + " { " for c in context) + text + " }" * len(context)


def instantiates_a_kernel(d: Declaration) -> bool:
    return bool(d.reference and _GLOBAL.search(d.text))


def _definition(head: str, initializers: str, section: str) -> str:
    """Return the head with an empty body in `section`, and a constructor's `initializers`."""
    prefixes, rest = template_prefixes(head)
    start = _ATTRIBUTES.match(rest)
    at = start.end() if start else 0
    body = "" if initializers == DEFAULT else "{ }" if _GLOBAL.search(rest) else "{ __builtin_trap(); }"
    placed = f'{rest[:at]}__attribute__((used, section("{section}"))) {rest[at:]}'
    return " ".join([*prefixes, placed, initializers, body])


def blame(unit: ProbeUnit, output: str) -> tuple[set[int], bool]:
    """Return the blobs at which a compiler's errors point, by the place of each and how that was
    included, and whether they point at the prelude. Without errors, everything mentioned counts."""
    at_error: set[tuple[str, int]] = set()
    mentioned: set[tuple[str, int]] = set()
    included: set[tuple[str, int]] = set()
    for line in output.splitlines():
        labels = {(kind, int(number or 0)) for kind, number in _LABEL.findall(line)}
        mentioned |= labels
        diagnostic = _DIAGNOSTIC.search(line)
        if diagnostic:
            if diagnostic[1] == "error":
                at_error |= labels | included
            included = set()
        else:
            included |= labels
    found = at_error or mentioned
    blobs = {b for kind, n in found for b in ({n} if kind == "blob" else unit.shared[n] if kind == "shared" else ())}
    return blobs, any(not kind for kind, _ in found)


def read_back(
    image: ElfImage, table: Sequence[Symbol], unit: ProbeUnit, shared: Instances, how: TextCompile | None = None
) -> dict[int, Answer | str]:
    """Return, per blob, what its section defines, or why that cannot be said, for example if it is
    less than the unit asked for, or if headers, which instantiate `shared`, define something.
    `table` has the symbols of `image`. `how` is given if the object was made in that way, rather
    than by the toolchain's own driver."""
    places: dict[int, Collection[int]] = {}
    for i, section in enumerate(image.sections):
        if section.name.startswith((_OWN, _INSTANCES, _KERNELS, _KERNEL_INSTANCES)):
            places[i] = (int(section.name[len(_OWN) :]),)
        elif section.name.startswith(_COMMON):
            places[i] = unit.shared[int(section.name[len(_COMMON) :])]
    counts: Counter[int] = Counter()
    not_kept: set[int] = set()
    symbols, unreachable, handles, data = (defaultdict[int, list[str]](list) for _ in range(4))
    private, merged, weak = (defaultdict[int, set[str]](set) for _ in range(3))
    known = kernels.find(table)
    named = known.names()
    for i, section in enumerate(image.sections):
        if section.name.startswith(_POINTERS):
            b = int(section.name[len(_POINTERS) :])
            for _, index, _ in image.relocations(i):
                counts[b] += 1
                name = _original(table[index].name, unit.renamed[b], b)
                (unreachable if table[index].hidden else symbols)[b].append(name)
                merged[b].add(name)
                if table[index].visibility == "protected":
                    private[b].add(name)
    for s in table:
        if s.type != "FUNC" or s.section not in places or s.name in known.by_nvcc:
            continue
        handle = s.name if s.name in named else known.handles.get(s.name, "")
        place = image.sections[s.section].name
        is_instance = unit.kernels.get(place)  # whether the kernels there are instances, or None without kernels
        if place.startswith((_KERNELS, _KERNEL_INSTANCES)):
            is_instance = place.startswith(_KERNEL_INSTANCES)
        if s.has_vectors and not MACHINES[image.machine].keeps_vectors:
            not_kept.update(places[s.section])
        for b in places[s.section]:
            counts[b] += 1
            name = _original(s.name, unit.renamed[b], b)
            if how and is_instance is not None:
                if s.binding != "LOCAL":
                    handles[b].append(name)
                if s.binding == "LOCAL" or (how.hides_instances if is_instance else how.hides_kernels):
                    unreachable[b].append(name)
                continue
            if handle in named:
                handles[b].append(_original(handle, unit.renamed[b], b))
            if s.name == handle:
                if s.hidden or s.binding == "LOCAL":
                    unreachable[b].append(name)
                continue
            if s.binding == "LOCAL":
                continue
            (unreachable if s.hidden else symbols)[b].append(name)
            if s.visibility == "protected":
                private[b].add(name)
            if s.binding == "WEAK" and s.section in image.merged_sections:
                weak[b].add(name)
            elif s.binding == "WEAK" or place.startswith((_INSTANCES, _KERNEL_INSTANCES)) or place in unit.instances:
                merged[b].add(name)
    shared_out: dict[int, str] = {}
    for vtable, functions in vtables.with_key_functions(image, table).items():
        owners = {b for f in functions for b in places.get(f.section, ())}
        for b in owners:
            if len(owners) == 1:
                data[b].append(_original(vtable, unit.renamed[b], b))
            else:  # only their own objects tell which of them has the first virtual function
                shared_out[b] = f"may define the vtable of {vtables.class_of(vtable)}"
    besides = (s for s in table if s.binding != "LOCAL" and s.section and s.section not in places)
    strays = (s for s in besides if s.section not in image.merged_sections or shared.holds(s.name))
    apart = re.compile(f"_ZT|{TOOLCHAIN_DATA.pattern}")  # of classes, and the toolchain's
    of_kernels = {*known.handles, *known.handles.values()}
    stray = next((s.name for s in strays if s.name not in of_kernels and not apart.match(s.name)), "")
    out: dict[int, Answer | str] = {}
    for b, wanted in unit.heads.items():
        unclear = counts[b] < wanted or any(f"__lz{b}_" in n for n in (*symbols[b], *unreachable[b], *handles[b]))
        if b in not_kept:
            out[b] = "it has arguments in vector registers"
        elif stray:
            out[b] = f"a header defines {stray}"
        elif unclear:
            out[b] = "its symbols depend on what is private to it"
        elif b in shared_out and not data[b]:
            out[b] = shared_out[b]
        else:
            out[b] = Answer(
                tuple(symbols[b]),
                tuple(unreachable[b]),
                eager=defines(data[b]) if data[b] else None,
                merged=frozenset(merged[b]),
                weak=frozenset(weak[b]),
                private=frozenset(private[b]),
                kernels=tuple(handles[b]),
            )
    return out


def _original(symbol: str, renamed: Mapping[str, str], blob: int) -> str:
    """Return the symbol as it would be if the blob's names had kept their own spelling. A mangled
    name has each name's length before it."""
    if f"__lz{blob}_" in symbol:
        for unique, name in sorted(renamed.items(), key=lambda item: -len(item[0])):
            symbol = symbol.replace(f"{len(unique)}{unique}", f"{len(name)}{name}")
    return symbol
