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

/* There was no slot left for a connection, which is counted: no slot's number. */
#define BOARD_UNSEEN 1u

/*
 * A slot for a connection, as a number that means the same in all processes which have the board; 0: none (not wanted,
 * or the file could not be made); or BOARD_UNSEEN. The first one makes the file.
 */
uint64_t board_take(void) SW_MUST;
/* Its memory, or NULL: none, or a board that this process has not got. */
struct board_slot *board_slot(uint64_t ref) SW_MUST;
/* It is free again. */
void board_give(uint64_t ref);

/* A connection is over: counts it among this process'. */
void board_ended(unsigned reason, uint64_t tx_bytes, uint64_t rx_bytes);

/* In the child. */
void board_after_fork(void);
/* The process ends: prints the summary if it is asked for, and removes the file. */
void board_finish(void);

#endif
