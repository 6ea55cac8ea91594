"""Reads and writes the formats that Python shares with the shim and the runtime."""
