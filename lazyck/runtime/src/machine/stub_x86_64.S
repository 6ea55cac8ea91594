// This is the second half of the slow path: it saves every register that can carry an argument,
// asks the resolver for the function, restores the registers and jumps to the function. No
// signature is known, so it saves all of them: the integer registers (rax counts the vectors of a
// varargs call, r10 is the static chain) and, by xsavec, xsave or fxsave, the vector registers that
// the machine has (xmm, ymm, zmm and the masks).
//
// On entry, (%rsp) holds the number of the slot, or behind those of the slots the number of a
// wrapper (see kernels.h); 8(%rsp) holds the caller's return address. CFI describes the frame in
// full, so a C++ exception that the resolver throws reaches the caller's handlers.
#include "machine/assembler.h"

// The mask selects SSE, AVX, MPX bounds, AVX-512 (3 bits) and the APX registers. It leaves out x87
// (bit 0), which holds no arguments, and AMX tiles, which are scratch.
#define STATE_MASK 0x800ee
#define LEGACY_AND_HEADER 576
#define FXSAVE_SIZE 512
// In the compact format the components follow one another, each as large as its registers: AVX, MPX
// bounds, AVX-512 (three), APX. All sizes are multiples of 64, so none needs padding. The size is a
// constant because a virtual machine leaves each `cpuid` to its hypervisor, which takes
// microseconds.
#define COMPACT_SIZE (LEGACY_AND_HEADER + 256 + 64 + 64 + 512 + 1024 + 128)

function lazyck_trampoline
    .cfi_def_cfa_offset 16
    pushq %rbp
    .cfi_def_cfa_offset 24
    .cfi_offset %rbp,-24
    movq %rsp,%rbp
    .cfi_def_cfa_register %rbp
    .irp register, rax, rdi, rsi, rdx, rcx, r8, r9, r10, r11
    pushq %\register
    .endr
    movq lazyck_vector_state(%rip),%rax
    testq %rax,%rax
    jz .Ldetermine
.Lknown:
    pushq %rax                  // at -80(%rbp), for the way back
    movl %eax,%ecx
    subq %rcx,%rsp
    andq $-64,%rsp
    btq $62,%rax
    jc .Lxsave
    fxsave64 (%rsp)
    jmp .Lresolve
.Lxsave:
    xorl %edx,%edx
    // The header must be zero when it is read back, and no instruction writes all of it.
    .irp at, 512, 520, 528, 536, 544, 552, 560, 568
    movq %rdx,\at(%rsp)
    .endr
    movq %rax,%rcx
    shrq $32,%rax
    andl $STATE_MASK,%eax
    testq %rcx,%rcx
    js .Lxsavec
    xsave64 (%rsp)
    jmp .Lresolve
.Lxsavec:
    xsavec64 (%rsp)
.Lresolve:
    movl 8(%rbp),%edi
    leaq -16(%rbp),%rsi         // the first argument; the next ones are below it
    call lazyck_resolve
    movq %rax,8(%rbp)           // the slot's number is no longer needed
    movq -80(%rbp),%rax
    movq %rax,%rdx
    shrq $62,%rdx
    jz .Lfxrstor
    xorl %edx,%edx
    shrq $32,%rax
    andl $STATE_MASK,%eax
    xrstor64 (%rsp)
    jmp .Lrestored
.Lfxrstor:
    fxrstor64 (%rsp)
.Lrestored:
    leaq -72(%rbp),%rsp
    .irp register, r11, r10, r9, r8, rcx, rdx, rsi, rdi, rax
    popq %\register
    .endr
    .cfi_remember_state
    leave
    .cfi_def_cfa %rsp,16
    .cfi_restore %rbp
    leaq 8(%rsp),%rsp
    .cfi_def_cfa_offset 8
    jmp *-8(%rsp)               // in the red zone, which signal handlers leave alone: costs no register
    .cfi_restore_state

// Decides at the first slow call of the process how to save the registers and how much room that
// takes. It uses integer registers only. Threads that come here together store the same value. The
// result in rax has these bits: 0-31 size, 32-51 components, 62 xsave, 63 xsavec.
.Ldetermine:
    pushq %rbx                  // callee-saved; nothing here throws, so the CFI need not know
    movl $1,%eax
    xorl %ecx,%ecx
    cpuid
    btl $27,%ecx                // OSXSAVE
    jnc .Luse_fxsave
    xorl %ecx,%ecx
    xgetbv
    andl $STATE_MASK,%eax
    movl %eax,%r8d              // r8 holds the components
    movl $13,%eax
    movl $1,%ecx
    cpuid
    movl %eax,%r9d
    andl $2,%r9d                // r9 tells whether there is xsavec
    movl $COMPACT_SIZE,%r10d
    testl %r9d,%r9d
    jnz .Lsized
    movl $LEGACY_AND_HEADER,%r10d
    movl $2,%r11d               // r11 is the component; 0 and 1 are in the legacy area
.Lcomponent:
    btl %r11d,%r8d
    jnc .Lnext
    movl $13,%eax
    movl %r11d,%ecx
    cpuid                       // eax: size; ebx: offset in the standard format
    addl %ebx,%eax
    cmpl %r10d,%eax
    cmoval %eax,%r10d
.Lnext:
    incl %r11d
    cmpl $20,%r11d
    jb .Lcomponent
.Lsized:
    movl %r8d,%eax
    shlq $32,%rax
    orq %r10,%rax
    btsq $62,%rax
    testl %r9d,%r9d
    jz .Ldetermined
    btsq $63,%rax
    jmp .Ldetermined
.Luse_fxsave:
    movl $FXSAVE_SIZE,%eax
.Ldetermined:
    popq %rbx
    movq %rax,lazyck_vector_state(%rip)
    jmp .Lknown
end_function lazyck_trampoline

// lazyck_run_on(top, work, argument) calls work(argument) on another stack. The frame is found
// through rbp, so that exceptions and stack traces pass from one stack to the other.
function lazyck_run_on
    endbr64
    pushq %rbp
    .cfi_def_cfa_offset 16
    .cfi_offset %rbp,-16
    movq %rsp,%rbp
    .cfi_def_cfa_register %rbp
    movq %rdi,%rsp
    movq %rdx,%rdi
    call *%rsi
    movq %rbp,%rsp
    popq %rbp
    .cfi_def_cfa %rsp,8
    .cfi_restore %rbp
    ret
end_function lazyck_run_on

    .section .bss.lazyck_vector_state,"aw",@nobits
    .p2align 3
    .local lazyck_vector_state
lazyck_vector_state:
    .zero 8

    protected_by 0xc0000002
