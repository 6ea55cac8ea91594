"""Fuzz targets, their seeds and corpora, and tests that run each for a moment."""
