/*
 * libsockwarp_ext.a: sockwarp.h's calls, for programs that are linked with it. They look for those of the library that
 * sockwarp preloads; without it they say ENOSYS.
 *
 * Weak: a program may define such a function itself. Hidden: what is looked for is found in the preloaded library alone,
 * and never here or in another plug-in that has this file, too.
 */
#include "include/sockwarp.h"

#include <dlfcn.h>
#include <errno.h>

#define EXT __attribute__((weak, visibility("hidden")))

static int absent(void)
{
    errno = ENOSYS;
    return -1;
}

/* (Asked each time: a look-up takes less than the answer, and what a process has preloaded does not change.) */
EXT int sockwarp_info(int fd, struct sockwarp_info *info, size_t size)
{
    int (*call)(int, struct sockwarp_info *, size_t);
    *(void **)&call = dlsym(RTLD_DEFAULT, "sockwarp_info");
    return call != NULL ? call(fd, info, size) : absent();
}

EXT int sockwarp_policy_once(const char *rules)
{
    int (*call)(const char *);
    *(void **)&call = dlsym(RTLD_DEFAULT, "sockwarp_policy_once");
    return call != NULL ? call(rules) : absent();
}
