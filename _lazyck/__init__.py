"""What stands behind lazyck's commands and its Python interface, which is the package `lazyck`.

Nothing here is for other programs: any name may change.
"""

__version__ = "0.1.0"
