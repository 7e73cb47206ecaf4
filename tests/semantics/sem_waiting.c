/*
 * What waits to be read, seen without reading it: FIONREAD, MSG_PEEK, SO_RCVLOWAT. TCP knows no messages: all octets
 * count that are there, in however many writes they came.
 */
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "tests/semantics/sem.h"

static void send_each(int n, int len)
{
    for (int i = 0; i < n; i++)
        if (far_do(FAR_SEND, len).r != len)
            say(" far=short");
}

static void say_there(const char *what, int s)
{
    int there = 0;
    say_result("FIONREAD", ioctl(s, FIONREAD, &there));
    say(" %s=%d", what, there);
}

static void set_lowat(int s, int n)
{
    must("SO_RCVLOWAT", setsockopt(s, SOL_SOCKET, SO_RCVLOWAT, &n, sizeof(n)));
}

/* Looks without waiting until so many octets are seen; they stay. */
static void peek_until(int s, size_t len)
{
    static uint8_t buf[1 << 18];
    ssize_t r = 0;
    while (r < (ssize_t)len) {
        must("poll", poll_one(s, POLLIN, 10000) & POLLIN);
        r = must("peek", recv(s, buf, sizeof(buf), MSG_PEEK | MSG_DONTWAIT));
    }
    uint64_t before = sem_rx;
    check(buf, (size_t)r);
    sem_rx = before;
    say(" peek=%zd", r);
}

static void waiting_several(int s)
{
    send_each(12, 500);
    await_octets(s, 6000);
    say_there("there", s);
    peek_until(s, 6000);
    say(" half=%zu", recv_next(s, 2750));
    say_there("left", s);
    peek_until(s, 3250);
    send_each(1, 20000);
    await_octets(s, 23250);
    peek_until(s, 23250);
    say(" all=%zu", recv_next(s, 23250));
    say_there("none", s);
}

/* A program may look for a whole request, and wait until there is more to see. */
static void waiting_peek_grows(int s)
{
    send_each(1, 10);
    peek_until(s, 10);
    send_each(1, 700);
    peek_until(s, 710);
    send_each(3, 400);
    peek_until(s, 1910);
    uint8_t buf[2000];
    far_begin(FAR_SEND, 90, 20);
    say_result("waitall", recv(s, buf, sizeof(buf), MSG_PEEK | MSG_WAITALL));
    far_end();
    check(buf, 2000);
    say_there("there", s);
}

static void waiting_lowat(int s)
{
    set_lowat(s, 5000);
    send_each(9, 500);
    await_octets(s, 4500);
    say(" less=%s", poll_names(poll_one(s, POLLIN, 0)));
    far_begin(FAR_SEND, 500, 10);
    say(" enough=%s", poll_names(poll_one(s, POLLIN, 10000)));
    far_end();
    say(" all=%zu", recv_next(s, 5000));
    set_lowat(s, 40000);
    send_each(60, 650);
    await_octets(s, 39000);
    say(" less=%s", poll_names(poll_one(s, POLLIN, 0)));
    far_begin(FAR_SEND, 1000, 10);
    say(" enough=%s", poll_names(poll_one(s, POLLIN, 10000)));
    far_end();
    static uint8_t buf[50000];
    ssize_t r = must("recv", recv(s, buf, sizeof(buf), 0));
    check(buf, (size_t)r);
    say(" recv=%zd", r);
    far_begin(FAR_SEND, 40000, 10);
    r = must("recv", recv(s, buf, 40000, 0));
    far_end();
    say(" recv=%zd", r);
}

/* Many writes of a few octets. */
static void waiting_tiny(int s)
{
    for (int i = 0; i < 70; i++) {
        send_each(100, 3);
        if (i % 10 == 9)
            await_octets(s, (i + 1) * 300);
    }
    say_there("there", s);
    peek_until(s, 21000);
    say(" all=%zu", recv_next(s, 21000));
}

/* Much, written in parts, while the peer does not read. */
static void waiting_much(int s)
{
    for (int i = 1; i <= 12; i++) {
        send_each(1, 4000);
        await_octets(s, i * 4000);
    }
    peek_until(s, 48000);
    say(" all=%zu", recv_next(s, 48000));
}

const struct scenario sem_waiting[] = {
    { "waiting_several", waiting_several }, { "waiting_peek_grows", waiting_peek_grows },
    { "waiting_lowat", waiting_lowat },     { "waiting_tiny", waiting_tiny },
    { "waiting_much", waiting_much },       { NULL, NULL },
};
