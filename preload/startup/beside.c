/* The Hellos beside the connection; see beside.h. */
#include "preload/startup/beside.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/ioctl.h>

#include "core/base/reason.h"
#include "core/base/trace.h"
#include "preload/conn/conn.h"
#include "preload/conn/conn_mem.h"
#include "preload/process/proc.h"
#include "preload/process/real.h"
#include "preload/startup/local.h"
#include "preload/startup/meet.h"
#include "preload/startup/startup.h"

static struct meet meet_of(const struct conn *c)
{
    return (struct meet){ .cookie = c->startup.meet_cookie, .at = c->startup.meet_at };
}

static void note_meet(struct conn *c, const struct meet *m)
{
    c->startup.meet_cookie = m->cookie;
    c->startup.meet_at = m->at;
}

uint64_t beside_meets(const struct sock *s, int fd, const struct sockaddr *peer)
{
    if (!local_is_own(peer))
        return 0;
    uint64_t netns = s->hops_known ? meet_own_netns(fd) : meet_netns(fd);
    return netns != 0 && local_meets(netns, peer) ? netns : 0;
}

bool beside_ask(struct conn *c, int fd, uint64_t netns)
{
    struct meet m = { 0 };
    const uint8_t *hellos;
    if (conn_buffers(c) < 0 || startup_prepare(c) < 0)
        return false;
    size_t len = negotiate_out(&c->neg, &hellos);
    if (c->neg.state != NEGOTIATE_LATE || !meet_ask(&m, fd, netns, hellos, len))
        return false;
    negotiate_sent(&c->neg, len);
    note_meet(c, &m);
    c->startup.beside = true;
    return true;
}

void beside_connected(struct conn *c, int fd)
{
    struct meet m = meet_of(c);
    struct sockaddr_storage local;
    socklen_t len = sizeof(local);
    c->startup.unlooked =
        true; /* no server can have said anything yet; if one has, it is seen when the program waits */
    if (REAL(getsockname)(fd, (struct sockaddr *)&local, &len) == 0)
        meet_connected(&m, &local, &c->peer);
}

void beside_waits_next(struct conn *c)
{
    if (c->startup.beside && !c->responder)
        c->startup.unlooked = true;
}

bool beside_give_up(struct conn *c)
{
    if (!c->startup.beside || c->responder || c->startup.meet_at == 0)
        return true;
    struct meet m = meet_of(c);
    bool over = meet_give_up(&m);
    note_meet(c, &m);
    return over;
}

void beside_end(struct conn *c)
{
    struct meet m = meet_of(c);
    if (!c->startup.beside || c->responder || m.at == 0)
        return;
    meet_give(&m);
    note_meet(c, &m);
}

bool beside_is_idle(const struct conn *c)
{
    uint8_t answer[MEET_ANSWER_MAX];
    struct meet m = meet_of(c);
    return c->startup.beside && !c->responder && conn_is_late(c) && meet_look(&m, answer) == 0;
}

/* Is it one Hello, and an answer to ours? */
static bool is_whole(const struct conn *c, const uint8_t *answer, size_t len)
{
    struct hello h;
    return hello_decode(answer, len, &h) == (ssize_t)len && (h.kind == HELLO_HACK || h.kind == HELLO_HNAK) &&
           memcmp(h.nonce, c->neg.cfg.nonce, HELLO_NONCE_LEN) == 0;
}

/* Whatever the server says comes behind its answer, or there is none. */
static bool step_initiator(struct conn *c, int fd)
{
    uint8_t answer[MEET_ANSWER_MAX];
    struct meet m = meet_of(c);
    ssize_t n = meet_look(&m, answer);
    bool unlooked = atomic_exchange(&c->startup.unlooked, false);
    if (n == 0 && unlooked) {
        c->startup.kernel_wants = POLLIN;
        return false;
    }
    if (n == 0) {
        uint8_t first; /* of what the server says, as a program without the library would */
        ssize_t input = startup_peek_first(fd, &first);
        if (startup_would_wait(c, input, POLLIN))
            return false;
        if (beside_give_up(c)) {
            c->neg.answered = input > 0;
            negotiate_eof(&c->neg);
            return true;
        }
        n = meet_look(&m, answer);
    }
    if (n > 0 && is_whole(c, answer, (size_t)n)) {
        startup_count_streamed(c, fd);
        (void)negotiate_in(&c->neg, answer, (size_t)n, proc_now_ns());
    } else { /* a process of this user has written there, and what the server has answered is not known */
        negotiate_lost(&c->neg);
    }
    beside_end(c);
    return true;
}

bool beside_is_asked(const struct conn *c)
{
    uint8_t hellos[MEET_ASK_MAX];
    struct meet m = { 0 };
    return meet_find(&m, &c->local, &c->peer, hellos) > 0;
}

static bool step_responder(struct conn *c)
{
    uint8_t hellos[MEET_ASK_MAX];
    const uint8_t *answer;
    struct meet m = { 0 };
    size_t len = meet_find(&m, &c->local, &c->peer, hellos), used = 0;
    if (!negotiate_is_late(hellos, len)) /* a process of this user has written there, or there is nothing */
        len = 0;
    while (used < len) {
        size_t n = negotiate_in(&c->neg, hellos + used, len - used, proc_now_ns());
        if (n == 0)
            break;
        used += n;
    }
    if (c->neg.state == NEGOTIATE_PEEK || c->neg.state == NEGOTIATE_NAKED)
        negotiate_eof(&c->neg);
    size_t answer_len = negotiate_out(&c->neg, &answer);
    if (answer_len > 0 && !meet_answer(&m, answer, answer_len))
        negotiate_unanswered(&c->neg);
    else if (answer_len > 0)
        negotiate_sent(&c->neg, answer_len);
    return true;
}

bool beside_step(struct conn *c, int fd)
{
    return c->responder ? step_responder(c) : step_initiator(c, fd);
}

/* Both turns held. */
static void step_deciding(struct sock *s)
{
    struct conn *c = s->conn;
    startup_step(s);
    if (!conn_is_late(c) || !beside_give_up(c))
        return;
    negotiate_eof(&c->neg);
    startup_step(s);
}

void beside_decide(struct sock *s)
{
    struct conn *c = s->conn;
    if (c == NULL || !c->startup.beside || !conn_is_late(c))
        return;
    int r = startup_in_turns(s, false, step_deciding);
    if (r < 0)
        trace_info("fd %d: another thread has its turns: its startup goes on", atomic_load(&s->fd));
}
