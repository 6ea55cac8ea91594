"""Remote caches: tiers on other machines behind the local cache. Nothing from them is believed
before it is verified."""

from lazyck.remote.entry_name import EntryName
from lazyck.remote.remote import Fetched, Listener, Remote

__all__ = ["EntryName", "Fetched", "Listener", "Remote"]
