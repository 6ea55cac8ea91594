"""Makes runtimes that differ from the package's own, for `lazyck build quick` to link."""

import shutil
from pathlib import Path

from lazyck.runtime.builder import SOURCES

_APART = ("hash.cpp", "tool_main.cpp", "tool_make.cpp")  # these make objects of their own


def changed_runtime(where: Path) -> Path:
    """Copy the runtime's sources, with another message when a compile begins, and return the
    copy.

    Sources elsewhere than in the package are compiled one by one. So in the copy, one source of
    each directory includes the others, which takes a third of the time. What is compiled is kept
    for all copies.
    """
    copy = where / "runtime"
    shutil.copytree(SOURCES, copy)
    changed = 0
    for directory in (d for d in copy.iterdir() if d.is_dir()):
        included = []
        for file in sorted(directory.glob("*.cpp")):
            text = file.read_text()
            changed += "compiling " in text
            file.write_text(text.replace("compiling ", "COMPILING AGAIN "))
            if file.name not in _APART:
                included.append(file.rename(file.with_suffix(".inc.hpp")).name)
        (directory / f"all_of_{directory.name}.cpp").write_text("".join(f'#include "{i}"\n' for i in included))
    assert changed
    return copy
