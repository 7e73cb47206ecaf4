/*
 * SIGSEGV and SIGBUS: makes faults of usermem.c harmless, unseen by the program; and, of SIGILL and SIGFPE as well, tells
 * of faults in our own code.
 */
#ifndef SW_PRELOAD_SEGV_H
#define SW_PRELOAD_SEGV_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

#include "core/base/must.h"

/*
 * A SIGSEGV, SIGBUS, SIGILL or SIGFPE has come: is it the library's? Then the thread goes on where *context says now. Of a
 * fault in our own code that the program gets it tells. From a signal handler.
 */
bool segv_take(int number, siginfo_t *info, void *context) SW_MUST;

/*
 * This memory is of a file that another process of the user may cut short: a SIGBUS in it gives this process zeros there
 * from then on. One such place at a time; NULL: none. Any thread.
 */
void segv_refill(void *at, size_t len);

#endif
