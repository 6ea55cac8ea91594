"""`BuildExtension` of torch that makes extensions lazy, in the place of `torch.utils.cpp_extension.BuildExtension`.

See `lazyck.setuptools`. Only this module of lazyck imports torch.
"""

from __future__ import annotations

from torch.utils.cpp_extension import BuildExtension as _BuildExtension

from lazyck.setuptools import Lazily


class BuildExtension(Lazily, _BuildExtension):  # type: ignore[misc]
    """torch's BuildExtension, `with_options` too, whose extensions are lazy."""
