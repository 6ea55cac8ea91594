"""Defines what is known of a blob: its symbols, or why it must be eager."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

from _lazyck.command import CompileCommand
from _lazyck.postbuild.reasons import Reason


@dataclass(frozen=True)
class Answer:
    """Holds what is known of a source.

    - `symbols`: the functions that it defines.
    - `unreachable`: symbols that it defines but that a slot cannot reach (hidden ones). If anything
      needs one of these, the blob must be compiled eagerly.
    - `compiled`: why the blob was compiled by itself. It is empty if the group's probe answered
      everything.
    - `weak`: those of `symbols` and `kernels` that others who use them have too (inline functions,
      implicit instantiations). Compilers leave them out if nothing in the blob uses them, so that
      they count only where they are needed.
    - `needs`: what it leaves undefined, or None if only a compile of its own could tell.
    - `eager`: the reason to compile it ahead of time, or None.
    - `merged`: those of `symbols` that give way to a definition elsewhere (explicit instantiations,
      `__attribute__((weak))`).
    - `weak_data`: variables of inline functions and templates that it has a copy of, as far as a
      compile of its own told. A program has one copy.
    - `private`: those of `symbols` that no other library sees ahead of time, because of the build's
      options.
    - `kernels`: the handles of its kernels, hidden or not. If anything needs one of these, the blob
      must be compiled eagerly too.
    - `aliases`: functions that are another name of a function, each followed by that function, with
      which it shares its address.
    - `by_itself`: whether the project's own command made the object that was judged: that object is
      then as good as an eager compile's.
    """

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

    def as_json(self) -> dict[str, Any]:
        """Return the answer as JSON for the store, without fields that have their default value."""
        said = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}
        if self.eager:
            said["eager"] = self.eager.as_line()
        return {name: sorted(value) if isinstance(value, frozenset) else value for name, value in said.items()}


@dataclass(frozen=True)
class Probed(Answer):
    """Describes a blob whose symbols are known. `headers` are all files besides its source that
    compiling it reads, as absolute paths."""

    blob: CompileCommand = field(kw_only=True)
    headers: frozenset[str] = field(kw_only=True)

    @property
    def firm(self) -> frozenset[str]:
        """Return those of `symbols` that give way to nothing."""
        return frozenset(self.symbols) - self.weak - self.merged


_TYPES: dict[str, Callable[[Any], Any]] = {
    f.name: frozenset if f.default is None else type(f.default) for f in fields(Answer)
} | {"eager": Reason.of_line}


def from_json(found: Any) -> Answer | None:
    """Return the answer that `as_json` encoded, or None for anything else."""
    try:
        return Answer(**{name: _TYPES[name](value) for name, value in found.items()})
    except (AttributeError, KeyError, TypeError):
        return None
