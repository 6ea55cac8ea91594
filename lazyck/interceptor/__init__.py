"""Stands in for the compilers of a build: shims, their set-up, their log."""
