"""Reads the settings of lazyck: its variables, the user's file and the project's."""
