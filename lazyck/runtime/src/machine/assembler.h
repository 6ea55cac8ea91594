// Defines how the assembler texts of all machines begin and end.
// clang-format off

    .macro function name
    .section .text.\name,"ax",@progbits
    .globl \name
    .hidden \name
    .type \name,@function
    .p2align 4
\name:
    .cfi_startproc
    .endm

    .macro end_function name
    .cfi_endproc
    .size \name,.-\name
    .endm

// Declares which protections of branches and stacks the code supports, by a property of that kind.
    .macro protected_by kind
    .section .note.gnu.property,"a",@note
    .p2align 3
    .long 4,16,5
    .asciz "GNU"
    .long \kind,4,3,0
    .endm

    .hidden lazyck_resolve
    .section .note.GNU-stack,"",@progbits
