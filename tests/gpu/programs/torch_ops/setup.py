"""Build operators of torch with its BuildExtension. Nothing in this file knows of lazyck."""

from pathlib import Path

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CUDAExtension

sources = ["ops.cpp", *sorted(map(str, Path("blob").glob("*.cu")))]
setup(
    name="lazy_ops",
    version="1.0",
    ext_modules=[CUDAExtension("lazy_ops", sources)],
    cmdclass={"build_ext": BuildExtension.with_options(no_python_abi_suffix=True)},
)
