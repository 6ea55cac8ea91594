"""Holds what all steps of one lazy link share."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from lazyck.postbuild.build_options import BuildSettings
from lazyck.postbuild.bundle import Places
from lazyck.postbuild.objects.inputs import LinkInputs, chosen_soname, library_name
from lazyck.postbuild.ownership import Ownership
from lazyck.postbuild.store import Store
from lazyck.toolchains.command import LinkCommand


@dataclass(frozen=True)
class LinkJob:
    """Describes a link that is to be made lazy."""

    link: LinkCommand
    inputs: LinkInputs
    settings: BuildSettings
    env: Mapping[str, str]
    final: Path  # the directory of what lazyck keeps of the library
    directory: Path  # where that is made: it replaces `final` at the end
    compiler: tuple[str, ...]  # the C++ compiler for the runtime, which is never a shim
    store: Store
    say: Callable[[str], None]  # is told of work that takes long

    @cached_property
    def name(self) -> str:
        """Return the name of the library."""
        return library_name(self.link.output)

    @cached_property
    def places(self) -> Places:
        """Return where the paths in the words of the link really lead to."""
        return Places("", dict(self.settings.shim_homes), self.name)

    @property
    def work(self) -> Path:
        """Return the directory of the probe's files."""
        return self.directory / "probe"

    def soname(self, owned: Ownership) -> str:
        """Return the soname of the library, or an empty string for an executable."""
        symbols = (s for each in owned.lazy.values() for s in each)
        return (self.inputs.soname or chosen_soname(self.link, symbols)) if self.inputs.shared else ""
