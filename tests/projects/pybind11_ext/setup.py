"""Build a pybind11 extension with setuptools. Nothing in this file knows of lazyck."""

from pathlib import Path

from pybind11.setup_helpers import Pybind11Extension
from setuptools import setup

sources = ["module.cpp", *sorted(map(str, Path("blob").glob("*.cpp")))]
setup(name="pybind11_ext", version="1.0", ext_modules=[Pybind11Extension("pybind11_ext", sources, cxx_std=17)])
