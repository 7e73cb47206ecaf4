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

extern pid_t __vfork(void); /* libc's, by another of its names */

/* The one behind us; for the assembly below. */
HIDDEN pid_t (*vfork_next)(void) = __vfork;

#if defined(__x86_64__)
__asm__(".pushsection .text\n.globl vfork\n.type vfork, %function\n.balign 16\nvfork:\n.cfi_startproc\nendbr64\n"
        "movb $1, proc_lent(%rip)\njmp *vfork_next(%rip)\n.cfi_endproc\n.size vfork, . - vfork\n.popsection\n");
#elif defined(__aarch64__)
__asm__(".pushsection .text\n.globl vfork\n.type vfork, %function\n.balign 16\nvfork:\n.cfi_startproc\nbti c\n"
        "adrp x16, proc_lent\nmov w17, #1\nstrb w17, [x16, #:lo12:proc_lent]\n"
        "adrp x17, vfork_next\nldr x17, [x17, #:lo12:vfork_next]\nbr x17\n"
        ".cfi_endproc\n.size vfork, . - vfork\n.popsection\n");
#else
#error "preload/calls/vfork.c: only x86-64 and aarch64 are supported"
#endif

static __attribute__((constructor)) void find_next(void)
{
    if (REAL(vfork) != NULL)
        vfork_next = REAL(vfork);
}
