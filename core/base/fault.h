/*
 * Where are we? Backtraces with libunwind, for --explain (one frame: the program's call site) and for faults of our own:
 * a check that fails, or a fatal signal in our code. Both print one block (what, the frames, the version, what the thread
 * was working on, the last moves of the state machines) and let the program's handler or the default action run.
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

#include <signal.h>
#include <stdbool.h>
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
 * cannot be told (no libunwind, or one that cannot step over a frame in between). May load libunwind, with malloc.
 */
int fault_in_handler(uintptr_t frame) SW_MUST;

/* Where a block goes, and what the thread was working on. Both are called in signal handlers. */
struct fault_hooks {
    void (*write)(const char *text, size_t len); /* whole lines */
    void (*describe)(void (*write)(const char *text, size_t len));
};

/* Instead of stderr, and of saying nothing. Once, before threads. */
void fault_hook(const struct fault_hooks *hooks);

/* Keeps a move of a state machine for the block; the texts are constants. Any thread; a few stores. */
void fault_note_move(const char *machine, const void *who, const char *from, const char *to);

/*
 * In a signal's handler: did the instruction fault, of this library's own code, and not because the thread's stack is used
 * up (which is the program's)? Async-signal-safe.
 */
bool fault_is_ours(const siginfo_t *info, const void *context) SW_MUST;

/*
 * In a signal's handler: prints the block, on a stack of its own, however little the thread has left. Waits while another
 * thread prints one, a second at most; a fault in here, and after FAULT_BLOCKS_MAX of them, prints nothing. Loads libunwind,
 * with malloc, unless fault_prepare has: so only where the program is not inside malloc, as in our own code.
 */
void fault_signal(int number, const siginfo_t *info, void *context);
#define FAULT_BLOCKS_MAX 3u

/*
 * Called by SW_CHECK: prints "sockwarp: check failed: EXPR at FILE:LINE: STATE" and the rest of the block, then aborts. Never returns. Where libunwind cannot be used it says
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
