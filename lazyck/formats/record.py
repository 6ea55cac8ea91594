"""What the shim saw of a compile or a link.

Record (little endian; in the section `.lazyck.record` of a deferred object, and in the shim's link
requests):

    record  := "LZRC" version:u32 size:u32 kind:u8[4] fields     size: of the whole record
    kind    := "COMP" | "LINK"
    fields  := tool toolchain cwd source output content prefix argv env    of a link, without source
    content := size ":" CRC-32           of the source then; empty if it is no plain file
    argv    := count:u32 string*         env := count:u32 (string string)*         prefix := u32
    string  := length:u32 byte*          everything else of type string

A section may hold several records, one after the other, since `ld -r` concatenates them.
"""

import os

from lazyck import abi
from lazyck.errors import FormatError
from lazyck.toolchains.command import CompileCommand, Invocation, LinkCommand


class _Reader:
    def __init__(self, data: bytes, at: int, end: int, where: str) -> None:
        self.data, self.at, self.end, self.where = data, at, end, where

    def take(self, size: int) -> bytes:
        if self.at + size > self.end:
            raise FormatError(f"{self.where}: a record of the shim is cut short", "run the build again from clean")
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self) -> int:
        return int.from_bytes(self.take(4), "little")

    def string(self) -> str:
        return os.fsdecode(self.take(self.number()))


def decode_records(data: bytes, where: str) -> list[CompileCommand | LinkCommand]:
    """Decode the records in `data`. `where` names their file in errors. Raises `FormatError`."""
    found: list[CompileCommand | LinkCommand] = []
    at = 0
    while at < len(data):
        if data[at] == 0:  # `ld -r` pads between sections
            at += 1
            continue
        r = _Reader(data, at, len(data), where)
        if r.take(4) != abi.RECORD_MAGIC:
            raise FormatError(f"{where}: not a record of the lazyck shim", "run the build again from clean")
        version = r.number()
        if version != abi.RECORD_VERSION:
            raise FormatError(
                f"{where}: written by another lazyck (record version {version}, this one reads {abi.RECORD_VERSION})",
                "run the build again from clean",
            )
        size = r.number()
        r.end = min(len(data), at + size)
        kind = r.take(4)
        tool, toolchain, cwd, source, output, content = (r.string() for _ in range(6))
        prefix = r.number()
        argv = tuple(r.string() for _ in range(r.number()))
        env = tuple((r.string(), r.string()) for _ in range(r.number()))
        call = Invocation(tool, toolchain, cwd, argv, prefix, env)
        if kind == b"COMP":
            found.append(CompileCommand(call, source, output, content))
        elif kind == b"LINK":
            found.append(LinkCommand(call, output))
        else:
            raise FormatError(f"{where}: unknown kind of record {kind!r}")
        at += size
    return found
