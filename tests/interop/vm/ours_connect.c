/* Our end's beginning: the TCP socket, and the immediate startup of RFC 5044 Figure 10 on it. */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "tests/interop/vm/ours.h"

#define RETRY_LIMIT 200 /* connections refused, 50 ms apart */

/* ---- the socket ---- */

int ours_wait_until(struct ours *o, short events, int timeout_ms)
{
    struct pollfd pfd = { .fd = o->fd, .events = events };
    int n = poll(&pfd, 1, timeout_ms);

    if (n < 0)
        return errno == EINTR ? 1 : -errno;
    return n;
}

int ours_wait_for(struct ours *o, short events)
{
    int n = ours_wait_until(o, events, -1);

    return n < 0 ? n : 0;
}

static int listen_one(struct peer *p, const struct addrinfo *ai, const struct peer_cfg *cfg)
{
    int one = 1, listener = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0), fd;

    if (listener < 0)
        return peer_fail(p, errno, "socket");
    if (setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0 ||
        bind(listener, ai->ai_addr, ai->ai_addrlen) < 0 || listen(listener, 1) < 0) {
        fd = peer_fail(p, errno, "listen");
    } else {
        peer_tell_ready(cfg);
        fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0)
            fd = peer_fail(p, errno, "accept");
    }
    close(listener);
    return fd;
}

static int connect_one(struct peer *p, const struct addrinfo *ai, const struct peer_cfg *cfg)
{
    for (int tries = 0;; tries++) {
        int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0), err;

        if (fd < 0)
            return peer_fail(p, errno, "socket");
        if (connect(fd, ai->ai_addr, ai->ai_addrlen) == 0)
            return fd;
        err = errno;
        close(fd);
        if (err != ECONNREFUSED || !cfg->retry || tries == RETRY_LIMIT)
            return peer_fail(p, err, "connect");
        /* A program that cannot tell when it listens: no event to wait for. */
        nanosleep(&(struct timespec){ .tv_nsec = 50000000 }, NULL);
    }
}

int ours_open_socket(struct peer *p, const struct peer_cfg *cfg)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV };
    struct addrinfo *ai;
    int err = getaddrinfo(cfg->address, cfg->port, &hints, &ai), one = 1, fd;

    if (err)
        return peer_fail(p, EINVAL, "%s port %s: %s", cfg->address, cfg->port, gai_strerror(err));
    fd = cfg->responder ? listen_one(p, ai, cfg) : connect_one(p, ai, cfg);
    freeaddrinfo(ai);
    if (fd < 0)
        return fd;
    ours(p)->fd = fd;
    if (fcntl(fd, F_SETFL, O_NONBLOCK) < 0 || setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) < 0)
        return peer_fail(p, errno, "socket options");
    return 0;
}

int ours_write_all(struct ours *o, const uint8_t *data, size_t len)
{
    while (len > 0) {
        ssize_t n = send(o->fd, data, len, MSG_NOSIGNAL);

        if (n < 0 && errno == EAGAIN) {
            int err = ours_wait_for(o, POLLOUT);
            if (err)
                return err;
        } else if (n < 0) {
            return -errno;
        } else {
            data += n;
            len -= (size_t)n;
        }
    }
    return 0;
}

/* ---- startup ---- */

static int startup_in(struct peer *p)
{
    struct ours *o = ours(p);
    uint8_t buf[MPA_STARTUP_HDR_LEN + MPA_PRIVATE_MAX];
    size_t need = mpa_startup_need(&o->startup);
    ssize_t n = recv(o->fd, buf, need < sizeof(buf) ? need : sizeof(buf), 0);

    if (n < 0 && errno == EAGAIN)
        return ours_wait_for(o, POLLIN);
    if (n < 0)
        return peer_fail(p, errno, "recv during the startup");
    if (n == 0)
        mpa_startup_eof(&o->startup);
    else if (mpa_startup_input(&o->startup, buf, (size_t)n) < 0)
        return peer_fail(p, EPROTO, "startup: %s", mpa_startup_err_name(o->startup.err));
    return 0;
}

static int startup_out(struct peer *p)
{
    struct ours *o = ours(p);
    const uint8_t *frame;
    size_t len = mpa_startup_output(&o->startup, &frame);
    int err = ours_write_all(o, frame, len);

    if (err)
        return peer_fail(p, -err, "send during the startup");
    mpa_startup_sent(&o->startup, len);
    return 0;
}

static int decide(struct peer *p, const struct peer_cfg *cfg)
{
    struct mpa_startup *s = &ours(p)->startup;
    size_t len = cfg->priv ? strlen(cfg->priv) : 0;
    int err = cfg->refuse ? -EPROTO : mpa_startup_accept(s, cfg->priv, len);

    if (err == -EPROTO) /* RFC 6581 9.2: what is asked for cannot be met */
        err = mpa_startup_reject(s, cfg->priv, len);
    return err ? peer_fail(p, -err, "answer to the Request: %s", mpa_startup_err_name(s->err)) : 0;
}

int ours_run_startup(struct peer *p, const struct peer_cfg *cfg)
{
    struct ours *o = ours(p);
    struct mpa_startup_cfg sc = {
        .responder = cfg->responder,
        .rev = cfg->rev,
        .crc = cfg->crc,
        .markers = cfg->markers,
        .peer_to_peer = !cfg->responder && cfg->rtr && cfg->rev > 1,
        .rtr = cfg->rtr,
        .ird = cfg->rev > 1 ? cfg->ird : MPA_IRD_ORD_NONE,
        .ord = cfg->rev > 1 ? cfg->ord : MPA_IRD_ORD_NONE,
        .priv = cfg->priv,
        .priv_len = cfg->priv ? strlen(cfg->priv) : 0,
    };
    const struct mpa_startup_result *res = &o->startup.res;
    int err = mpa_startup_init(&o->startup, &sc);

    if (err)
        return peer_fail(p, -err, "startup settings");
    for (;;) {
        switch (o->startup.state) {
        case MPA_ST_SEND_REQ:
        case MPA_ST_SEND_REP:
            err = startup_out(p);
            break;
        case MPA_ST_WAIT_REP:
        case MPA_ST_WAIT_REQ:
            err = startup_in(p);
            break;
        case MPA_ST_DECIDE:
            err = decide(p, cfg);
            break;
        default: /* FAILED, and what other dialects have */
            return peer_fail(p, EPROTO, "startup: %s", mpa_startup_err_name(o->startup.err));
        case MPA_ST_DONE:
        case MPA_ST_REJECTED:
            p->met = (struct peer_met){
                .refused = o->startup.state == MPA_ST_REJECTED,
                .ird = res->ird,
                .ord = res->ord,
                .rev = res->rev,
                .rtr = res->rtr,
                .crc = res->crc,
                .markers_tx = res->markers_tx,
                .markers_rx = res->markers_rx,
                .priv_len = res->peer_priv_len < PEER_PRIVATE_MAX ? res->peer_priv_len : PEER_PRIVATE_MAX,
            };
            memcpy(p->met.priv, res->peer_priv, p->met.priv_len);
            return 0;
        }
        if (err)
            return err;
    }
}
