/*
 * vfork(2): its child shares this process's memory until it ends or executes a program, and is not to change it
 * (proc_is_borrowed). The child uses the same stack, so there may be no frame of ours on it: assembly, which jumps on.
 */
#include <stdbool.h>
#include <sys/types.h>
#include <unistd.h>

#include "preload/process/proc.h"
#include "preload/process/real.h"

#define HIDDEN __attribute__((visibility("hidden"), used))

/* The one behind us; for the assembly below, which finds it where a constructor before ours makes such a child. */
HIDDEN pid_t (*vfork_next)(void);
HIDDEN void vfork_find(void);

/* libc has it by both names. */
#define ENTRIES \
    ".globl vfork\n.type vfork, %function\n.globl __vfork\n.type __vfork, %function\n.balign 16\nvfork:\n__vfork:\n"
#define ENDS ".cfi_endproc\n.size vfork, . - vfork\n.size __vfork, . - __vfork\n.popsection\n"

#if defined(__x86_64__)
__asm__(".pushsection .text\n" ENTRIES ".cfi_startproc\nendbr64\n"
        "movb $1, proc_lent(%rip)\ncmpq $0, vfork_next(%rip)\njne 1f\n"
        "sub $8, %rsp\n.cfi_adjust_cfa_offset 8\ncall vfork_find\nadd $8, %rsp\n.cfi_adjust_cfa_offset -8\n"
        "1: jmp *vfork_next(%rip)\n" ENDS);
#elif defined(__aarch64__)
__asm__(".pushsection .text\n" ENTRIES ".cfi_startproc\nbti c\n"
        "adrp x16, proc_lent\nmov w17, #1\nstrb w17, [x16, #:lo12:proc_lent]\n"
        "adrp x17, vfork_next\nldr x17, [x17, #:lo12:vfork_next]\ncbnz x17, 1f\n"
        "stp x29, x30, [sp, #-16]!\n.cfi_def_cfa_offset 16\n.cfi_offset 29, -16\n.cfi_offset 30, -8\nbl vfork_find\n"
        "ldp x29, x30, [sp], #16\n.cfi_restore 29\n.cfi_restore 30\n.cfi_def_cfa_offset 0\n"
        "adrp x17, vfork_next\nldr x17, [x17, #:lo12:vfork_next]\n1: br x17\n" ENDS);
#else
#error "preload/calls/vfork.c: only x86-64 and aarch64 are supported"
#endif

__attribute__((constructor)) void vfork_find(void)
{
    vfork_next = REAL(vfork);
}
