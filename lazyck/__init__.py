"""lazyck: lazy kernel-compilation build system and cache."""

__version__ = "0.1.0"
