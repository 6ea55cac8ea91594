"""Prebuilt entries as a file that a deployment installs beside the library: a tar or a wheel."""
