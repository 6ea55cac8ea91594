"""Describes each machine (CPU) that lazyck has stubs for: all that Python and the shim know of it.
What the runtime knows is in two files of `runtime/src/machine/` that have the machine's name."""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Describes a little-endian machine of 64 bits. Its code is assembler text, in which
    `postbuild/objects/assembly.py` fills the places in braces. On every machine, a row of the slow
    path (a landing, `tell` and a branch) has 16 bytes."""

    name: str  # as `uname -m` gives it
    other_name: str  # how else the first word of a target triple spells it
    number: int  # in ELF files
    elf_flags: int = 0  # in ELF files that lazyck writes
    distance: int  # the relocation that stores the distance of a symbol in 32 bits
    calls: Callable[[bytes], Iterator[int]]  # yields where the calls in code lead to, counted from its start
    operand_size: int = 0  # of a call or load, if the addends of their relocations count from behind it
    keeps_vectors: bool = True  # the trampoline does: all registers of the vector calling conventions
    flags: tuple[str, ...] = ()  # for the runtime, those that the compiler knows
    llvm_defaults: tuple[str, str] = ("", "")  # Linux's features and ABI, if LLVM does not take them by itself
    cuda_target: str = ""  # the machine's directory in a CUDA toolkit

    assembler_options: str = ""  # stand ahead of all code
    landing: str = ""  # marks where an indirect branch may lead
    branch: str  # goes elsewhere for good
    through_slot: str  # goes where the slot at `{slot}` leads
    stub_size: int  # in bytes, of a stub, which is a landing and `through_slot`
    align: str = ""  # what a stub begins behind
    tell: str  # tells the trampoline `{number}`, and pushes so many bytes (`pushed`)
    pushed: int = 0
    row_unwinding: str = ""  # how to unwind from any row that tells a number to the trampoline
    ready: str  # goes on through `{real}` if `{handle}` is known to be ready
    arguments: tuple[tuple[str, str], ...]  # registers, as `{handle}`, each with the name of its `{low}` half
    through_table: str  # goes where `{offset}` of `{table}`, a symbol of another library, leads
    protection: int = 0  # the kind of note that says which protections of branches and stacks there are


# These read `call`, and the jumps that tail calls are. They may yield some that are no calls.
def _x86_64_calls(code: bytes) -> Iterator[int]:
    for i, byte in enumerate(code):
        is_conditional = byte & 0xF0 == 0x80 and i > 0 and code[i - 1] == 0x0F
        width = 4 if byte in (0xE8, 0xE9) or is_conditional else 1 if byte == 0xEB else 0
        if width and i + width < len(code):
            yield i + 1 + width + int.from_bytes(code[i + 1 : i + 1 + width], "little", signed=True)


def _aarch64_calls(code: bytes) -> Iterator[int]:
    # `bl` and `b` have 26 bits that count instructions.
    for i, (word,) in enumerate(struct.iter_unpack("<I", code[: len(code) & ~3])):
        if word & 0x7C000000 == 0x14000000:
            distance = word & 0x3FFFFFF
            yield 4 * (i + distance - (distance >> 25 << 26))


def _riscv64_calls(code: bytes) -> Iterator[int]:
    # `jal` has 20 bits, in four parts, that count pairs of bytes. Other calls are the linker's.
    for i in range(0, len(code) - 3, 2):
        word = int.from_bytes(code[i : i + 4], "little")
        if word & 0x7F == 0x6F:
            distance = word >> 20 & 0x7FE | word >> 9 & 0x800 | word & 0xFF000 | word >> 31 << 20
            yield i + distance - (distance >> 20 << 21)


# Both code areas of stubs have rows of 16 bytes, so that one unwind entry each describes all of
# them, and 20,000 stubs do not add 20,000 entries. The unwinding is the formula that linkers use
# for PLTs: the CFA is rsp + 8, and 8 more once the row's push is done (its first 9 bytes are
# endbr64 and push, in the long form for every number, since the rows must be alike for the
# formula). rax, r10 and r11 carry nothing into a C function that takes no variable arguments.
_X86_64 = Machine(
    name="x86_64", other_name="amd64", number=62, calls=_x86_64_calls, operand_size=4, cuda_target="x86_64-linux",
    distance=2,  # R_X86_64_PC32
    # The runtime's calls are bound when it is loaded, in some 50 µs, and not in the first call.
    flags=("-fcf-protection=full", "-fno-plt"),
    landing=" endbr64", branch=" jmp", through_slot=" jmp *{slot}(%rip)", stub_size=10, align=" .p2align 4",
    tell=" .byte 0x68\n .long {number}", pushed=8,
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
)  # fmt: skip
# `hint 34` is `bti c`. `ldar` is needed because whoever sees the function's address must also see
# what the loader wrote into the blob's data, and on this machine a branch alone does not order
# that. w17 has the number, since a linker's veneer on the way to the trampoline uses x16.
_AARCH64 = Machine(
    name="aarch64", other_name="arm64", number=183, calls=_aarch64_calls, cuda_target="sbsa-linux",
    distance=261,  # R_AARCH64_PREL32
    # Outline atomics would bring a constructor, and only that of messages.cpp may run.
    flags=("-mbranch-protection=standard", "-mno-outline-atomics"),
    landing=" hint 34", branch=" b", stub_size=20,
    through_slot="""\
 adrp x16,{slot}
 add x16,x16,:lo12:{slot}
 ldar x16,[x16]
 br x16""",
    tell=" mov w17,{number}&0xffff\n movk w17,{number}>>16,lsl 16",
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
)  # fmt: skip
# The fence is needed for what `ldar` is on aarch64. Code uses t1 and t3 alone, which a linker's
# jump table overwrites as well. Neither the assembler nor the linker may make the rows shorter.
_RISCV64 = Machine(
    name="riscv64", other_name="riscv64", number=243, calls=_riscv64_calls, keeps_vectors=False,
    elf_flags=4,  # floating-point arguments are in registers for doubles
    distance=57,  # R_RISCV_32_PCREL
    llvm_defaults=("+m,+a,+f,+d,+c", "lp64d"),
    assembler_options=" .option norelax\n .option norvc\n .option pic",
    branch=" tail", through_slot=" ld t1,{slot}\n fence r,rw\n jr t1", stub_size=16,
    tell=" lui t3,%hi({number})\n addiw t3,t3,%lo({number})",
    ready="""\
 slli t3,{handle},64-{handle_bits}
 srli t3,t3,61-{handle_bits}
 lla t1,{handles}
 add t1,t1,t3
 ld t1,(t1)
 bne t1,{handle},.Llazyck_use{number}
 ld t1,{real}
 jr t1""",
    arguments=tuple((f"a{i}", "") for i in range(6)),
    through_table="""\
 la t1,{table}
 lui t3,%hi({offset})
 add t1,t1,t3
 ld t1,%lo({offset})(t1)
 jr t1""",
)  # fmt: skip
MACHINES = {row.name: row for row in (_X86_64, _AARCH64, _RISCV64)}
