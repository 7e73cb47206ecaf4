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
 * path: as execve's, relative to dirfd (AT_FDCWD); NULL: there is none, and the exec fails. A program that cannot be
 * read, and is not this one, counts as one that does not load us: the connections that it inherits are ended, so that it does not read frames
 * as its client's bytes.
 */
enum loads program_loads(int dirfd, const char *path);
/* Will the dynamic linker find us by this LD_PRELOAD, under the root directory that the process has now? */
bool program_finds(const char *preload);
/* Is the root directory still that of the program's start? To be asked before program_finds. */
void program_start(void);
/* The file that execvp would find, or NULL. */
const char *program_search(const char *file, char *buf, size_t cap);

#endif
