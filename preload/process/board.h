/*
 * What this process tells of its connections while they go on (SOCKWARP_STAT), and when it ends (SOCKWARP_SUMMARY).
 *
 * Any thread; nothing here waits, allocates from the heap, takes a lock or touches errno. A child made by fork() goes
 * on writing what it inherited, and has a board of its own for its own connections.
 */
#ifndef SW_PRELOAD_BOARD_H
#define SW_PRELOAD_BOARD_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/must.h"
#include "preload/process/board_format.h"

/* Is SOCKWARP_STAT or SOCKWARP_SUMMARY set? */
bool board_wanted(void) SW_MUST;

/* No slot's number: there was none left for the connection, which is counted. */
#define BOARD_UNSEEN 1u

/*
 * Takes a slot for a connection. Returns its number, which means the same in all processes that have the board; 0:
 * there is none (not wanted, or the file could not be made); or BOARD_UNSEEN. The first call makes the file.
 */
uint64_t board_take(void) SW_MUST;
/* The slot's memory, or NULL: there is no slot, or this process does not have the board. */
struct board_slot *board_slot(uint64_t ref) SW_MUST;
/* It is free again. */
void board_give(uint64_t ref);

/* A connection is over: counts it among this process's. port: the server's, 0 = not known. */
void board_ended(unsigned reason, uint16_t port, uint64_t tx_bytes, uint64_t rx_bytes);

/* In the child. */
void board_after_fork(void);
/* The process ends: prints the summary if SOCKWARP_SUMMARY asks for it, and removes the file. */
void board_finish(void);

#endif
