"""Reads C++: tokens, declarations and names of a blob's own text, and mangled names."""
