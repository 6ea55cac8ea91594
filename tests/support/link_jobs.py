"""Makes the description of a link that tests of single steps need."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lazyck.postbuild.build_options import BuildSettings
from lazyck.postbuild.job import LinkJob
from lazyck.postbuild.objects.inputs import LinkInputs
from lazyck.postbuild.store import Store
from lazyck.toolchains.command import Invocation, LinkCommand
from support import HERE

NONE: frozenset[Any] = frozenset()
NO_INPUTS = LinkInputs((), True, "", NONE, NONE, (), (), (), (), "", (), {}, 0)
LINK = LinkCommand(Invocation("c++", "host", "/w", ("c++", "-shared"), 1, ()), "/w/libx.so")


def link_job(directory: Path, link: LinkCommand = LINK, inputs: LinkInputs = NO_INPUTS, **more: Any) -> LinkJob:
    """Return a job that works in `directory`, with other fields in `more`."""
    given: Mapping[str, Any] = {
        "settings": BuildSettings("/t", jobs=1),
        "env": os.environ,
        "final": directory,
        "compiler": (HERE.cxx,),
        "store": Store(directory / "store"),
        "say": lambda _: None,
        **more,
    }
    return LinkJob(link, inputs, directory=directory, **given)
