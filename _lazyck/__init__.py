"""What stands behind the commands and the package `lazyck`. Any name here may change."""

__version__ = "0.1.0"
