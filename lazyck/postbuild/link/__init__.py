"""Links the lazy library in place of the project's own link."""
