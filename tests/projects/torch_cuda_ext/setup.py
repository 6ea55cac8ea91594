"""Build a CUDA extension with torch's BuildExtension. Nothing in this file knows of lazyck."""

from pathlib import Path

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CUDAExtension

sources = ["module.cpp", *sorted(map(str, Path("blob").glob("*.cu")))]
setup(
    name="torch_cuda_ext",
    version="1.0",
    ext_modules=[CUDAExtension("torch_cuda_ext", sources, extra_compile_args={"nvcc": ["--threads", "2"]})],
    cmdclass={"build_ext": BuildExtension.with_options(use_ninja="no-ninja" not in Path("how").read_text())},
)
