/*
 * The act of entering a seccomp filter; what holds from then on is in sandbox.h.
 */
#ifndef SW_PRELOAD_SECCOMP_H
#define SW_PRELOAD_SECCOMP_H

/* seccomp(2), which libc has no function for. */
long seccomp_call(unsigned op, unsigned flags, void *program);

#endif
