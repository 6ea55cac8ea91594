"""Reads a blob's real host-only object: its functions, and whether it must be compiled eagerly."""

import re
from collections.abc import Sequence

from lazyck import abi
from lazyck.machines import MACHINES
from lazyck.postbuild.cxx import demangle
from lazyck.postbuild.cxx.instances import Instances
from lazyck.postbuild.cxx.mangled import template_of
from lazyck.postbuild.objects import kernels, vtables
from lazyck.postbuild.objects.elf import ElfImage, Symbol, asked_for
from lazyck.postbuild.objects.vtables import is_of_class
from lazyck.postbuild.probe.group import Answer
from lazyck.postbuild.probe.preprocess import place_of
from lazyck.postbuild.reasons import Reason, ReasonKind
from lazyck.toolchains.gpu_runtimes import GPU_RUNTIMES

# This is data that toolchains add to every object with kernels.
TOOLCHAIN_DATA = re.compile("|".join(gpu.own_data for gpu in GPU_RUNTIMES))
# Start-up code runs through these functions. They are looked into, not held against the blob.
START_UP = re.compile(
    r"_GLOBAL__(sub_)?I_|__cxx_global_var_init|__cxx_global_array_|_Z\d+__static_initialization_and_destruction_0"
)
# Start-up code of every file may refer to these: the toolchain's registration and <iostream>.
HARMLESS = re.compile(
    r"_ZNSt8ios_base4Init[CD][12]Ev|_ZStL8__ioinit|__cxa_atexit|atexit|__dso_handle|\.L|_GLOBAL_OFFSET_TABLE_|"
    r"__device_stub__|" + "|".join(gpu.own_code for gpu in GPU_RUNTIMES)
)
# Start-up code of a header may call these of the C and C++ runtime: nobody can tell when it does.
_PURE = re.compile(
    r"mem(?:cpy|move|set)|strlen|__cxa_begin_catch|__gxx_personality_\w+|_Unwind_Resume|__stack_chk_fail|"
    r"_ZSt9terminatev|_ZSt\d+__throw_l\w+_errorPKc|_Z(?:n[wa]|d[la])[mP]\w*"
)
# It may make and unmake what consists of these.
_VALUES = frozenset({"__cxx11", "cxx11", "basic_string", "char_traits", "initializer_list", "vector", "__gnu_cxx"})
_OF_VALUES = re.compile(r"_ZNK?(?:S|9__gnu_cxx)\w+")
_NUMBERED = re.compile(r"S[0-9A-Z]*_|[CD]\d|(\d+)")  # in a mangled name: the last is the length of a name
# The linker defines bounds of sections with such names.
_WHOLE = re.compile(r"[A-Za-z_]\w*")
_OF_TOOLCHAINS = re.compile(r"__nv|__CUDA|__CLANG|__hip|\w*offloading_entries|__patchable|__llvm|__sancov|asan_|__xray")
# nvcc 12 makes kernels of unnamed namespaces global, with a digest of the file's name in theirs.
_UNNAMED = re.compile(r"\d_GLOBAL__N_")
_REFUSED = {gpu.registering_as(abi.REGISTER_MANAGED) for gpu in GPU_RUNTIMES if not gpu.takes_late_managed}
_NO_INSTANCES = Instances()
_UNDEFINED, _RESERVED = 0, 0xFF00
_SHF_WRITE, _SHF_ALLOC = 1, 2


def defines(data: Sequence[str]) -> Reason:
    """Return why a blob that defines `data` is eager: a slot can stand for a function only, and
    other files may use these."""
    variables = [name for name in data if not is_of_class(name)]
    if variables:
        return Reason(ReasonKind.DATA, ", ".join(variables[:3]))
    of_classes = list(dict.fromkeys(map(vtables.class_of, data)))
    return Reason(ReasonKind.VTABLE, ", ".join(of_classes[:3]))


def judge(
    image: ElfImage,
    source: str,
    suspects: tuple[str, ...] = (),
    *,
    own_initializers: bool,
    own: Instances = _NO_INSTANCES,
) -> Answer:
    """Judge the blob of `source` by its object. `own_initializers` is true if code that runs at
    load would be the blob's own rather than its headers'. `suspects` are the variables that may be
    behind such code. `own` is what the blob's text instantiates."""
    table = image.symbols()
    symbols, unreachable, data = (list[str]() for _ in range(3))
    weak, private, merged, weak_data = (set[str]() for _ in range(4))
    known = kernels.find(table)
    handles = known.names()
    unreachable += [s.name for s in table if s.name in handles and (s.hidden or s.binding == "LOCAL")]
    weak |= {handle for handle in handles if template_of(handle) and not own.holds(handle)}
    for s in table:
        if s.name in _REFUSED:
            return Answer(eager=Reason(ReasonKind.MANAGED))
        if s.binding == "LOCAL" or s.section == _UNDEFINED or not s.name:
            continue
        if s.name in handles or s.name in known.by_nvcc:
            continue
        if "@" in s.name:
            return Answer(eager=Reason(ReasonKind.VERSIONED, s.name))
        if s.type == "NOTYPE" and s.section < _RESERVED and image.sections[s.section].name.startswith(".text"):
            return Answer(eager=Reason(ReasonKind.UNTYPED, s.name))
        if s.type in ("FUNC", "IFUNC"):
            if s.has_vectors and not MACHINES[image.machine].keeps_vectors:
                return Answer(eager=Reason(ReasonKind.VECTORS, s.name))
            if _UNNAMED.search(s.name):
                continue
            (unreachable if s.hidden else symbols).append(s.name)
            if s.visibility == "protected":
                private.add(s.name)
            if s.binding == "WEAK":
                # A function with several versions stands in a group too, without being inline.
                is_inline = s.section in image.merged_sections and s.type == "FUNC" and not own.holds(s.name)
                (weak if is_inline else merged).add(s.name)
        elif not TOOLCHAIN_DATA.match(s.name):
            if s.section not in image.merged_sections or own.holds_data(s.name):
                data.append(s.name)
            elif not s.hidden:
                weak_data.add(s.name)
    data += vtables.with_key_functions(image, table)
    if data:
        return Answer(eager=defines(data))
    if own_initializers:
        called, variables = start_up(image, table, of_headers=False)
        if called:
            shown = demangle.readable_lines((suspects or variables or called)[:3])
            return Answer(eager=Reason(ReasonKind.INITIALIZER, f"{', '.join(shown)} at {place_of(shown[0], source)}"))
    elif reason := of_headers(image, table):
        return Answer(eager=reason)
    return Answer(
        tuple(symbols),
        tuple(unreachable),
        weak=frozenset(weak),
        needs=asked_for(table),
        merged=frozenset(merged),
        weak_data=frozenset(weak_data),
        private=frozenset(private),
        kernels=tuple(sorted(handles)),
        aliases=_aliases(table, frozenset(symbols) - weak),
    )


def of_headers(image: ElfImage, table: list[Symbol]) -> Reason | None:
    """Return why a blob is eager whose headers put into the object what only holds in its own
    library."""
    called, _ = start_up(image, table, of_headers=True)
    if called:
        return Reason(ReasonKind.INITIALIZER, f"{', '.join(demangle.readable_lines(called[:3]))}, by a header")
    allocated = (s.name for s in image.sections if s.flags & _SHF_ALLOC and s.size)
    whole = next((name for name in allocated if _WHOLE.fullmatch(name) and not _OF_TOOLCHAINS.match(name)), "")
    return Reason(ReasonKind.SECTION, f"{whole}, by way of __start_{whole}, by a header") if whole else None


def _makes_values(symbol: str) -> bool:
    """Return whether a mangled name is that of a constructor, destructor or internal function of
    strings, vectors, and what they consist of."""
    at = 0
    while m := _NUMBERED.search(symbol, at):
        at = m.end() + int(m[1] or 0)
        name = symbol[m.end() : at] if m[1] else "allocator"
        if name not in _VALUES and not name.startswith("_M_") and not name.endswith("allocator"):
            return False
    return _OF_VALUES.fullmatch(symbol) is not None


def _aliases(table: list[Symbol], functions: frozenset[str]) -> tuple[str, ...]:
    """Return those of `functions` that are aliases, each followed by the first of its names."""
    first: dict[tuple[int, int], str] = {}
    found: list[str] = []
    for s in table:
        if s.type == "FUNC" and s.size and s.name in functions:
            target = first.setdefault((s.section, s.value), s.name)
            found += [s.name, target] if target != s.name else []
    return tuple(found)


def start_up(image: ElfImage, table: list[Symbol], *, of_headers: bool) -> tuple[list[str], list[str]]:
    """Return the names that the object's start-up and tear-down code refers to, apart from what
    every object's does, and the object's own variables among these, which this code is about.

    If all that code is `of_headers`, it may also make constants, strings and containers that no
    other file has: nobody can tell when that happens.
    """
    machine = MACHINES[image.machine]
    functions: dict[int, list[Symbol]] = {}
    for s in table:
        if s.type == "FUNC" and s.section not in (_UNDEFINED,) and s.section < len(image.sections):
            functions.setdefault(s.section, []).append(s)

    def function_at(section: int, offset: int) -> Symbol | None:
        return next((f for f in functions.get(section, ()) if f.value <= offset < f.value + max(f.size, 1)), None)

    def targets(section: int, low: int, high: int) -> list[tuple[Symbol, int]]:
        return [(table[s], a) for o, s, a in image.relocations(section) if s and low <= o < high]

    def local_calls(f: Symbol) -> list[tuple[Symbol, int]]:
        # The assembler resolves calls within a section by itself and leaves no relocation.
        code = image.content(image.sections[f.section])[f.value : f.value + f.size]
        starts = {g.value: g for g in functions[f.section]}
        return [(starts[f.value + at], 0) for at in machine.calls(code) if f.value + at in starts]

    def variable_at(section: int, offset: int) -> str:
        own = (s for s in table if s.section == section and s.type in ("OBJECT", "TLS") and s.binding == "LOCAL")
        return next((s.name for s in own if s.value <= offset < s.value + s.size), "")

    def is_own(s: Symbol) -> bool:
        return s.type in ("OBJECT", "TLS") and s.section != _UNDEFINED and s.binding == "LOCAL"

    def leads_on(section: int, low: int, high: int) -> bool:
        """Return whether data has addresses of what is no data itself."""
        return any(s.type not in ("OBJECT", "TLS") for s, _ in targets(section, low, high))

    def is_harmless(s: Symbol) -> bool:
        if HARMLESS.match(s.name) or (is_own(s) and not of_headers):
            return True
        if not of_headers:
            return False
        if s.type in ("OBJECT", "TLS") and _UNDEFINED < s.section < len(image.sections):
            is_changed = s.binding != "LOCAL" and image.sections[s.section].flags & _SHF_WRITE
            return not is_changed and not leads_on(s.section, s.value, s.value + s.size)
        return _PURE.fullmatch(s.name) is not None or _makes_values(s.name)

    found: dict[str, None] = {}
    variables: dict[str, None] = {}
    todo: list[tuple[Symbol, int]] = []
    for i, section in enumerate(image.sections):
        if re.match(r"\.(init_array|fini_array|ctors|dtors|preinit_array)\b", section.name):
            todo += targets(i, 0, section.size)
        elif section.name in (".init", ".fini") and section.size:
            found[section.name] = None
    seen: set[tuple[int, int]] = set()
    todo += [(f, 0) for f in table if f.type == "FUNC" and f.section != _UNDEFINED and START_UP.match(f.name)]
    while todo:
        target, addend = todo.pop()
        where = target
        if target.type == "SECTION":
            behind = addend + machine.operand_size
            inside = function_at(target.section, addend) or function_at(target.section, behind)
            if inside is None:  # then the target is a variable, which is not held against the blob
                variables[variable_at(target.section, behind)] = None
                continue
            where = inside
        if where.type == "FUNC" and where.section != _UNDEFINED and START_UP.match(where.name):
            if (where.section, where.value) not in seen:
                seen.add((where.section, where.value))
                todo += targets(where.section, where.value, where.value + where.size) + local_calls(where)
        else:
            if is_own(where):
                variables[where.name] = None
            if not is_harmless(where):
                found[where.name] = None
    return list(found), [v for v in variables if v and not HARMLESS.match(v)]
