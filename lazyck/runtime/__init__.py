"""The sources of the C++ runtime (`src/`) and the Python that builds them."""
