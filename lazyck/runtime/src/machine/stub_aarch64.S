// This is the second half of the slow path: it saves every register that can carry an argument, or
// that some calling convention lets the caller keep across a call, asks the resolver for the
// function, restores the registers and jumps to the function. No signature is known, so it saves
// all of these: x0-x15 and x18 (x8 is the address of a returned struct, x18 the static chain);
// q0-q23, of which q0-q7 hold arguments and q8-q23 belong to the caller in the vector calling
// convention; if the machine has SVE, z0-z23 and p0-p15 instead. x16 and x17 belong to the linker
// (veneers use x16). The resolver itself saves x19-x29 and d8-d15.
//
// It does not support callers in SME's streaming mode or with live ZA, since the resolver is
// ordinary code.
//
// On entry, w17 holds the number of the slot, or behind those of the slots the number of a wrapper
// (see kernels.h); x30 holds the caller's return address. CFI describes the frame in full, so a C++
// exception that the resolver throws reaches the caller's handlers.
#include "machine/assembler.h"

#define FRAME 176
#define VECTORS_SIZE (24 * 16)
// These are in SVE vector lengths. A predicate has an eighth of a vector's length, and its offsets
// count predicates.
#define SVE_VECTORS 26
#define FIRST_PREDICATE (24 * 8)

    .arch armv8-a+sve

// Sets x16 to 0 if the machine has no SVE, or if the kernel does not permit its use. The kernel
// emulates the read of the system register (Linux 4.11), so no vector register changes, as could
// happen in a call of getauxval.
.macro test_for_sve
    mrs x16, S3_0_C0_C4_0       // ID_AA64PFR0_EL1
    ubfx x16, x16, #32, #4
.endm

// These store registers in the frame, or load them from there.
.macro general_registers single
    .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
    \single x\n, [x29, #(16 + 8 * \n)]
    .endr
    \single x18, [x29, #144]
.endm
.macro vector_registers single
    .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23
    \single q\n, [sp, #(16 * \n)]
    .endr
.endm
.macro sve_registers single
    .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23
    \single z\n, [sp, #\n, mul vl]
    .endr
    .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
    \single p\n, [sp, #(FIRST_PREDICATE + \n), mul vl]
    .endr
.endm

function lazyck_trampoline
    hint #34                    // bti c: a veneer may branch here by x16
    hint #25                    // paciasp
    .cfi_negate_ra_state
    stp x29, x30, [sp, #-FRAME]!
    .cfi_def_cfa_offset FRAME
    .cfi_offset x29, -FRAME
    .cfi_offset x30, -FRAME + 8
    mov x29, sp
    .cfi_def_cfa_register x29
    general_registers str
    test_for_sve
    cbnz x16, .Lsave_sve
    sub sp, sp, #VECTORS_SIZE
    vector_registers str
    b .Lresolve
.Lsave_sve:
    addvl sp, sp, #-SVE_VECTORS
    sve_registers str
.Lresolve:
    mov w0, w17
    add x1, x29, #16            // the first argument; the next ones are above it
    bl lazyck_resolve
    mov x17, x0
    test_for_sve
    cbnz x16, .Lrestore_sve
    vector_registers ldr
    b .Lrestored
.Lrestore_sve:
    sve_registers ldr
.Lrestored:
    general_registers ldr
    mov sp, x29
    .cfi_def_cfa_register sp
    ldp x29, x30, [sp], #FRAME
    .cfi_def_cfa_offset 0
    .cfi_restore x29
    .cfi_restore x30
    hint #29                    // autiasp
    .cfi_negate_ra_state
    br x17                      // a branch by x16 or x17 may go to a `bti c`
end_function lazyck_trampoline

// lazyck_run_on(top, work, argument) calls work(argument) on another stack. The frame is found
// through x29, so that exceptions and stack traces pass from one stack to the other.
function lazyck_run_on
    hint #25                    // paciasp, a valid branch target as well
    .cfi_negate_ra_state
    stp x29, x30, [sp, #-16]!
    .cfi_def_cfa_offset 16
    .cfi_offset x29, -16
    .cfi_offset x30, -8
    mov x29, sp
    .cfi_def_cfa_register x29
    mov sp, x0
    mov x0, x2
    blr x1
    mov sp, x29
    .cfi_def_cfa_register sp
    ldp x29, x30, [sp], #16
    .cfi_def_cfa_offset 0
    .cfi_restore x29
    .cfi_restore x30
    hint #29                    // autiasp
    .cfi_negate_ra_state
    ret
end_function lazyck_run_on

// Declares that the code supports branch target identification and signed return addresses.
    protected_by 0xc0000000
