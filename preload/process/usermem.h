/*
 * Is there memory where the program's pointer points? What the kernel answers by EFAULT would be a
 * SIGSEGV in this library.
 *
 * One byte of each page is touched, by instructions that are known to the handler of SIGSEGV and
 * SIGBUS (preload/process/segv.c): if they fault, it goes on behind them. Good memory costs no system call.
 * Another thread may unmap it between the look and the use; that is a SIGSEGV still. All are
 * async-signal-safe.
 */
#ifndef SW_PRELOAD_USERMEM_H
#define SW_PRELOAD_USERMEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "core/base/iov.h"
#include "core/base/must.h"

/* How many of the len bytes at p can be read, or written, from the first on. Nothing is changed. */
size_t usermem_read(const void *p, size_t len);
size_t usermem_write(void *p, size_t len);

static inline bool usermem_readable(const void *p, size_t len)
{
    return usermem_read(p, len) == len;
}

static inline bool usermem_writable(void *p, size_t len)
{
    return usermem_write(p, len) == len;
}

/* The same for the next len bytes of an iterator. */
size_t usermem_iter_read(const struct iov_iter *it, size_t len);
size_t usermem_iter_write(const struct iov_iter *it, size_t len);

/* In the handler: the program counter after the fault at pc, or 0: none of ours. */
uintptr_t usermem_fault(uintptr_t pc);

#endif
