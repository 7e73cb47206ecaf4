/*
 * Connections in the backlog: connect() has returned, and the listener's program accepts later.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/semantics/sem.h"

static struct sockaddr_in far_address(void)
{
    return (struct sockaddr_in){
        .sin_family = AF_INET,
        .sin_addr.s_addr = sem_address_of(sem_far_port),
        .sin_port = htons(sem_far_port),
    };
}

/* It is connected, whoever is asked. */
static void connected(int c)
{
    struct sockaddr_in to = far_address(), peer = { 0 };
    socklen_t len = sizeof(peer);
    uint8_t octet;
    say_result("peer", getpeername(c, (struct sockaddr *)&peer, &len));
    say(" port=%d", peer.sin_port == to.sin_port);
    say_result("again", connect(c, (struct sockaddr *)&to, sizeof(to)));
    int err = -1;
    len = sizeof(err);
    must("SO_ERROR", getsockopt(c, SOL_SOCKET, SO_ERROR, &err, &len));
    say(" error=%d", err);
    len = sizeof(peer);
    say_result("from", recvfrom(c, &octet, 1, MSG_DONTWAIT, (struct sockaddr *)&peer, &len));
}

/* Both before and after the far end has accepted; then octets both ways. */
static void go_on(int s, int c)
{
    connected(c);
    far_do(FAR_ACCEPT, 0);
    connected(c);
    send_next(c, 5);
    far_say("far", far_do(FAR_RECV, 5));
    far_do(FAR_SEND, 5);
    say(" recv=%zu", recv_next(c, 5));
    close(c);
    close(s);
}

static void backlog_blocking(int s)
{
    far_do(FAR_CLOSE, 0);
    go_on(s, (int)must("connect", connect_to(sem_far_port)));
}

static void backlog_polled(int s)
{
    struct sockaddr_in to = far_address();
    far_do(FAR_CLOSE, 0);
    int c = (int)must("socket", socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
    say_result("connect", connect(c, (struct sockaddr *)&to, sizeof(to)));
    say(" poll=%s", poll_names(poll_one(c, POLLIN | POLLOUT, 10000)));
    connected(c);
    set_nonblock(c, false);
    go_on(s, c);
}

/* Nobody will accept it: the listener is gone. */
static void backlog_gone(int s)
{
    uint8_t octet;
    int c = (int)must("connect", connect_to(sem_far_port));
    far_begin(FAR_EXIT, 0, 0);
    must("poll", poll_one(c, POLLIN, 10000));
    say_result("recv", recv(c, &octet, 1, 0));
    say_result("then", recv(c, &octet, 1, 0));
    say_result("send", send(c, "x", 1, MSG_NOSIGNAL));
    close(c);
    close(s);
}

const struct scenario sem_backlog[] = {
    { "backlog_blocking", backlog_blocking },
    { "backlog_polled", backlog_polled },
    { "backlog_gone", backlog_gone },
    { NULL, NULL },
};
