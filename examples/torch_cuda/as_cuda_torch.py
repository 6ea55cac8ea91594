"""Run a setup.py, unchanged, with a torch built without CUDA that passes for one built with it.

    CUDA_HOME=DIR python as_cuda_torch.py setup.py build_ext --inplace ...

Such a torch says that there is no CUDA toolkit, whatever is installed. The build needs the toolkit,
so this script looks it up again. With a torch that has CUDA it only runs setup.py.
"""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import torch
import torch.utils.cpp_extension as cpp_extension


def release_of(nvcc: Path) -> str:
    """Return the CUDA release of an nvcc, such as `13.0`."""
    shown = subprocess.run([str(nvcc), "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"release (\d+\.\d+)", shown)
    if found is None:
        sys.exit(f"{nvcc} --version names no release:\n{shown}")
    return found[1]


def pass_for_cuda() -> None:
    """Let a torch without CUDA name the toolkit's release and home as its own."""
    if torch.version.cuda is None:
        home = cpp_extension._find_cuda_home()
        if not home:
            sys.exit("no CUDA toolkit: set CUDA_HOME")
        torch.version.cuda = release_of(Path(home) / "bin" / "nvcc")
        cpp_extension.CUDA_HOME = home


def main() -> None:
    """Run the script that the arguments name, with the arguments after it."""
    pass_for_cuda()
    sys.argv = sys.argv[1:]
    sys.path.insert(0, str(Path(sys.argv[0]).resolve().parent))
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
