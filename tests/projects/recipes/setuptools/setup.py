from pathlib import Path

from setuptools import Extension, setup

from lazyck.setuptools import build_ext

sources = ["src/module.cpp", *sorted(map(str, Path("src/blob").glob("*.cpp")))]
setup(
    name="kernels",
    version="1.0",
    packages=["kernels"],
    ext_modules=[Extension("kernels._C", sources, include_dirs=["src/include"])],
    cmdclass={"build_ext": build_ext},
)
