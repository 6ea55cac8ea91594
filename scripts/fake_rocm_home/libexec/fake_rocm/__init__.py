"""The tools behind bin/: the compiler driver, and the builder of the runtime library."""
