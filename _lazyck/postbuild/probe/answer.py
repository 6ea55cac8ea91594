"""Defines what is known of a blob: its symbols, or why it must be eager."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from _lazyck.postbuild.reasons import Reason


@dataclass(frozen=True)
class Answer:
    """Holds the fields of `Probed`, or in `eager` the reason to compile ahead of time. `by_itself`
    is true if the blob's own command made the object that was judged: that object is then as good
    as an eager compile's."""

    symbols: tuple[str, ...] = ()
    unreachable: tuple[str, ...] = ()
    compiled: str = ""
    weak: frozenset[str] = frozenset()
    needs: frozenset[str] | None = None
    eager: Reason | None = None
    merged: frozenset[str] = frozenset()
    weak_data: frozenset[str] = frozenset()
    private: frozenset[str] = frozenset()
    kernels: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    by_itself: bool = False

    @classmethod
    def shared_names(cls) -> tuple[str, ...]:
        """Return the names of the fields that `Probed` has too."""
        return tuple(f.name for f in fields(cls) if f.name != "eager")

    def as_json(self) -> dict[str, Any]:
        """Return the answer as JSON for the store. Fields that have their default value are left
        out."""
        said = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}
        if self.eager:
            said["eager"] = self.eager.as_line()
        return {name: sorted(value) if isinstance(value, frozenset) else value for name, value in said.items()}


_TYPES: dict[str, Callable[[Any], Any]] = {
    f.name: frozenset if f.default is None else type(f.default) for f in fields(Answer)
} | {"eager": Reason.of_line}


def from_json(found: Any) -> Answer | None:
    """Return the answer that `as_json` encoded, or None for anything else."""
    try:
        said: dict[str, Any] = {name: _TYPES[name](value) for name, value in found.items()}
        return Answer(**said)
    except (AttributeError, KeyError, TypeError):
        return None
