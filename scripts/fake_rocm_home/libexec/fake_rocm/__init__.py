"""Implements the tools in bin/: the compiler driver, and the builder of the runtime library."""
