"""Holds what is known of a link, and what it is planned to be.

A link is decided in a loop: `decide` makes a plan from the facts, a step of the plan is carried
out, and what that shows is added to the facts. Facts are only ever added, and there are no more of
them than blobs, symbols, headers and libraries. So the loop ends. Stand-ins alone are those of the
last link, which do not depend on the stand-ins before.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from lazyck.postbuild.eager import EagerObject, HostUnit
from lazyck.postbuild.objects.cudart import CudaRuntime
from lazyck.postbuild.objects.elf import SymbolNames
from lazyck.postbuild.objects.stand_in import StandIn
from lazyck.postbuild.ownership import Ownership
from lazyck.postbuild.probe.group import Probed
from lazyck.postbuild.reasons import Reason
from lazyck.toolchains.command import CompileCommand


@dataclass(frozen=True)
class Facts:
    """Holds what steps of the link have shown."""

    objects: Mapping[CompileCommand, EagerObject] = field(default_factory=dict)  # what was compiled eagerly
    names: Mapping[CompileCommand, SymbolNames] = field(default_factory=dict)  # of those objects
    needs: Mapping[CompileCommand, frozenset[str]] = field(default_factory=dict)  # of blobs whose compile was asked
    refused: Mapping[CompileCommand, Reason] = field(default_factory=dict)  # blobs that no bundle can serve
    headers: frozenset[tuple[int, str]] = frozenset()  # what bundles lacked (see `BundleProof`)
    unexported: frozenset[str] = frozenset()  # symbols that the link, and not their object, hides
    lost: frozenset[str] = frozenset()  # symbols that cannot be offered to blobs
    dropped: Mapping[str, frozenset[str]] = field(default_factory=dict)  # libraries by path → what they alone have
    stand_ins: tuple[StandIn, ...] = ()  # of libraries with versions, which blobs are linked against
    without_runtime: frozenset[str] = frozenset()  # what wrappers of a GPU runtime lack (see `Observed`)

    def __len__(self) -> int:
        return sum(len(getattr(self, f.name)) for f in fields(self))


@dataclass(frozen=True)
class Settled:
    """Holds the owner of each symbol, and the decision about each blob."""

    owned: Ownership
    lazy: tuple[Probed, ...]
    objects: tuple[EagerObject, ...]  # of eager blobs
    copies: frozenset[CompileCommand] = frozenset()  # left out: an earlier blob of the source defines what they would
    unneeded: frozenset[CompileCommand] = frozenset()  # of static archives, left out too
    plain: Mapping[str, str] = field(default_factory=dict)  # symbols with private names that are exported, too → how

    @property
    def compiled(self) -> list[EagerObject]:
        return [made for made in self.objects if made.error is None]

    @property
    def units(self) -> list[HostUnit]:
        return [made.unit for made in self.objects if made.unit]

    @property
    def failed(self) -> list[EagerObject]:
        return [made for made in self.objects if made.error is not None]


@dataclass(frozen=True)
class Demands:
    """Lists what a link must do because blobs need it."""

    pulled: frozenset[str] = frozenset()  # symbols whose members must be pulled out of archives
    only_named: frozenset[str] = frozenset()  # symbols of archives that the text of a blob names, and nothing needs
    kept: tuple[str, ...] = ()  # the paths of shared libraries to keep
    offered: Mapping[str, str] = field(default_factory=dict)  # hidden symbols of objects → their private names
    at_exit: Mapping[str, str] = field(default_factory=dict)  # functions of `reveal.AT_EXIT` → their private names
    whole: bool = False  # whether blobs are compiled whole: the wrappers of a GPU runtime are out of their reach
    stand_ins: tuple[StandIn, ...] = ()
    has_blobs: bool = True  # kernel units use nothing of the library


@dataclass(frozen=True)
class Plan:
    """Holds the next step: blobs to compile eagerly, else blobs to ask what they need, else the
    link."""

    compile: Mapping[CompileCommand, Reason] = field(default_factory=dict)
    ask: frozenset[CompileCommand] = frozenset()
    settled: Settled | None = None
    demands: Demands = Demands()
    real: SymbolNames = field(default_factory=SymbolNames)  # of the link's objects and of the eager blobs' objects
    taken: SymbolNames = field(default_factory=SymbolNames)  # of the archives' members that the link takes
    runtime: CudaRuntime | None = None  # the GPU runtime that blobs share with the library
