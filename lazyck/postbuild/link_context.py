"""Holds what all steps of one lazy link share."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from lazyck.files import digest, encode
from lazyck.postbuild.build_options import BuildOptions
from lazyck.postbuild.bundle_paths import BundlePaths
from lazyck.postbuild.objects.inputs import LinkInputs, library_name
from lazyck.postbuild.probe_cache import ProbeCache
from lazyck.toolchains.command import LinkCommand


@dataclass(frozen=True)
class LinkContext:
    link: LinkCommand
    inputs: LinkInputs
    options: BuildOptions
    env: Mapping[str, str]
    final: Path  # the directory of what lazyck keeps of the library
    directory: Path  # where that is made: it replaces `final` at the end
    compiler: tuple[str, ...]  # the C++ compiler for the runtime, which is never a shim
    cache: ProbeCache
    say: Callable[[str], None]  # prints a line about long work

    @cached_property
    def name(self) -> str:
        return library_name(self.link.output)

    @cached_property
    def paths(self) -> BundlePaths:
        """Return where the paths in the words of the link really lead to."""
        return BundlePaths("", dict(self.options.shim_homes), self.name)

    @property
    def work(self) -> Path:
        return self.directory / "probe"

    @cached_property
    def tag(self) -> str:
        """Return what private names are made with. It tells apart the libraries of a process that
        have equal names, and stays equal from build to build. Programs share their entries, and so
        have none."""
        if not self.inputs.shared:
            return ""
        place = os.path.relpath(self.link.output, self.link.call.cwd)
        place = "" if place.startswith(os.pardir) else place  # such as a directory of a random name
        return digest(*map(encode, (self.name, self.inputs.soname, place)))[:8]
