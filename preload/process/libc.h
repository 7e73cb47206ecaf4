/*
 * libc's own functions, whatever else defines such names.
 *
 * The linker renames our calls of what is listed in libc_calls.h to __wrap_NAME. Each of those is a jump through a
 * table, which holds what the dynamic linker has found until libc_init puts libc's own there. (A jump, for dlsym and
 * its kin look at the address they return to.)
 */
#ifndef SW_PRELOAD_LIBC_H
#define SW_PRELOAD_LIBC_H

#include <link.h>
#include <stdbool.h>

/* Fills the table; idempotent, from any thread. Before anything else of ours runs. */
void libc_init(void);

/* Is it in libc's text or data? */
bool libc_has(const void *p);

/* Does an object that is loaded behind this library define a function of that name? (A dlsym that fails allocates.) */
bool libc_is_behind_us(const char *name);

/* libc among the loaded objects; NULL: it is none we know. */
const struct link_map *libc_map(void);

#endif
