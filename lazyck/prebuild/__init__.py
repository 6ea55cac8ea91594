"""Fill and empty the cache ahead of time."""
