"""Build a package with a C++ extension with setuptools. Nothing in this file knows of lazyck."""

from pathlib import Path

from setuptools import Extension, setup

package = next(Path().glob("*/__init__.py")).parent.name
setup(
    name=package,
    version="1.0",
    packages=[package],
    ext_modules=[
        Extension(
            f"{package}._C",
            sources=["src/module.cpp", *sorted(map(str, Path("src/blob").glob("*.cpp")))],
            include_dirs=["src/include"],
            extra_compile_args=["-std=c++17"],
            language="c++",
        )
    ],
)
