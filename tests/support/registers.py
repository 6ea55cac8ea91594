"""Fill every register that can carry an argument, call a lazy function that stores them all, and
compare.

The assembly here is both caller and callee, and follows only the barest calling convention. The
code between them overwrites few registers by itself. The lazy function therefore comes with an
initializer that overwrites all that a function may. The initializer runs while the function is
resolved.
"""

import platform
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

HEADER = 'extern "C" void dump_registers(void* out);\n'
# The state holds integers, vectors of up to 256 bytes, and predicates or masks of up to 32, at
# these places.
_INTEGERS, _VECTORS, _MASKS, _SIZE = 0, 256, 256 + 32 * 256, 256 + 32 * 256 + 16 * 32
_INITIALIZER = '.section .init_array,"aw"\n.p2align 3\n.quad trash_registers\n.text'


@dataclass(frozen=True)
class State:
    """Describes a set of registers. `dump` is the source of the lazy function, and `program` that
    of a program that calls it."""

    name: str
    dump: str
    program: str


def _top_level(lines: Iterator[str]) -> str:
    return 'asm(R"(\n' + "\n".join(lines) + '\n)");\n'


def _program(fill: Iterator[str], rows: list[tuple[int, int]]) -> str:
    """Return the program's source. `rows` are the (place, size) pairs of the registers in the
    state."""
    table = ", ".join(f"{{{at}, {size}}}" for at, size in rows)
    return (
        '#include "demo.h"\n#include <cstdio>\n#include <cstring>\n'
        'extern "C" void fill_and_call(const void* in, void* out);\n'
        + _top_level(fill)
        + f"""
int main() {{
    alignas(64) static unsigned char in[{_SIZE}], out[{_SIZE}];
    static const struct {{ int at, size; }} rows[] = {{{table}}};
    int bad = 0;
    for (int round = 0; round < 2; ++round) {{  // the slow path, then the stub alone
        for (int i = 0; i < {_SIZE}; ++i) in[i] = (unsigned char)(i * 7 + i / 256 + round + 1);
        std::memset(out, 0, sizeof out);
        fill_and_call(in, out);
        for (const auto& row : rows) {{
            if (std::memcmp(in + row.at, out + row.at, row.size) == 0) continue;
            std::printf("round %d: the register at %d differs\\n", round, row.at);
            bad = 1;
        }}
    }}
    std::puts(bad ? "bad" : "good");
    return bad;
}}
"""
    )


# -- x86-64 ----------------------------------------------------------------------------------------

_X86_INTEGERS = ("rax", "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11")  # rdi is the address to write to


def _x86_state(name: str, vector: str, count: int, size: int, move: str, masks: int) -> State:
    def moves(form: Callable[[str, str, int], str]) -> Iterator[str]:
        for i in range(count):
            yield form(move, f"%{vector}{i}", _VECTORS + 256 * i)
        for i in range(masks):
            yield form("kmovq", f"%k{i}", _MASKS + 32 * i)
        for i, register in enumerate(_X86_INTEGERS):
            yield form("movq", f"%{register}", _INTEGERS + 8 * i)

    def dump() -> Iterator[str]:
        yield from (".globl dump_registers", ".type dump_registers,@function", "dump_registers:")
        yield from moves(lambda move, register, at: f"{move} {register},{at}(%rdi)")
        yield from ("vzeroupper" if size > 16 else "", "ret", ".size dump_registers,.-dump_registers")

    def trash() -> Iterator[str]:
        yield from ("trash_registers:", "leaq .Ltrash(%rip),%rdi")
        yield from moves(lambda move, register, at: f"{move} (%rdi),{register}")
        yield from ("ret", ".p2align 6", ".Ltrash: .fill 64,1,0xa5", _INITIALIZER)

    def fill() -> Iterator[str]:
        yield from (".globl fill_and_call", "fill_and_call:", "pushq %rbx", "movq %rdi,%rbx", "movq %rsi,%rdi")
        yield from moves(lambda move, register, at: f"{move} {at}(%rbx),{register}")
        # The call bypasses the PLT: what the loader's own lazy binding preserves is not tested
        # here.
        yield from ("call *dump_registers@GOTPCREL(%rip)", "vzeroupper" if size > 16 else "", "popq %rbx", "ret")

    rows = [(_INTEGERS, 8 * len(_X86_INTEGERS))]
    rows += [(_VECTORS + 256 * i, size) for i in range(count)] + [(_MASKS + 32 * i, 8) for i in range(masks)]
    return State(name, _top_level(chain(dump(), trash())), _program(fill(), rows))


SSE = _x86_state("sse", "xmm", 16, 16, "movdqu", 0)
AVX = _x86_state("avx", "ymm", 16, 32, "vmovdqu", 0)
AVX512 = _x86_state("avx512", "zmm", 32, 64, "vmovdqu64", 8)


def of_this_cpu() -> list[tuple[State, str]]:
    """Return the states of this kind of machine, each with the reason why this CPU cannot have it,
    or an empty string."""
    if platform.machine() == "aarch64":
        return [(NEON, ""), (SVE, "" if "sve" in _cpu_flags() else "the CPU has no SVE")]
    if platform.machine() == "riscv64":
        return [(RISCV, "")]
    if platform.machine() != "x86_64":
        return []
    known = _cpu_flags()
    wanted = ((SSE, "sse"), (AVX, "avx"), (AVX512, "avx512bw"))
    return [(state, "" if flag in known else f"the CPU has no {flag}") for state, flag in wanted]


def _cpu_flags() -> set[str]:
    return set(Path("/proc/cpuinfo").read_text().split())


# -- aarch64 ---------------------------------------------------------------------------------------

# x0 is the address to write to, x16 and x17 belong to the linker, and x18 is the static chain. The
# callee saves x19 and above.
_ARM_INTEGERS = (*range(1, 16), 18)


def _arm_state(name: str, vector: str, size: int, masks: int) -> State:
    def moves(load: str, base: str) -> Iterator[str]:
        """Yield the loads or stores of all registers. `load` is "ld" or "st"."""
        for kind, count, place, step in ((vector, 24, _VECTORS, 256), ("p", masks, _MASKS, 32)):
            for i in range(count):
                yield f"mov x16,#{place + step * i}\nadd x16,{base},x16\n{load}r {kind}{i},[x16]"
        for n, i in enumerate(_ARM_INTEGERS):
            yield f"{load}r x{i},[{base},#{_INTEGERS + 8 * n}]"

    march = ".arch armv8-a" + ("+sve" if masks else "")

    def dump() -> Iterator[str]:
        yield from (march, ".globl dump_registers", ".type dump_registers,@function", "dump_registers:")
        yield from moves("st", "x0")
        yield from ("ret", ".size dump_registers,.-dump_registers")

    def trash() -> Iterator[str]:
        yield "trash_registers:"
        yield from (f"str d{i},[sp,#-16]!" for i in range(8, 16))
        yield "adr x0,.Ltrash"
        yield from (f"ldr {vector}{i},[x0]" for i in range(32))
        yield from (f"ldr p{i},[x0]" for i in range(masks))
        yield from (f"ldr d{i},[sp],#16" for i in range(15, 7, -1))
        yield from (f"ldr x{i},[x0]" for i in (*_ARM_INTEGERS, 16, 17))
        yield from ("ret", ".p2align 6", ".Ltrash: .fill 256,1,0xa5", _INITIALIZER)

    def fill() -> Iterator[str]:
        yield from (march, ".globl fill_and_call", "fill_and_call:", "stp x29,x30,[sp,#-16]!", "mov x17,x0")
        yield from ("mov x0,x1", *moves("ld", "x17"))
        yield from ("adrp x16,:got:dump_registers", "ldr x16,[x16,:got_lo12:dump_registers]", "blr x16")
        yield from ("ldp x29,x30,[sp],#16", "ret")

    rows = [(_INTEGERS, 8 * len(_ARM_INTEGERS))]
    rows += [(_VECTORS + 256 * i, size) for i in range(24)] + [(_MASKS + 32 * i, size // 8) for i in range(masks)]
    return State(name, _top_level(chain(dump(), trash())), _program(fill(), rows))


NEON = _arm_state("neon", "q", 16, 0)
SVE = _arm_state("sve", "z", 64, 16)  # 64 bytes are the default width of the emulator's widest CPU


# -- riscv64 ---------------------------------------------------------------------------------------

# a0 is the address to write to, and t1 and t3 belong to the linker.
_RISCV_INTEGERS = (*(f"a{i}" for i in range(1, 8)), "t0", "t2", "t4", "t5", "t6")


def _riscv_state() -> State:
    def moves(way: str, base: str) -> Iterator[str]:
        """Yield the loads or stores of all registers. `way` is "l" or "s"."""
        for i in range(8):
            yield f"li t3,{_VECTORS + 256 * i}\nadd t3,t3,{base}\nf{way}d fa{i},0(t3)"
        for n, register in enumerate(_RISCV_INTEGERS):
            yield f"{way}d {register},{_INTEGERS + 8 * n}({base})"

    def dump() -> Iterator[str]:
        yield from (".globl dump_registers", ".type dump_registers,@function", "dump_registers:")
        yield from (*moves("s", "a0"), "ret", ".size dump_registers,.-dump_registers")

    def trash() -> Iterator[str]:
        yield from ("trash_registers:", "lla a0,.Ltrash")
        yield from (f"fld fa{i},0(a0)" for i in range(8))
        yield from (f"ld {register},0(a0)" for register in (*_RISCV_INTEGERS, "t1", "t3", "a0"))
        yield from ("ret", ".p2align 3", ".Ltrash: .fill 8,1,0xa5", _INITIALIZER)

    def fill() -> Iterator[str]:
        yield from (".globl fill_and_call", "fill_and_call:", "addi sp,sp,-16", "sd ra,8(sp)", "mv t1,a0", "mv a0,a1")
        yield from (*moves("l", "t1"), ".option push", ".option pic", "la t3,dump_registers", ".option pop")
        yield from ("jalr t3", "ld ra,8(sp)", "addi sp,sp,16", "ret")

    rows = [(_INTEGERS, 8 * len(_RISCV_INTEGERS)), *((_VECTORS + 256 * i, 8) for i in range(8))]
    return State("lp64d", _top_level(chain(dump(), trash())), _program(fill(), rows))


RISCV = _riscv_state()
