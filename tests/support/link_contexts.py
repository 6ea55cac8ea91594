"""Makes the description of a link that tests of single steps need."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lazyck.postbuild.build_options import BuildOptions
from lazyck.postbuild.link_context import LinkContext
from lazyck.postbuild.objects.inputs import LinkInputs
from lazyck.postbuild.probe_cache import ProbeCache
from lazyck.toolchains.command import Invocation, LinkCommand
from support import HERE

NONE: frozenset[Any] = frozenset()
NO_INPUTS = LinkInputs((), True, "", NONE, NONE, (), (), (), (), "", (), {}, {})
LINK = LinkCommand(Invocation("c++", "host", "/w", ("c++", "-shared"), 1, ()), "/w/libx.so")


def link_context(directory: Path, link: LinkCommand = LINK, inputs: LinkInputs = NO_INPUTS, **more: Any) -> LinkContext:
    """Return a job that works in `directory`, with other fields in `more`."""
    given: Mapping[str, Any] = {
        "options": BuildOptions("/t", jobs=1),
        "env": os.environ,
        "final": directory,
        "compiler": (HERE.cxx,),
        "cache": ProbeCache(directory / "store"),
        "say": lambda _: None,
        **more,
    }
    return LinkContext(link, inputs, directory=directory, **given)
