"""Fills and empties the cache ahead of time."""
