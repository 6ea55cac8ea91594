"""Reads what runs of lazy libraries left: events, profiles, and the costs of compiles."""
