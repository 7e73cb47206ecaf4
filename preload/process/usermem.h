/*
 * Is there memory where the program's pointer points? Where the kernel gives EFAULT, this library would get a SIGSEGV.
 * So it touches one byte of each page, by instructions that the handler of SIGSEGV and SIGBUS knows
 * (preload/process/segv.c): after a fault it continues behind them. Good memory costs no system call. If another thread
 * unmaps the memory between the look and the use, there is a SIGSEGV all the same. All functions are async-signal-safe.
 */
#ifndef SW_PRELOAD_USERMEM_H
#define SW_PRELOAD_USERMEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "core/base/iov.h"
#include "core/base/must.h"

/* The number of bytes, from the first of the len at p on, that can be read, or written. Changes nothing. */
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

/* In the handler: the program counter at which to continue after the fault at pc, or 0: the fault is not ours. */
uintptr_t usermem_fault(uintptr_t pc);

#endif
