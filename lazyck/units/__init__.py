"""Split sources into host units and kernel units, with the program `lazyck-unit` (C++17,
`src/`)."""
