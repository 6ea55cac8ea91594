// This is the second half of the slow path: it saves every register that can carry an argument, or
// that some calling convention lets the caller keep across a call, asks the resolver for the
// function, restores the registers and jumps to the function. No signature is known, so it saves
// all of these: a0-a7, fa0-fa7, t0, t2 (the static chain), t4-t6. t1 and t3 belong to the linker.
// The resolver itself saves the others.
//
// It does not keep vector registers: functions of the vector calling convention are eager.
//
// On entry, t3 holds the number of the slot, or behind those of the slots the number of a wrapper
// (see kernels.h); ra holds the caller's return address. CFI describes the frame in full, so a C++
// exception that the resolver throws reaches the caller's handlers.
#include "machine/assembler.h"

#define FRAME 192

// Stores registers in the frame, or loads them from there.
.macro registers integer, floating
    .irp n, 0, 1, 2, 3, 4, 5, 6, 7
    \integer a\n, (8 * \n)(sp)
    \floating fa\n, (64 + 8 * \n)(sp)
    .endr
    \integer t0, 128(sp)
    \integer t2, 136(sp)
    \integer t4, 144(sp)
    \integer t5, 152(sp)
    \integer t6, 160(sp)
.endm

function lazyck_trampoline
    addi sp, sp, -FRAME
    .cfi_def_cfa_offset FRAME
    sd ra, 184(sp)
    .cfi_offset ra, -8
    registers sd, fsd
    mv a0, t3
    mv a1, sp                   // the first argument; the next ones are above it
    call lazyck_resolve
    mv t1, a0
    registers ld, fld
    ld ra, 184(sp)
    .cfi_restore ra
    addi sp, sp, FRAME
    .cfi_def_cfa_offset 0
    jr t1
end_function lazyck_trampoline

// lazyck_run_on(top, work, argument) calls work(argument) on another stack. The frame is found
// through s0, so that exceptions and stack traces pass from one stack to the other.
function lazyck_run_on
    addi sp, sp, -16
    .cfi_def_cfa_offset 16
    sd ra, 8(sp)
    .cfi_offset ra, -8
    sd s0, 0(sp)
    .cfi_offset s0, -16
    mv s0, sp
    .cfi_def_cfa_register s0
    mv sp, a0
    mv a0, a2
    jalr a1
    mv sp, s0
    .cfi_def_cfa_register sp
    ld ra, 8(sp)
    .cfi_restore ra
    ld s0, 0(sp)
    .cfi_restore s0
    addi sp, sp, 16
    .cfi_def_cfa_offset 0
    ret
end_function lazyck_run_on
