/*
 * posix_spawn's file actions, as far as they say what a child will have.
 */
#include <spawn.h>
#include <stdatomic.h>

#include "core/base/must.h"
#include "preload/calls/exec.h"
#include "preload/process/real.h"

/* Descriptors that posix_spawn's file actions have given to children: close-on-exec says nothing about them. */
static _Atomic uint64_t dup2ed[16];

bool spawn_is_dup2ed(int fd)
{
    return fd < 64 * (int)SW_ARRAY_LEN(dup2ed) && (atomic_load(&dup2ed[fd / 64]) >> fd % 64 & 1);
}

int posix_spawn_file_actions_adddup2(posix_spawn_file_actions_t *fa, int fd, int fd2)
{
    if (fd >= 0 && fd < 64 * (int)SW_ARRAY_LEN(dup2ed))
        atomic_fetch_or(&dup2ed[fd / 64], UINT64_C(1) << fd % 64);
    return REAL(posix_spawn_file_actions_adddup2)(fa, fd, fd2);
}
