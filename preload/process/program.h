/*
 * The program that an exec is about to start: will it load this library?
 */
#ifndef SW_PRELOAD_PROGRAM_H
#define SW_PRELOAD_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>

enum loads {
    LOADS_US,
    LOADS_NOT,  /* statically linked, of another machine, gains rights, cannot be read */
    LOADS_MUSL, /* could not even start with it */
};

/*
 * path: as execve's, below dirfd (AT_FDCWD); NULL: there is none, and the exec fails. What cannot be looked at does not
 * load us: what it then inherits is ended, not read as if it were its client's.
 */
enum loads program_loads(int dirfd, const char *path);
/* Will the dynamic linker find us by this LD_PRELOAD, under the root directory that the process has now? */
bool program_finds(const char *preload);
/* Is the root directory the one of the start? Before program_finds. */
void program_start(void);
/* The file that execvp would find, or NULL. */
const char *program_search(const char *file, char *buf, size_t cap);

#endif
