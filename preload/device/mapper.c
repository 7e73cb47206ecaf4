/* Asks a peer's port mapper; see mapper.h. */
#include "preload/device/mapper.h"

#include <errno.h>
#include <string.h>
#include <sys/timerfd.h>

#include "core/base/addr.h"
#include "core/base/rawsys.h"
#include "core/base/trace.h"
#include "preload/process/hidden.h"
#include "preload/process/proc.h"
#include "preload/process/real.h"

/* A datagram may be lost. A host that drops the question costs the connection's startup this much. */
#define TRIES 3u
#define TRY_NS 100000000

static struct portmap_addr addr_of(const struct sockaddr_storage *ss)
{
    struct portmap_addr a = { .port = ntohs(addr_port(ss)) };
    if (ss->ss_family == AF_INET6)
        memcpy(a.ip, (const uint8_t *)ss + offsetof(struct sockaddr_in6, sin6_addr), 16);
    else
        memcpy(a.ip, (const uint8_t *)ss + offsetof(struct sockaddr_in, sin_addr), 4);
    return a;
}

static int say(struct mapper *q)
{
    uint8_t buf[PORTMAP_REQUEST_LEN];
    const struct itimerspec once = { .it_value = { .tv_nsec = TRY_NS } };
    ssize_t len = portmap_encode(&q->request, buf, sizeof(buf));
    q->tries++;
    if (len < 0)
        return (int)len;
    if (REAL(send)(q->fd, buf, (size_t)len, MSG_DONTWAIT) < 0)
        return -errno;
    return (int)rawsys4(__NR_timerfd_settime, q->timer, 0, (long)&once, 0);
}

int mapper_ask(struct mapper *q, const struct sockaddr_storage *peer, socklen_t len, int tcp_fd)
{
    struct sockaddr_storage to = *peer, own;
    socklen_t own_len = sizeof(own);
    int fd = REAL(socket)(peer->ss_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    q->fd = hidden_move(fd);
    fd = (int)rawsys4(__NR_timerfd_create, CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK, 0, 0);
    if (fd < 0)
        return fd;
    q->timer = hidden_move(fd);
    addr_set_port(&to, htons(PORTMAP_PORT));
    if (REAL(connect)(q->fd, (struct sockaddr *)&to, len) < 0 ||
        REAL(getsockname)(q->fd, (struct sockaddr *)&own, &own_len) < 0)
        return -errno;
    addr_set_port(&own, 0);
    if (REAL(bind)(tcp_fd, (struct sockaddr *)&own, len) < 0 ||
        REAL(getsockname)(tcp_fd, (struct sockaddr *)&own, &own_len) < 0)
        return -errno;
    q->tries = 0;
    q->request = (struct portmap_msg){
        .type = PORTMAP_REQUEST,
        .ip = peer->ss_family == AF_INET6 ? 6 : 4,
        .accepting = addr_of(peer),
        .connecting = addr_of(&own),
        .mapped = addr_of(&own), /* (no device has that port) */
    };
    proc_random((uint8_t *)&q->request.handle, sizeof(q->request.handle));
    return say(q);
}

/* As mapper_step; -ENODATA: no datagram. */
static int hear(struct mapper *q, struct sockaddr_storage *at)
{
    uint8_t buf[PORTMAP_REQUEST_LEN], ack[PORTMAP_LEN];
    uint16_t port;
    ssize_t n = REAL(recv)(q->fd, buf, sizeof(buf), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return -ENODATA;
    if (n < 0)
        return 0; /* nobody listens there */
    int r = portmap_hear(&q->request, buf, (size_t)n, &port, ack);
    if (r <= 0)
        return r == 0 ? -EAGAIN : 0;
    trace_info("mapper: the device's port %u is mapped to %u", q->request.accepting.port, port);
    addr_set_port(at, htons(port));
    (void)!REAL(send)(q->fd, ack, sizeof(ack), MSG_DONTWAIT); /* (lost, the daemon repeats its answer for a while) */
    return 0;
}

int mapper_step(struct mapper *q, struct sockaddr_storage *at)
{
    uint64_t times;
    int r = hear(q, at);
    if (r != -ENODATA)
        return r;
    if (rawsys_read(q->timer, &times, sizeof(times)) != sizeof(times))
        return -EAGAIN;
    return q->tries < TRIES && say(q) == 0 ? -EAGAIN : 0;
}
