"""Learns which symbols each blob will define, without compiling it."""
