"""Tests that a blob finds its library's symbols, whatever versions these have now."""

import subprocess
import sys
from pathlib import Path

from support import Lazyck

BLOB = 'extern "C" int helper(int); extern "C" int k(int x) { return helper(x); }\n'
CALL = 'extern "C" int k(int); extern "C" int call(int x) { return k(x); }\n'
TWO = """extern "C" int old_helper(int) { return 1; }
extern "C" int new_helper(int) { return 2; }
__asm__(".symver old_helper,helper@V1\\n.symver new_helper,helper@@V2");
"""


def answer(lazyck: Lazyck, tree: Path, main: str, versions: str, said: str = "1 lazy") -> str:
    """Build lazily with a version script, and return what a program gets from the blob."""
    (tree / "main.cpp").write_text(CALL + main)
    (tree / "v.map").write_text(versions)
    script = """
        for name in main blob/k; do c++ -fPIC -c $name.cpp -o $name.o; done
        c++ -shared -Wl,-soname,libk.so -Wl,--version-script=v.map -o libk.so main.o blob/k.o
    """
    done = lazyck("build", "full", "--toolchain", "host", "--blobs", "*/blob/*", "--", "sh", "-ec", script, cwd=tree)
    assert done.returncode == 0 and said in done.stderr, done.stderr
    code = "import ctypes, sys; print(ctypes.CDLL(sys.argv[1]).call(3))"
    called = subprocess.run([sys.executable, "-c", code, tree / "libk.so"], capture_output=True, text=True)
    assert called.returncode == 0, called.stderr
    return called.stdout.strip()


def test_a_blob_refers_to_the_versions_that_its_library_has_now(lazyck: Lazyck, tmp_path: Path) -> None:
    (tmp_path / "blob").mkdir()
    (tmp_path / "blob/k.cpp").write_text(BLOB)
    one = 'extern "C" int helper(int) { return %d; }\n'
    assert answer(lazyck, tmp_path, one % 1, "V1 { global: *; };") == "1"
    two = "V1 { global: *; }; V2 { global: helper; } V1;"
    assert answer(lazyck, tmp_path, TWO, two, "a blob's references have none: helper") == "2"
    (tmp_path / "blob/k.cpp").write_text('extern "C" int k(int x) { return x + 1; }\n')
    assert answer(lazyck, tmp_path, TWO, two) == "4"
    (tmp_path / "blob/k.cpp").write_text(BLOB)
    assert answer(lazyck, tmp_path, one % 3, "V3 { global: *; };") == "3"
