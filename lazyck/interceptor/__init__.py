"""Intercept the compilers of a build: shims, their set-up, and their log."""
