"""Sources taken apart: the program `lazyck-unit` (C++17, `src/`), which makes host units and kernel units."""
