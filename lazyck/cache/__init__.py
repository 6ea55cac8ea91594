"""Looking into a cache, and after it."""
