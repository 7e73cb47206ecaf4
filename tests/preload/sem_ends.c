/*
 * The end of a connection, as a matrix: what one end does, what the other end does, which of them is first, and whether there are
 * octets unread at either. After it: what every call says, and what poll does.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/preload/sem.h"

enum act { ACT_RD, ACT_WR, ACT_RDWR, ACT_CLOSE, ACT_RESET };
static const char *const act_names[] = { "rd", "wr", "rdwr", "close", "reset" };

#define ALL (POLLIN | POLLOUT | POLLPRI | POLLRDHUP)
#define UNREAD 10

static unsigned made; /* connections of this scenario, as the far end counts them */

static int another(void)
{
    int s;
    if (sem_accepting) {
        far_begin(FAR_CONNECT, sem_port, 0);
        s = (int)must("accept", accept(sem_listener, NULL, NULL));
    } else {
        far_begin(FAR_ACCEPT, 0, 0);
        s = (int)must("connect", connect_to(sem_far_port));
    }
    must("far", far_end().r);
    far_do(FAR_USE, ++made);
    sem_rx = sem_tx = 0;
    return s;
}

/* True: s is closed. */
static bool near_act(int s, enum act act)
{
    struct linger lin = { .l_onoff = 1, .l_linger = 0 };
    switch (act) {
    case ACT_RD:
    case ACT_WR:
    case ACT_RDWR:
        say_result(act_names[act], shutdown(s, act == ACT_RD   ? SHUT_RD
                                               : act == ACT_WR ? SHUT_WR
                                                               : SHUT_RDWR));
        return false;
    case ACT_RESET:
        must("SO_LINGER", setsockopt(s, SOL_SOCKET, SO_LINGER, &lin, sizeof(lin)));
        say_result("reset", close(s));
        return true;
    default:
        say_result("close", close(s));
        return true;
    }
}

static void far_act(enum act act)
{
    say(" far-%s", act_names[act]);
    if (act <= ACT_RDWR)
        far_do(FAR_SHUTDOWN, act == ACT_RD ? SHUT_RD : act == ACT_WR ? SHUT_WR : SHUT_RDWR);
    else
        far_do(act == ACT_CLOSE ? FAR_CLOSE : FAR_RESET, 0);
}

static void say_error(int s)
{
    int err = -1;
    socklen_t len = sizeof(err);
    must("SO_ERROR", getsockopt(s, SOL_SOCKET, SO_ERROR, &err, &len));
    if (err != 0)
        say(" error=%s", error_name(err));
}

/* What every call says now. */
static void look_at(int s)
{
    char octet = 0;
    say(" poll=%s", poll_names(poll_one(s, ALL, 0)));
    for (int i = 0; i < 3; i++)
        say_result("recv", recv(s, (char[64]){ 0 }, 64, MSG_DONTWAIT));
    say_result("send", send(s, &octet, 1, MSG_NOSIGNAL | MSG_DONTWAIT));
    say_error(s);
    say(" poll=%s", poll_names(poll_one(s, ALL, 0)));
    say_result("recv", recv(s, &octet, 1, MSG_DONTWAIT));
    say_result("wr", shutdown(s, SHUT_WR));
    say_result("rdwr", shutdown(s, SHUT_RDWR));
    say(" poll=%s", poll_names(poll_one(s, ALL, 0)));
}

static bool ends_our_reading(enum act far)
{
    return far != ACT_RD;
}

/* One cell. */
static void cell(enum act near, enum act far, bool near_first, bool near_unread, bool far_unread)
{
    int s = another();
    bool closed = false;
    say(" [%s", near_unread ? "unread" : "");
    if (near_unread) {
        far_do(FAR_SEND, UNREAD);
        await_octets(s, UNREAD);
    }
    if (far_unread)
        send_next(s, UNREAD);
    if (near_first)
        closed = near_act(s, near);
    far_act(far);
    if (!near_first) {
        if (ends_our_reading(far))
            poll_one(s, POLLRDHUP, LATE_MS);
        closed = near_act(s, near);
    } else if (!closed && ends_our_reading(far)) {
        poll_one(s, near == ACT_WR ? POLLRDHUP : 0, near == ACT_WR ? LATE_MS : 0);
    }
    if (!closed) {
        look_at(s);
        close(s);
    }
    if (far <= ACT_RDWR) {
        far_say("far", far_do(FAR_RECV, 100));
        far_do(FAR_CLOSE, 0);
    }
    say("]");
}

static void row(enum act near)
{
    for (int far = ACT_RD; far <= ACT_RESET; far++)
        for (unsigned bits = 0; bits < 8; bits++)
            cell(near, (enum act)far, bits & 1, bits & 2, bits & 4);
}

static void ends_rd(int s)
{
    (void)s;
    row(ACT_RD);
}

static void ends_wr(int s)
{
    (void)s;
    row(ACT_WR);
}

static void ends_rdwr(int s)
{
    (void)s;
    row(ACT_RDWR);
}

static void ends_close(int s)
{
    (void)s;
    row(ACT_CLOSE);
}

static void ends_reset(int s)
{
    (void)s;
    row(ACT_RESET);
}

/* At once: the peer's end and ours cross. */
static void ends_at_once(int s)
{
    (void)s;
    for (unsigned bits = 0; bits < 4; bits++) {
        int c = another();
        if (bits & 1)
            far_do(FAR_SEND, UNREAD);
        if (bits & 2)
            send_next(c, UNREAD);
        far_do(FAR_SHUTDOWN, SHUT_WR);
        say_result("rdwr", shutdown(c, SHUT_RDWR));
        say_result("close", close(c));
    }
}

/* Octets that nobody reads, and the reading side is shut down: the peer's next read tells of a reset. */
static void ends_unread(int s)
{
    static const int hows[] = { SHUT_RD, SHUT_RDWR };
    (void)s;
    for (size_t i = 0; i < sizeof(hows) / sizeof(hows[0]); i++) {
        for (int seen = 0; seen < 2; seen++) {
            int c = another();
            far_do(FAR_SEND, UNREAD);
            await_octets(c, UNREAD);
            if (seen)
                say(" in=%s", poll_names(poll_one(c, POLLIN, LATE_MS)));
            say_result("shutdown", shutdown(c, hows[i]));
            say_result("close", close(c));
            far_say("far", far_do(FAR_RECV, 1));
        }
    }
}

static void ends_exit(int s)
{
    send_next(s, UNREAD);
    far_begin(FAR_EXIT, 0, 0);
    poll_one(s, POLLRDHUP, LATE_MS);
    look_at(s);
}

static void ends_exit_read(int s)
{
    send_next(s, UNREAD);
    far_say("far", far_do(FAR_RECV, UNREAD));
    far_begin(FAR_EXIT, 0, 0);
    poll_one(s, POLLRDHUP, LATE_MS);
    look_at(s);
}

const struct scenario sem_ends[] = {
    { "ends_rd", ends_rd },
    { "ends_wr", ends_wr },
    { "ends_rdwr", ends_rdwr },
    { "ends_close", ends_close },
    { "ends_reset", ends_reset },
    { "ends_at_once", ends_at_once },
    { "ends_unread", ends_unread },
    { "ends_exit", ends_exit },
    { "ends_exit_read", ends_exit_read },
    { NULL, NULL },
};
