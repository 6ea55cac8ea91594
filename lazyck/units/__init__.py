"""Split sources into host units and kernel units, with `lazyck-unit` (C++17, `src/`)."""
