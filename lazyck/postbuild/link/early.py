"""Knows which functions of a lazy library other files of the build may call where no blob can be
compiled or loaded: by resolvers (IFUNC), while the loader relocates, and by functions in place of
the C or C++ library's, which the runtime calls itself.

Such a file is linked after the library that it needs. So when the build has ended, a library with
such functions is linked once more, as it was, with their blobs as objects. What was found is kept,
for its next link.
"""

import contextlib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from lazyck.errors import FormatError
from lazyck.files import encode, write_atomic
from lazyck.postbuild import state
from lazyck.postbuild.link import relink
from lazyck.postbuild.objects import elf
from lazyck.postbuild.objects.embedded import read_manifest
from lazyck.postbuild.objects.inputs import standard_libraries
from lazyck.postbuild.objects.reveal import plain_name
from lazyck.settings.environment import runtime_source

RECORD = "link.rec"  # in a library's directory: the record of its link
# Operators `new` and `delete`, and what `std` holds.
_MAY_BE_STANDARD = re.compile(r"_Z(?:[nd][wla]|N?K?S)")
_FOUND = "early"  # in the tmp dir: a file for each library with such functions


def known(tmp: Path, directory: Path) -> frozenset[str]:
    """Return such functions of the library that `directory` belongs to."""
    try:
        return frozenset(map(os.fsdecode, (tmp / _FOUND / directory.name).read_bytes().split(b"\0")))
    except OSError:
        return frozenset()


def replaced(
    symbols: Iterable[str], directory: Path, compiler: Sequence[str], env: Mapping[str, str]
) -> frozenset[str]:
    """Return those of `symbols`, strong functions of a link, that stand in place of functions of
    the C or C++ library which the runtime, compiled by `compiler`, calls directly or by these
    libraries. `directory` is the library's."""
    names = frozenset(s for s in symbols if not s.startswith("_Z") or _MAY_BE_STANDARD.match(s))
    libraries = standard_libraries(compiler) if names else []
    # To look for names among all texts takes a tenth of the time of reading the symbols.
    texts = [elf.read_section(path, ".dynstr") or b"" for path in libraries]
    names = frozenset(name for name in names if any(encode(name) + b"\0" in text for text in texts))
    defined = (elf.read_dependency(path).defined for path in libraries if names)
    names = names.intersection(frozenset().union(*defined))
    if not names:
        return frozenset()
    objects = relink.runtime_objects(directory, compiler, runtime_source(), env)
    called = (elf.read_object(path).undefined for path in objects)
    return names.intersection(frozenset().union(*called, *map(elf.called_by, libraries)))


def find(outputs: Iterable[str], tmp: Path, env: Mapping[str, str]) -> list[Path]:
    """Look into the `outputs` of a build's links for such functions of the lazy libraries of `tmp`,
    and keep them. Return the directories of libraries that have some of them lazy."""
    states: dict[Path, state.LinkState] = {}
    for directory in state.library_dirs(tmp):
        with contextlib.suppress(FormatError):  # of another lazyck's build
            states[directory] = state.load(directory)
    asked: dict[str, frozenset[str]] = {}
    for output in outputs if states else ():
        if os.path.isfile(output) and elf.kind(output) in ("shared", "executable"):
            with contextlib.suppress(FormatError):  # the loader will say so
                image, (any_library, *_) = elf.read_shared(output), states
                compiler = states[any_library].runtime_compiler
                own = [name for name in image.functions if image.defined[name] == "GLOBAL"]
                if elf.has_resolvers(output) or replaced(own, any_library, compiler, env):
                    for name in map(os.path.basename, image.needed):
                        asked[name] = image.undefined | asked.get(name, frozenset())
    found = []
    for directory, st in states.items() if asked else ():
        with contextlib.suppress(FormatError):
            lazy = frozenset(map(plain_name, read_manifest(directory / "manifest").functions))
            early = lazy & asked.get(elf.read_shared(directory / st.file_name).soname or st.file_name, frozenset())
            if early and (directory / RECORD).is_file():
                names = sorted(early | known(tmp, directory))
                write_atomic(tmp / _FOUND / directory.name, b"\0".join(map(encode, names)))
                found.append(directory)
    return found
