/*
 * The life of descriptors, for calls that end or replace one inside libc.
 */
#ifndef SW_PRELOAD_FDOPS_H
#define SW_PRELOAD_FDOPS_H

/* fd is about to be closed or replaced: as close() does before the real call. */
void fdops_leaves(int fd);

#endif
