/*
 * --explain: what was decided for a connection, and where the program made it.
 */
#include "preload/conn/explain.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "core/base/fault.h"
#include "core/base/foreign.h"
#include "core/base/rawsys.h"
#include "core/base/reason.h"
#include "core/base/trace.h"
#include "preload/process/proc.h"
#include "preload/process/stats.h"
#include "preload/sock/sock.h"

void explain_to_stderr(const char *line, size_t len)
{
    struct sock *s = sock_get_active(STDERR_FILENO);
    if (s == NULL)
        rawsys_write(STDERR_FILENO, line, len);
    else
        sock_put(s);
}

void explain_decision(int fd, const char *role, const struct sockaddr_storage *peer, const char *decision,
                      unsigned reason)
{
    if (!proc.set.explain && !trace_on(TRACE_INFO))
        return;
    int err = errno;
    char addr[80], site[256] = "?", line[512];
    stats_addr(peer, addr, sizeof(addr));
    foreign_enter(); /* libunwind reads from a pipe of its own, through our read() */
    fault_call_site(site, sizeof(site));
    foreign_leave();
    int head = snprintf(line, sizeof(line), "sockwarp[%d]: ", (int)proc.pid);
    int n = head + snprintf(line + head, sizeof(line) - (size_t)head, "fd %d %s %s: %s (%s: %s) at %s\n", fd, role,
                            addr, decision, reason_name(reason), reason_text(reason), site);
    if (n > (int)sizeof(line) - 1)
        n = (int)sizeof(line) - 1;
    if (proc.set.explain)
        explain_to_stderr(line, (size_t)n);
    else
        trace_info("%.*s", n - 1 - head, line + head);
    errno = err;
}
