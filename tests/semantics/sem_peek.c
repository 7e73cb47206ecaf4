/*
 * SO_PEEK_OFF: each MSG_PEEK goes on where the last one stopped.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/semantics/sem.h"

static void say_off(int s)
{
    int off = -77;
    socklen_t len = sizeof(off);
    if (getsockopt(s, SOL_SOCKET, SO_PEEK_OFF, &off, &len) < 0)
        say_result("off", -1);
    else
        say(" off=%d/%u", off, (unsigned)len);
}

static void set_off(int s, int off)
{
    say_result("set", setsockopt(s, SOL_SOCKET, SO_PEEK_OFF, &off, sizeof(off)));
    say_off(s);
}

/* A look at len octets; says how many there were, and where in the stream they are. */
static void look(int s, size_t len, int flags)
{
    uint8_t buf[64], here[64];
    memset(buf, 0, sizeof(buf));
    ssize_t r = recv(s, buf, len, MSG_PEEK | flags);
    say_result("peek", r);
    for (unsigned at = 0; r > 0 && !(flags & MSG_TRUNC) && at < 64; at++) {
        fill(here, (size_t)r, sem_rx + at);
        if (memcmp(here, buf, (size_t)r) == 0) {
            say("@%u", at);
            break;
        }
    }
    say_off(s);
}

static void peek_off(int s)
{
    far_do(FAR_SEND, 20);
    await_octets(s, 20);
    say_off(s);
    set_off(s, 0);
    for (int i = 0; i < 3; i++)
        look(s, 3, MSG_DONTWAIT);
    say(" recv=%zu", recv_next(s, 2));
    look(s, 3, MSG_DONTWAIT);
    set_off(s, 1);
    look(s, 4, 0);
    say(" recv=%zu", recv_next(s, 9)); /* beyond what was looked at */
    look(s, 4, 0);
    look(s, 4, MSG_TRUNC);
    look(s, 4, MSG_DONTWAIT);
    look(s, 4, MSG_DONTWAIT);
    set_off(s, -1);
    look(s, 4, MSG_DONTWAIT);
    look(s, 4, MSG_DONTWAIT);
    set_off(s, 2);
    say_result("trunc", recv(s, NULL, 5, MSG_TRUNC));
    sem_rx += 5;
    say_off(s);
    say(" rest=%zu", recv_next(s, 4));
    say_result("short", setsockopt(s, SOL_SOCKET, SO_PEEK_OFF, &(char){ 0 }, 1));
}

static void peek_off_waits(int s)
{
    set_off(s, 3);
    far_do(FAR_SEND, 3);
    await_octets(s, 3);
    say(" in=%s", poll_names(poll_one(s, POLLIN, 10000)));
    look(s, 4, MSG_DONTWAIT);
    far_begin(FAR_SEND, 6, 30);
    look(s, 4, MSG_WAITALL);
    far_end();
    say(" recv=%zu", recv_next(s, 9));
    far_do(FAR_SEND, 2);
    far_do(FAR_CLOSE, 0);
    look(s, 5, 0);
    look(s, 5, 0);
    say(" recv=%zu", recv_next(s, 2));
    look(s, 5, 0);
}

/*
 * Before the other end has said anything: set on a connection that accept() has just given, and on its listener before.
 */
static void peek_off_at_once(bool listener)
{
    int off = 0;
    if (listener)
        must("listener", setsockopt(sem_listener, SOL_SOCKET, SO_PEEK_OFF, &off, sizeof(off)));
    far_begin(FAR_CONNECT, sem_port, 0);
    int c = (int)must("accept", accept(sem_listener, NULL, NULL));
    must("connect", far_end().r);
    sem_rx = 0;
    if (!listener)
        set_off(c, 0);
    say_off(c);
    far_do(FAR_USE, 1);
    far_begin(FAR_SEND, 10, 30);
    say(" in=%s", poll_names(poll_one(c, POLLIN, LATE_MS)));
    far_end();
    await_octets(c, 10);
    look(c, 3, 0);
    look(c, 3, 0);
    say(" recv=%zu", recv_next(c, 5));
    look(c, 3, 0);
    say(" recv=%zu", recv_next(c, 5));
    send_next(c, 5);
    far_say("far", far_do(FAR_RECV, 5));
    close(c);
}

static void peek_off_early(int s)
{
    (void)s;
    peek_off_at_once(false);
}

static void peek_off_listener(int s)
{
    (void)s;
    peek_off_at_once(true);
}

/* The first call is a read that waits; the offset is further on than what comes. */
static void peek_off_read(int s)
{
    (void)s;
    far_begin(FAR_CONNECT, sem_port, 0);
    int c = (int)must("accept", accept(sem_listener, NULL, NULL));
    must("connect", far_end().r);
    sem_rx = 0;
    set_off(c, 7);
    far_do(FAR_USE, 1);
    far_begin(FAR_SEND, 4, 30);
    say(" recv=%zu", recv_next(c, 4));
    far_end();
    say_off(c);
    far_do(FAR_SEND, 5);
    await_octets(c, 5);
    look(c, 5, MSG_DONTWAIT);
    close(c);
}

static void peek_off_connect(int s)
{
    (void)s;
    uint8_t buf[8];
    int off = 2;
    far_begin(FAR_ACCEPT, 0, 0);
    int c = (int)must("connect", connect_to(sem_far_port));
    must("accept", far_end().r);
    set_off(c, off);
    far_do(FAR_USE, 1);
    far_do(FAR_SEND, 6);
    await_octets(c, 6);
    sem_rx = 0;
    look(c, 3, 0);
    look(c, 3, 0);
    say_result("recv", recv(c, buf, sizeof(buf), 0));
    say_off(c);
    close(c);
}

const struct scenario sem_peek[] = {
    { "peek_off", peek_off },
    { "peek_off_waits", peek_off_waits },
    { "peek_off_early", peek_off_early },
    { "peek_off_listener", peek_off_listener },
    { "peek_off_read", peek_off_read },
    { "peek_off_connect", peek_off_connect },
    { NULL, NULL },
};
