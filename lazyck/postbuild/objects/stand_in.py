"""Makes stand-ins of the libraries that a lazy library needs, for the links of its blobs.

A reference gets its version from the library that the linker finds it in. So a blob is linked
against what its library was linked against. Without that, its references have no versions, and the
loader binds each to the oldest version that there is. The libraries themselves need not be where a
blob is compiled, and may be others there. So the bundle has stand-ins: libraries that have the
names, kinds and versions of the symbols, and nothing else. What they hold is in the blobs' keys.

A library without versions has no stand-in: which of its symbols a reference means is decided by
where the loader looks, with or without it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from lazyck import proc
from lazyck.files import digest, encode, write_atomic
from lazyck.postbuild.objects import elf
from lazyck.postbuild.objects.inputs import LinkInputs, has_c_blobs
from lazyck.postbuild.objects.offered import read_offered

_OWN = "lazyck."  # how names begin that only the assembler text has
_KINDS = {"TLS": "tls_object", "OBJECT": "object", "COMMON": "object", "NOTYPE": "notype"}  # of others: function
_OF_C_DRIVERS = ("libc.so.", "libgcc_s.so.")
_OF_DRIVERS = (*_OF_C_DRIVERS, "libm.so.", "libstdc++.so.")
_PLACES = {"tls_object": ' .section .tbss,"awT",@nobits', "object": " .bss"}


class Versioned(NamedTuple):
    name: str
    version: str  # as `nm -D` shows it: `@@V` is the default of several
    kind: str


@dataclass(frozen=True)
class StandIn:
    soname: str
    symbols: tuple[Versioned, ...]

    @property
    def key(self) -> str:
        """Return what stands for this in keys."""
        return digest(*map(encode, (self.soname, *(field for s in self.symbols for field in s))))


class Dependencies:
    """Reads the libraries that a link takes, each once."""

    def __init__(self, inputs: LinkInputs) -> None:
        self._is_c = has_c_blobs(inputs)
        self._paths = tuple(dict.fromkeys(path for _, path in inputs.libraries))  # in the order of the link
        self._offers: dict[str, StandIn | None] = {}

    def stand_ins(self, library: elf.SharedSymbols, compiler: Sequence[str]) -> tuple[StandIn, ...]:
        """Return stand-ins of those libraries that `library` needs and that the drivers of blobs do
        not add themselves. A symbol that `library` itself or a library before defines is left out,
        as the linker takes the first definition. Raises `LazyckError`."""
        taken, before = set(library.defined), list[str]()
        found = []
        added = _OF_C_DRIVERS if self._is_c else _OF_DRIVERS
        for path in (*self._paths, *self._libm(library, compiler)):
            offer = self._offer(path)
            if offer and offer.soname in library.needed and not offer.soname.startswith(added):
                names = {s.name for s in offer.symbols}
                hidden = taken.union(*(names & elf.read_dependency(other).defined.keys() for other in before))
                left = tuple(s for s in offer.symbols if s.name not in hidden)
                found += [StandIn(offer.soname, left)] if left else []
            before.append(path)
        return tuple(found)

    def _libm(self, library: elf.SharedSymbols, compiler: Sequence[str]) -> list[str]:
        """Return where libm is, which drivers of C++ add: a blob in C has it only from here."""
        names = [name for name in library.needed if name.startswith("libm.so.") and self._is_c]
        if not names or any(path.endswith(f"/{names[0]}") for path in self._paths):
            return []
        path = proc.run([*compiler, f"-print-file-name={names[0]}"]).stdout.strip()
        return [path] if Path(path).is_file() else []

    def _offer(self, path: str) -> StandIn | None:
        if path not in self._offers:
            self._offers[path] = _read(Path(path)) if elf.read_section(path, ".gnu.version_d") is not None else None
        return self._offers[path]


def _read(path: Path) -> StandIn:
    offered = read_offered(path)
    rows = ((s, key.removeprefix(s.name)) for key, s in offered.exports.items())
    symbols = (Versioned(s.name, at, _KINDS.get(s.type, "function")) for s, at in rows if at)
    return StandIn(offered.entries.get("SONAME", path.name), tuple(sorted(symbols)))


def assemble(stand_ins: Iterable[StandIn], directory: Path, compiler: Sequence[str]) -> dict[StandIn, Path]:
    """Make `stand_ins` in `directory`, unless they are there. Return the path of each."""
    return {s: _make(s, directory / f"{s.key[:16]}.so", compiler) for s in stand_ins}


def _make(stand_in: StandIn, target: Path, compiler: Sequence[str]) -> Path:
    if target.is_file():
        return target
    directory = target.parent
    write_atomic(directory / "stand-in.S", encode(render(stand_in.symbols)))
    write_atomic(directory / "stand-in.map", encode(render_versions(stand_in.symbols)))
    words = ("-soname", stand_in.soname, "--version-script=stand-in.map", "--build-id=none")
    argv = [*compiler, "-shared", "-nostdlib", "-x", "assembler", "stand-in.S", "-o", target.name]
    argv += [word for each in words for word in ("-Xlinker", each)]
    proc.check(f"making a stand-in of {stand_in.soname}", argv, cwd=directory)
    return target


def render(symbols: Iterable[Versioned]) -> str:
    """Return assembler text that defines `symbols`, whose values mean nothing."""
    lines = []
    for number, s in enumerate(symbols):
        own = f"{_OWN}{number}"
        lines += [_PLACES.get(s.kind, " .text"), f" .globl {own}", f" .type {own},%{s.kind}", f"{own}: .skip 1"]
        lines.append(f' .symver {own},"{s.name}{s.version}"')
    return "\n".join([*lines, ' .section .note.GNU-stack,"",%progbits', ""])


def render_versions(symbols: Iterable[Versioned]) -> str:
    """Return the version script of such a library."""
    nodes: Mapping[str, None] = dict.fromkeys(s.version.lstrip("@") for s in symbols)
    first = f" local: {_OWN}*;"
    return "".join(f"{node} {{{first if i == 0 else ''} }};\n" for i, node in enumerate(nodes))
