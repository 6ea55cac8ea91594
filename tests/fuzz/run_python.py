"""Runs one target of python_targets.py under libFuzzer (atheris), guided by coverage of lazyck:

python tests/fuzz/run_python.py --TARGET [FLAG OF LIBFUZZER | CORPUS]...

tests/fuzz/run.sh calls this script, with limits. The script writes into the working directory.
TARGET looks like an option because libFuzzer, which starts this command again to merge corpora,
ignores words with two dashes. Without any words, the script only reports whether atheris is
there: status 0 if so, or 77. So far 6.06 million inputs were tried: docs/reliability.md.
"""

import shlex
import sys
from pathlib import Path

try:
    import atheris
except ImportError as e:
    print(f"{e} (pip install atheris; it has wheels of CPython 3.11 to 3.14 for Linux on x86_64)")
    sys.exit(77)
if len(sys.argv) == 1:
    sys.exit()

# Only coverage of the decoders' own code counts, not that of the standard library.
with atheris.instrument_imports(include=["lazyck"]):
    from fuzz.python_targets import TARGETS


def main() -> None:
    target = TARGETS[sys.argv[1].removeprefix("--")]
    file = Path("input").resolve()
    command = shlex.join([sys.executable, *sys.argv[:1]])  # libFuzzer passes this to a shell
    atheris.Setup([command, *sys.argv[1:]], lambda data: target(data, file))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
