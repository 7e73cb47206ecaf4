/*
 * What a SYN says. See syn.h.
 */
#include "preload/startup/syn.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>

#include "preload/process/real.h"
#include "preload/process/sandbox.h"
#include "preload/sock/sock.h"

/* (Systems begin with 64, 128 or 255.) */
#define HOPS_WAITS 73
#define HOPS_GOES_ON 74
#define HOPS_MEETS 75
#define SYN_LEN_MAX 256u

static void set_hops(int fd, const struct sockaddr *peer, int hops)
{
    int err = errno;
    bool v6 = peer->sa_family == AF_INET6 &&
              !IN6_IS_ADDR_V4MAPPED(&((const struct sockaddr_in6 *)(const void *)peer)->sin6_addr);
    int level = v6 ? IPPROTO_IPV6 : IPPROTO_IP, name = v6 ? IPV6_UNICAST_HOPS : IP_TTL;
    REAL(setsockopt)(fd, level, name, &hops, sizeof(hops));
    errno = err;
}

static bool may_say(const struct sock *s, enum syn_says what)
{
    return what > SYN_UNKNOWN && s->hops_known && !sandbox_on();
}

void syn_say(const struct sock *s, int fd, const struct sockaddr *peer, enum syn_says what)
{
    if (may_say(s, what))
        set_hops(fd, peer, what == SYN_WAITS ? HOPS_WAITS : what == SYN_MEETS ? HOPS_MEETS : HOPS_GOES_ON);
}

void syn_said(struct sock *s, int fd, const struct sockaddr *peer, enum syn_says what, int r)
{
    s->hops_said = may_say(s, what);
    if (r != -EINPROGRESS && r != -EINTR)
        syn_over(s, fd, peer);
}

void syn_over(struct sock *s, int fd, const struct sockaddr *peer)
{
    if (s->hops_said && s->hops_known && !sandbox_on())
        set_hops(fd, peer, -1); /* the kernel's default */
    s->hops_said = false;
}

void syn_save(struct sock *s, int fd)
{
    int err = errno, on = 1;
    if (!s->syn_own && !s->saves_syn && !sandbox_on())
        s->saves_syn = REAL(setsockopt)(fd, IPPROTO_TCP, TCP_SAVE_SYN, &on, sizeof(on)) == 0;
    errno = err;
}

void syn_save_end(struct sock *s, int fd)
{
    int err = errno, off = 0;
    if (s->saves_syn && fd >= 0)
        REAL(setsockopt)(fd, IPPROTO_TCP, TCP_SAVE_SYN, &off, sizeof(off));
    s->saves_syn = false;
    errno = err;
}

enum syn_says syn_heard(const struct sock *listener, int fd)
{
    uint8_t syn[SYN_LEN_MAX]; /* the headers of IP and TCP */
    socklen_t len = sizeof(syn);
    int err = errno;
    bool told = listener->saves_syn && REAL(getsockopt)(fd, IPPROTO_TCP, TCP_SAVED_SYN, syn, &len) == 0;
    bool saved = told && len > 8;
    errno = err;
    if (told && len == 0)
        return SYN_UNKNOWN;
    uint8_t hops = !saved ? 0 : syn[0] >> 4 == 4 ? syn[8] : syn[7];
    return hops == HOPS_WAITS     ? SYN_WAITS
           : hops == HOPS_GOES_ON ? SYN_GOES_ON
           : hops == HOPS_MEETS   ? SYN_MEETS
                                  : SYN_NOTHING;
}
