"""Reads and edits ELF objects, archives and what stands in them."""
