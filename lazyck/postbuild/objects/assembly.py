"""Renders what assembler texts have in common: a machine's code, and how a symbol begins."""

from lazyck import abi


def text(code: str, number: int = 0, **places: str | int) -> str:
    """Return `code`, of a row of `machines.py`, with the values of its places."""
    return code.format(handles=abi.SYMBOL_READY, handle_bits=abi.READY_HANDLE_BITS, number=number, **places)


def symbol(name: str, kind: str, visibility: str = "hidden") -> list[str]:
    seen = [f" .{visibility} {name}"] if visibility else []
    return [f" .globl {name}", *seen, f" .type {name},@{kind}", f"{name}:"]
