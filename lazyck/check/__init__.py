"""The oracle: compares a lazy library with the one that the same build makes ahead of time."""
