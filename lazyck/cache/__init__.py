"""Inspection and maintenance of caches."""
