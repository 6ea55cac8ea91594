"""Everything that names a compiler: one module per toolchain."""
