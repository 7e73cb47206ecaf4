/* The question and the possible answers; see ask.h. RFC 5044 section 7.1.3: streaming mode comes first. */
#include "tools/ask.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "core/base/reason.h"
#include "core/negotiate/hello.h"
#include "tools/usage.h"

struct question {
    int fd;
    uint64_t since_ns, until_ns;
    uint8_t nonce[HELLO_NONCE_LEN];
    uint8_t buf[HELLO_LEN_MAX];
    size_t len;
};

static double ms_since(const struct question *q)
{
    return (double)(now_ns() - q->since_ns) / 1e6;
}

/* Waits until there is something to read. false: the time is over. */
static bool wait_for(const struct question *q, short events)
{
    for (;;) {
        uint64_t now = now_ns();
        struct pollfd p = { .fd = q->fd, .events = events };
        int r = now < q->until_ns ? poll(&p, 1, (int)((q->until_ns - now + 999999u) / 1000000u)) : 0;

        if (r >= 0 || errno != EINTR)
            return r > 0;
    }
}

/* 0, or the errno that connecting failed with. */
static int connect_to(struct question *q, const struct sockaddr *addr, socklen_t len)
{
    int err = 0;
    socklen_t err_len = sizeof(err);

    if (connect(q->fd, addr, len) == 0)
        return 0;
    if (errno != EINPROGRESS)
        return errno;
    if (!wait_for(q, POLLOUT))
        return ETIMEDOUT;
    return getsockopt(q->fd, SOL_SOCKET, SO_ERROR, &err, &err_len) < 0 ? errno : err;
}

static bool send_question(struct question *q, uint32_t transports)
{
    struct hello h = { .kind = HELLO_HELO, .arg = transports };
    uint8_t frame[HELLO_LEN];
    ssize_t len;

    if (getrandom(q->nonce, sizeof(q->nonce), 0) != (ssize_t)sizeof(q->nonce))
        die("getrandom: %s", strerror(errno));
    memcpy(h.nonce, q->nonce, sizeof(h.nonce));
    len = hello_encode(&h, frame, sizeof(frame));
    return len > 0 && send(q->fd, frame, (size_t)len, MSG_NOSIGNAL) == len;
}

/*
 * Looks for the first of these answers that has arrived, and puts it into *h; skips what a server has sent before it.
 */
static unsigned take_answer(struct question *q, struct hello *h)
{
    uint64_t base = 0;

    for (;;) {
        size_t frame_len, safe = 0;
        ssize_t n;

        if (hello_find(q->buf, q->len, base, q->nonce, h, &frame_len, &safe) >= 0)
            return h->kind == HELLO_HACK ? REASON_UPGRADED : REASON_HELLO_NAK;
        memmove(q->buf, q->buf + safe, q->len - safe);
        q->len -= safe;
        base += safe;
        if (!wait_for(q, POLLIN))
            return base > 0 ? REASON_HELLO_GARBAGE : REASON_HELLO_TIMEOUT;
        n = recv(q->fd, q->buf + q->len, sizeof(q->buf) - q->len, 0);
        if (n > 0)
            q->len += (size_t)n;
        else if (n == 0 || (errno != EAGAIN && errno != EINTR))
            return base > 0 || q->len > 0 ? REASON_HELLO_GARBAGE : REASON_HELLO_CLOSED;
    }
}

static const char *transport_name(uint32_t transport)
{
    return transport & HELLO_TRANSPORT_VERBS ? "verbs" : transport & HELLO_TRANSPORT_IWARP ? "iwarp" : "shm";
}

/* The lowest bit first, joined as in rules. */
static void print_offer(uint32_t transports)
{
    char names[64] = "";
    size_t len = 0;

    for (uint32_t bit = HELLO_TRANSPORT_IWARP; bit <= HELLO_TRANSPORT_SHM; bit <<= 1)
        if (transports & bit)
            len += (size_t)snprintf(names + len, sizeof(names) - len, "%s%s", len > 0 ? "+" : "", transport_name(bit));
    say("offered", "%s, in version %u of the Hello", names, HELLO_VERSION);
}

static void print_answer(struct question *q, unsigned reason, const struct hello *h)
{
    /* Another version's reasons are its own. */
    unsigned its = h->version == HELLO_VERSION ? h->arg : REASON_VERSION;

    if (reason == REASON_UPGRADED)
        say("answer", "accepted, after %.3f ms, by %s, in version %u", ms_since(q), transport_name(h->arg), h->version);
    else if (reason == REASON_HELLO_NAK)
        say("answer", "declined, after %.3f ms, in version %u, for its reason %s: %s", ms_since(q), h->version,
            reason_name(its), reason_text(its));
    else
        say("answer", "none, after %.3f ms: %s", ms_since(q), reason_text(reason));
    if (reason == REASON_UPGRADED)
        say("verdict", "it runs sockwarp, and a connection would be upgraded");
    else
        say("verdict", "a connection would be plain: %s ('sockwarp explain %s')", reason_name(reason),
            reason == REASON_HELLO_NAK ? reason_name(its) : reason_name(reason));
}

unsigned ask_print(const struct sockaddr *addr, socklen_t len, uint32_t transports, unsigned timeout_ms)
{
    struct question q = { .fd = socket(addr->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0) };
    struct hello h = { 0 };
    unsigned reason = REASON_HELLO_CLOSED;
    int err;

    q.since_ns = now_ns();
    q.until_ns = q.since_ns + timeout_ms * (uint64_t)1000000;
    err = q.fd < 0 ? errno : connect_to(&q, addr, len);
    if (err != 0) {
        say("verdict", "no connection: %s", strerror(err));
        reason = REASON_NOT_CONNECTED;
    } else {
        say("connected", "after %.3f ms", ms_since(&q));
        print_offer(transports);
        q.since_ns = now_ns();
        q.until_ns = q.since_ns + timeout_ms * (uint64_t)1000000;
        if (send_question(&q, transports))
            reason = take_answer(&q, &h);
        print_answer(&q, reason, &h);
    }
    if (q.fd >= 0)
        close(q.fd);
    return reason;
}
