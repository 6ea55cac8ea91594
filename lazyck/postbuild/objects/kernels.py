"""Finds the symbols by which GPU runtimes know a blob's kernels.

What a file launches, or passes to a function of a GPU runtime, is the *address* of the kernel's
host symbol. This address is the kernel's handle, and the kernel's own object has registered it. No
stub may stand under that name, because the stub's address is not registered.

- clang (HIP): the handle of `K` is a variable `K`. A launch calls a function `__device_stub__K`.
- nvcc: the handle of `K` is the function `K`, and a launch calls it too. `K` calls a function
  `__device_stub__…` whose name contains the whole mangled name of `K`. By default, the handles of
  template instances are local, and the others are hidden. With `-static-global-template-stub=false`
  and `-device-entity-has-hidden-visibility=false` all are visible, as those of nvcc 12 are.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from lazyck.postbuild.cxx import demangle
from lazyck.postbuild.cxx.mangled import identifiers
from lazyck.postbuild.objects.elf import Symbol
from lazyck.postbuild.reasons import Reason, ReasonKind

_LAUNCHER = "__device_stub__"
_OF_NVCC = re.compile(r"_ZL?(\d+)__device_stub_(?=_Z)")
_OF_CLANG = re.compile(r"(\d+)" + _LAUNCHER)
_PRIVATE = re.compile(r"_ZL|.*_GLOBAL__N_")


@dataclass(frozen=True)
class Kernels:
    handles: Mapping[str, str] = field(
        default_factory=dict
    )  # the function that launches a kernel → the kernel's handle
    by_nvcc: frozenset[str] = frozenset()  # those of these functions that no other file calls

    def names(self) -> frozenset[str]:
        """Return the handles of kernels that other files could mean by these names."""
        return frozenset(h for h in self.handles.values() if not _PRIVATE.match(h))


def find(table: Iterable[Symbol]) -> Kernels:
    types = {s.name: s.type for s in table if s.section != 0}
    handles: dict[str, str] = {}
    by_nvcc: set[str] = set()
    for launcher in [name for name, kind in types.items() if _LAUNCHER in name and kind == "FUNC"]:
        # An `extern "C"` kernel has a mangled name here too, although its symbol is its plain name.
        m = _OF_NVCC.match(launcher)
        kernel = launcher[m.end() : m.end(1) + int(m[1])] if m else ""
        handle = next((name for name in (kernel, *sorted(identifiers(kernel))) if types.get(name) == "FUNC"), "")
        if handle:
            by_nvcc.add(launcher)
        of_clang = _OF_CLANG.sub(lambda m: str(int(m[1]) - len(_LAUNCHER)), launcher).replace(_LAUNCHER, "")
        handles[launcher] = handle or of_clang
    return Kernels({s: h for s, h in handles.items() if h in types}, frozenset(by_nvcc))


def launched(kernel: str, file: str, env: Mapping[str, str]) -> Reason:
    """Return why a blob is eager: `file` launches its `kernel`, or takes the address."""
    name = demangle.all_readable([kernel], env, ["--no-params"])[kernel]
    return Reason(ReasonKind.KERNEL_USED, f"{name}, in {file}")
