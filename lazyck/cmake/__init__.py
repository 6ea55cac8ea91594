"""lazyck's package for CMake's `find_package`; this directory is what `lazyck --cmake-dir` prints."""
