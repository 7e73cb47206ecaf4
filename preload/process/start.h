/* The library's start, fork and end. Any room may call these; their work is in all rooms (start.c). */
#ifndef SW_PRELOAD_START_H
#define SW_PRELOAD_START_H

/* Reads the environment, once. Safe from any thread; called by the constructor or an earlier socket call (proc_on). */
void start_once(void);

/*
 * Around every call that makes a process with a copy of our memory: before it, and after it in the parent and in the
 * child.
 */
void start_before_fork(void);
void start_after_fork_parent(void);
void start_after_fork_child(void);

/* The process ends: sends all bytes that the program has written, and writes the statistics. Later calls do nothing. */
void start_finish(void);

#endif
