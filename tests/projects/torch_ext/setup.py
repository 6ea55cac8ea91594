"""Build an extension of torch with its BuildExtension. Nothing in this file knows of lazyck."""

from pathlib import Path

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension

sources = ["module.cpp", *sorted(map(str, Path("blob").glob("*.cpp")))]
setup(
    name="torch_ext",
    version="1.0",
    ext_modules=[CppExtension("torch_ext", sources, extra_compile_args=["-O0", "-g0"])],
    cmdclass={"build_ext": BuildExtension},
)
