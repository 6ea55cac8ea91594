"""The protocol as atomic steps: each reads or changes one thing that others can see, and names the code it stands for.

A step is a function of world, state and thread; it yields what may happen next, each with a few words. One that yields
nothing waits. A mutation (`mutations.py`) is a line of it that is left out or exchanged.
"""

from __future__ import annotations

from . import sharing, threads
from .step import STEPS as STEPS

__all__ = ["STEPS", "sharing", "threads"]
