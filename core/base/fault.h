/*
 * Where are we? Backtraces with libunwind, for --explain (one frame: the program's call site) and
 * for internal checks that fail (all frames, to stderr, then abort).
 *
 * libunwind is loaded with dlopen (RTLD_LOCAL) only when it is wanted. Linked in, its _Unwind_*
 * symbols would stand before libgcc's for C++ code the program loads later, and its first use opens
 * a pipe.
 *
 * Not for the data path: unwinding takes microseconds. No malloc after fault_prepare(); fault_check
 * failures may come from any thread, also from a forked child.
 */
#ifndef SW_BASE_FAULT_H
#define SW_BASE_FAULT_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/must.h"

/*
 * Remembers which code is ours (the load range of the object that holds this function), so that
 * fault_call_site() can step over it. Cheap. Call once, before threads.
 */
void fault_setup(void);

/*
 * Loads libunwind and has its first use behind us, with its pipe on high descriptors (both
 * CLOEXEC). Call when fault_call_site() will be used, before threads. Without it the first
 * fault_call_site() loads libunwind, with malloc and the pipe on the lowest free descriptors. 0, or
 * -ENOENT: no libunwind on this system.
 */
int fault_prepare(void) SW_MUST;

/*
 * Writes "symbol+0x1f (object)" of the first frame outside our own code into buf (always
 * NUL-terminated; "?" if unknown; "?+0x1f (object)" with the offset in the object where it has no
 * symbol). Returns the length written, without the NUL. Keeps errno. Not async-signal-safe.
 */
size_t fault_call_site(char *buf, size_t cap);

/*
 * Does a signal handler run between here and the frame at stack address `frame`? 1, 0, or -ENOENT: it
 * cannot be told (no libunwind). May load libunwind, with malloc.
 */
int fault_in_handler(uintptr_t frame) SW_MUST;

/*
 * Called by SW_CHECK: prints "sockwarp: check failed: EXPR at FILE:LINE: STATE" and a backtrace to
 * stderr with the raw write(2), then aborts. Never returns. Where libunwind cannot be used it says
 * so instead.
 */
void fault_fail(const char *expr, const char *file, int line, const char *fmt, ...) SW_PRINTF(4, 5)
    __attribute__((noreturn));

/* An internal invariant. The arguments after the condition are a printf-style state line. */
#define SW_CHECK(cond, ...)                                     \
    do {                                                        \
        if (SW_UNLIKELY(!(cond)))                               \
            fault_fail(#cond, __FILE__, __LINE__, __VA_ARGS__); \
    } while (0)

#endif
