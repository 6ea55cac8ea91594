"""Caches on other machines: tiers behind the local one, of which nothing is believed before it is verified."""

from __future__ import annotations

from lazyck.remote.names import EntryName
from lazyck.remote.remote import Fetched, Listener, Remote

__all__ = ["EntryName", "Fetched", "Listener", "Remote"]
