"""Holds the code that lazyck writes for each machine, as assembler text, and how a symbol begins.

To add a machine, add a row to `MACHINE_CODE` and a trampoline (`runtime/src/entrance/stub_*.S`).
"""

from dataclasses import dataclass

from lazyck import abi


@dataclass(frozen=True)
class MachineCode:
    """Holds one machine's instructions. `text` fills the places in braces."""

    landing: str  # marks where an indirect branch may lead
    branch: str  # goes elsewhere for good
    through_slot: str  # goes where the slot at `{slot}` leads
    stub_size: int  # in bytes, of a stub, which is a landing and `through_slot`
    align: str  # what a stub begins behind
    tell: str  # tells the trampoline `{number}`, and pushes so many bytes (`pushed`)
    pushed: int
    row_unwinding: str  # how to unwind from any row that tells a number to the trampoline
    ready: str  # goes on through `{real}` if `{handle}` is known to be ready
    arguments: tuple[tuple[str, str], ...]  # registers, as `{handle}`, each with the name of its `{low}` half
    through_table: str  # goes where `{offset}` of `{table}`, a symbol of another library, leads
    protection: int  # the kind of note that says which protections of branches and stacks there are


# Both code areas of stubs have rows of 16 bytes, so that one unwind entry each describes all of
# them, and 20,000 stubs do not add 20,000 entries. The unwinding is the formula that linkers use
# for PLTs: the CFA is rsp + 8, and 8 more once the row's push is done (its first 9 bytes are
# endbr64 and push, in the long form for every number, since the rows must be alike for the
# formula). rax, r10 and r11 carry nothing into a C function that takes no variable arguments.
_X86_64 = MachineCode(
    landing=" endbr64",
    branch=" jmp",
    through_slot=" jmp *{slot}(%rip)",
    stub_size=10,
    align=" .p2align 4",
    tell=" .byte 0x68\n .long {number}",
    pushed=8,
    row_unwinding=" .cfi_escape 0x0f,11,0x77,8,0x80,0,0x3f,0x1a,0x39,0x2a,0x33,0x24,0x22",
    ready="""\
 movzwl %{low},%eax
 leaq {handles}(%rip),%r11
 cmpq %{handle},(%r11,%rax,8)
 jne .Llazyck_use{number}
 jmp *{real}(%rip)""",
    arguments=(("rdi", "di"), ("rsi", "si"), ("rdx", "dx"), ("rcx", "cx"), ("r8", "r8w"), ("r9", "r9w")),
    through_table=" mov {table}@GOTPCREL(%rip),%r11\n jmp *{offset}(%r11)",
    protection=0xC0000002,  # IBT and shadow stacks: a link with -z ibt or -z cet-report finds no fault
)
# `hint 34` is `bti c`. `ldar` is needed because whoever sees the function's address must also see
# what the loader wrote into the blob's data, and on this machine a branch alone does not order
# that. w17 has the number, since a linker's veneer on the way to the trampoline uses x16.
_AARCH64 = MachineCode(
    landing=" hint 34",
    branch=" b",
    through_slot="""\
 adrp x16,{slot}
 add x16,x16,:lo12:{slot}
 ldar x16,[x16]
 br x16""",
    stub_size=20,
    align="",
    tell=" mov w17,{number_low}\n movk w17,{number_high},lsl 16",
    pushed=0,
    row_unwinding="",
    ready="""\
 adrp x16,{handles}
 add x16,x16,:lo12:{handles}
 ubfx x17,{handle},0,{handle_bits}
 ldr x16,[x16,x17,lsl 3]
 cmp x16,{handle}
 b.ne .Llazyck_use{number}
 adrp x16,{real}
 ldr x16,[x16,:lo12:{real}]
 br x16""",
    arguments=tuple((f"x{i}", f"w{i}") for i in range(6)),
    through_table="""\
 adrp x16,:got:{table}
 ldr x16,[x16,:got_lo12:{table}]
 ldr x16,[x16,{offset}]
 br x16""",
    protection=0xC0000000,  # branch target identification, signed return addresses
)
MACHINE_CODE = {"aarch64": _AARCH64, "x86_64": _X86_64}


def text(code: str, number: int = 0, **places: str | int) -> str:
    """Return the text of `code` with the values of its places, and of the runtime's symbols."""
    halves = {"number": number, "number_low": number & 0xFFFF, "number_high": number >> 16}
    return code.format(handles=abi.SYMBOL_READY, handle_bits=abi.READY_HANDLE_BITS, **halves, **places)


def symbol(name: str, kind: str, visibility: str = "hidden") -> list[str]:
    """Return the lines with which a global symbol of that kind begins."""
    seen = [f" .{visibility} {name}"] if visibility else []
    return [f" .globl {name}", *seen, f" .type {name},@{kind}", f"{name}:"]
