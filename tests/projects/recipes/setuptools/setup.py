import os
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext


class LazyBuildExt(build_ext):
    """build_ext, once more in a process of its own, under lazyck. KERNELS_LAZY=0 builds ahead of time."""

    def run(self):
        if os.environ.get("KERNELS_LAZY") == "0":
            return super().run()
        wrap = [sys.executable, "-m", "lazyck", "build", "full", "--blobs", "*/src/blob/*.cpp"]
        wrap += ["--tmp-dir", "build/lazyck", "--"]
        build = [sys.executable, "setup.py", "build_ext", "-b", self.build_lib, "-t", self.build_temp]
        build += ["--inplace"] if self.inplace else []
        return subprocess.run([*wrap, *build], env={**os.environ, "KERNELS_LAZY": "0"}, check=True)


sources = ["src/module.cpp", *sorted(map(str, Path("src/blob").glob("*.cpp")))]
setup(
    name="kernels",
    version="1.0",
    packages=["kernels"],
    ext_modules=[Extension("kernels._C", sources, include_dirs=["src/include"])],
    cmdclass={"build_ext": LazyBuildExt},
)
