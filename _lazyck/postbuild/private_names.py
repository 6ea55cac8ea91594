"""Makes the names by which blobs call functions that their library hides ahead of time.

A function that `-fvisibility=hidden` keeps within its library is bound there, whatever other
libraries define. A lazy library and its blobs are several files, and the loader binds them by name.
So the function gets a name that no other library has. The runtime gives it to the symbols of the
blobs' objects, both where they define such a function and where they refer to it
(runtime/src/store/private_names.cpp). A stub has the private name and the plain one, and so has
what the library's own objects hide.
"""

import hashlib

from _lazyck import abi
from _lazyck.files import encode


def private_name(symbol: str, library: str) -> str:
    """Return the private name of `symbol` in the library of that soname. `library` is empty for a
    program, of which a process has one."""
    return f"{symbol}{abi.PRIVATE_MARK}{hashlib.sha256(encode(library)).hexdigest()[:8]}"


def plain_name(symbol: str) -> str:
    """Return the name of which `symbol` is the private one, or `symbol` itself if it is none."""
    return symbol.rpartition(abi.PRIVATE_MARK)[0] or symbol
