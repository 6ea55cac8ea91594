"""A `BuildExtension` that makes extensions lazy and replaces
`torch.utils.cpp_extension.BuildExtension`.

See `lazyck.setuptools`. No other module of lazyck imports torch.
"""

from torch.utils.cpp_extension import BuildExtension as _BuildExtension

from lazyck.setuptools import Lazily


class BuildExtension(Lazily, _BuildExtension):  # type: ignore[misc]
    """torch's BuildExtension with lazy extensions. `with_options` works too."""
