"""Run aiter's own build of its fused attention libraries, forward and backward side by side.

    lazyck build full --blobs '*/blob/*_d[0-9]*.cpp' --gpu-archs gfx942 -- \\
        python examples/aiter/attention_build.py AITER_DIR [fwd] [bwd]

AITER_DIR is a checkout of aiter, which has a script for this (`op_tests/cpp/mha/compile.py`), or
the unpacked `amd-aiter` source archive, whose `jit/core.py` is called in the same way. The blobs'
pattern leaves out what aiter puts beside its generated variants: dispatchers
(`fmha_fwd_api.cpp`, `mha_fwd.cpp`, `asm_fmha_fwd_v3_gfx942.cpp`), which must never be deferred.
"""

import argparse
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

BLOBS = "*/blob/*_d[0-9]*.cpp"
APIS = ("fwd", "bwd")

# The source archive of aiter and an installed aiter lack op_tests/. This script builds the same two
# libraries by name, through the same core.py. Their sources are in `aiter_meta`, where core.py
# looks only if it can find a package `aiter`. It copies the results to op_tests/cpp/mha. The
# functions have the names that aiter's script gives them: if torch is installed, core.py registers
# a function of any other name as an operator.
_FROM_CORE = """
import os, sys
root, api = sys.argv[1:]
sys.path.insert(0, os.path.join(root, "aiter"))
sys.path.append(root)
os.makedirs(os.path.join(root, "op_tests", "cpp", "mha"), exist_ok=True)
from jit.core import compile_ops
def build(): ...
build.__name__ = f"compile_mha_{api}"
compile_ops(f"libmha_{api}", fc_name=build.__name__)(build)()
"""

# The modules outside the standard library that core.py and its helpers may import to build these
# two libraries. torch is not among them.
_MODULES = ("packaging", "pandas", "psutil", "setuptools")


def commands(root: Path, apis: list[str]) -> list[list[str]]:
    """Return the command that builds the library of each of `apis`. Exits with a message if `root`
    is not aiter, or if something that aiter's build needs is missing."""
    if not (root / "aiter" / "jit" / "core.py").is_file():
        sys.exit(f"{root}: no aiter there (aiter/jit/core.py is missing): give a checkout or the unpacked archive")
    modules = missing_modules(root)
    if modules:
        sys.exit(
            f"aiter's build imports {', '.join(modules)}, which {sys.executable} lacks: "
            f"{sys.executable} -m pip install {' '.join(modules)}"
        )
    if shutil.which("ninja") is None:
        sys.exit("aiter's build runs `ninja`, which is not on PATH")
    script = root / "op_tests" / "cpp" / "mha" / "compile.py"
    if script.is_file():
        return [[sys.executable, str(script), f"--api={api}"] for api in apis]
    unknown = [f"libmha_{api}" for api in apis if f"libmha_{api}" not in known_libraries(root)]
    if unknown:
        sys.exit(
            f"{root}: neither op_tests/cpp/mha/compile.py nor {' and '.join(unknown)} in "
            "aiter/jit/optCompilerConfig.json: give a whole checkout of this version of aiter"
        )
    return [[sys.executable, "-c", _FROM_CORE, str(root), api] for api in apis]


def missing_modules(root: Path) -> list[str]:
    """Return the Python packages that aiter's build imports and that this Python lacks."""
    jit = root / "aiter" / "jit"
    text = "".join(p.read_text(errors="replace") for p in (jit / "core.py", *sorted(jit.glob("utils/*.py"))))
    imported = [m for m in _MODULES if re.search(rf"^\s*(?:import|from)\s+{m}\b", text, re.MULTILINE)]
    return [m for m in imported if importlib.util.find_spec(m) is None]


def known_libraries(root: Path) -> frozenset[str]:
    """Return the names in aiter's table of modules. The set is empty if no table can be read."""
    try:
        return frozenset(json.loads((root / "aiter" / "jit" / "optCompilerConfig.json").read_text()))
    except (OSError, ValueError):
        return frozenset()


def locks(root: Path, apis: list[str]) -> list[Path]:
    """Return the lock files of aiter's builds that already exist.

    aiter waits for them for ever, without a message. They are plain files, which a killed build
    leaves behind, and nothing says whether a process still holds one.
    """
    build = Path(os.environ.get("AITER_JIT_DIR") or root / "aiter" / "jit") / "build"
    found = (p for api in apis for p in (build / f"lock_libmha_{api}", build / f"libmha_{api}" / "build" / "lock"))
    return [p for p in found if p.exists()]


def main() -> int:
    """Run the builds. Returns the status of the first that failed, else 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path, metavar="AITER_DIR")
    parser.add_argument("apis", nargs="*", choices=[*APIS, []], metavar="fwd|bwd", help="one of them [default: both]")
    options = parser.parse_args()
    root, apis = options.root.absolute(), options.apis or list(APIS)
    argvs = commands(root, apis)
    for lock in locks(root, apis):
        print(f"warning: {lock} exists: aiter waits for the build that made it; remove it if that build is dead")
        sys.stdout.flush()
    builds = [subprocess.Popen(argv) for argv in argvs]
    return next((status for status in [build.wait() for build in builds] if status), 0)


if __name__ == "__main__":
    sys.exit(main())
