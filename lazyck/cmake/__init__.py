"""Holds lazyck's package for CMake's `find_package`. `lazyck --cmake-dir` prints this directory."""
