/*
 * close_range and closefrom: as so many closes, but for descriptors of ours.
 */
#include <limits.h>
#include <linux/close_range.h>
#include <unistd.h>

#include "preload/calls/fdops.h"
#include "preload/calls/rights.h"
#include "preload/calls/ring.h"
#include "preload/process/hidden.h"
#include "preload/process/proc.h"
#include "preload/process/real.h"
#include "preload/ready/epoll.h"
#include "preload/sock/sock.h"

/* The real call, around descriptors of ours. */
static int close_but_ours(unsigned first, unsigned last, int flags)
{
    int r = 0;
    for (int ours; r == 0 && (ours = hidden_next(first, last)) >= 0; first = (unsigned)ours + 1)
        if ((unsigned)ours > first)
            r = REAL(close_range)(first, (unsigned)ours - 1, flags);
    return r < 0 || first > last ? r : REAL(close_range)(first, last, flags);
}

#define AT_A_TIME 64u

static int close_all(unsigned first, unsigned last, int flags)
{
    if ((flags & (int)CLOSE_RANGE_CLOEXEC) || proc_is_borrowed())
        return close_but_ours(first, last, flags);
    unsigned socks = (unsigned)sock_fd_limit(), sets = (unsigned)epoll_fd_limit(), rings = (unsigned)ring_fd_limit();
    unsigned limit = socks > sets ? socks : sets, fd = first;
    limit = rings > limit ? rings : limit;
    int r;
    do {
        struct {
            int fd;
            struct sock *left;
        } known[AT_A_TIME];
        unsigned n = 0;
        for (; fd <= last && fd < limit && n < AT_A_TIME; fd++)
            if ((known[n].left = fdops_close_begin((int)fd, false)) != NULL)
                known[n++].fd = (int)fd;
        bool end = fd > last || fd >= limit;
        r = close_but_ours(first, end ? last : fd - 1, flags);
        for (unsigned i = 0; i < n; i++)
            fdops_close_end(known[i].fd, known[i].left);
        first = fd;
        if (end)
            break;
    } while (r == 0);
    return r;
}

int close_range(unsigned first, unsigned last, int flags)
{
    if (first > last || !proc_on())
        return REAL(close_range)(first, last, flags);
    if (!(flags & (int)CLOSE_RANGE_UNSHARE))
        return close_all(first, last, flags);
    rights_before_own_files();
    int r = close_all(first, last, flags);
    rights_after();
    return r;
}

void closefrom(int lowfd)
{
    if (close_range(lowfd < 0 ? 0 : (unsigned)lowfd, UINT_MAX, 0) < 0)
        REAL(closefrom)(lowfd); /* a kernel before 5.9 */
}
