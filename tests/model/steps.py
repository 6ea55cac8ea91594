"""Combine the steps of the protocol. Each step is atomic: it reads or changes one thing that others
can see. It names the code that it stands for.

A step is a function of world, state and thread. It yields what may happen next, each with a few
words. A step that yields nothing waits. A mutation (`mutations.py`) leaves out or exchanges one
line of a step.
"""

from . import sharing, threads
from .step import STEPS as STEPS

__all__ = ["STEPS", "sharing", "threads"]
