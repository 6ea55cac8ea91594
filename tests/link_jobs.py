"""Makes the description of a link that tests of single steps need."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from support import HERE

from _lazyck.command import Invocation, LinkCommand
from _lazyck.postbuild.job import LinkJob
from _lazyck.postbuild.objects.inputs import LinkInputs
from _lazyck.postbuild.store import Store
from _lazyck.settings import BuildSettings

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
