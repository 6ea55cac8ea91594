"""The C++ runtime's sources (`src/`) and the Python that builds them."""
