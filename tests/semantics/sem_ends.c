/*
 * The end of a connection, as a matrix: what one end does, what the other end does, which of them is first, and whether
 * there are octets unread at either. After it: what every call says, and what poll does.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/semantics/sem.h"

enum act { ACT_RD, ACT_WR, ACT_RDWR, ACT_CLOSE, ACT_LINGER, ACT_RESET, ACT_EXIT, ACT_KILL };
static const char *const act_names[] = { "rd", "wr", "rdwr", "close", "linger", "reset", "exit", "kill" };

#define ALL (POLLIN | POLLOUT | POLLPRI | POLLRDHUP)
#define UNREAD 10
#define LINGER_S 1
#define CUT_LEN (64 << 20)

static unsigned made; /* connections of this scenario, as the far end counts them */

static int another(void)
{
    int s = sem_pair();
    far_do(FAR_USE, ++made);
    far_do(FAR_FRESH, 0);
    sem_rx = sem_tx = 0;
    return s;
}

static bool ends_process(enum act act)
{
    return act == ACT_EXIT || act == ACT_KILL;
}

/* True: s is closed. */
static bool near_act(int s, enum act act)
{
    struct linger lin = { .l_onoff = 1, .l_linger = act == ACT_LINGER ? LINGER_S : 0 };
    switch (act) {
    case ACT_EXIT:
        _exit(0);
    case ACT_KILL:
        raise(SIGKILL);
        return true;
    case ACT_RD:
    case ACT_WR:
    case ACT_RDWR:
        say_result(act_names[act], shutdown(s, act == ACT_RD ? SHUT_RD : act == ACT_WR ? SHUT_WR : SHUT_RDWR));
        return false;
    case ACT_LINGER:
    case ACT_RESET:
        must("SO_LINGER", setsockopt(s, SOL_SOCKET, SO_LINGER, &lin, sizeof(lin)));
        say_result(act_names[act], close(s));
        return true;
    default:
        say_result("close", close(s));
        return true;
    }
}

static void far_act(enum act act)
{
    say(" far-%s", act_names[act]);
    switch (act) {
    case ACT_RD:
    case ACT_WR:
    case ACT_RDWR:
        far_do(FAR_SHUTDOWN, act == ACT_RD ? SHUT_RD : act == ACT_WR ? SHUT_WR : SHUT_RDWR);
        break;
    case ACT_EXIT:
        far_do(FAR_EXIT, 0);
        break;
    case ACT_KILL:
        far_do(FAR_KILL, 0);
        break;
    default:
        far_do(act == ACT_CLOSE ? FAR_CLOSE : act == ACT_LINGER ? FAR_LINGER : FAR_RESET, LINGER_S);
        break;
    }
}

/* What every call says to the other end, when this one has closed. */
static void far_looks(void)
{
    far_say("far", far_do(FAR_RECV, 100));
    say(" poll=%s", poll_names((int)far_do(FAR_POLL, 0).r));
    far_say("send", far_do(FAR_SEND, 1));
    far_say("send", far_do(FAR_SEND, 1));
    say(" poll=%s", poll_names((int)far_do(FAR_POLL, 0).r));
    far_say("recv", far_do(FAR_RECV, 1));
    far_do(FAR_CLOSE, 0);
}

static void say_error(int s)
{
    int err = -1;
    socklen_t len = sizeof(err);
    must("SO_ERROR", getsockopt(s, SOL_SOCKET, SO_ERROR, &err, &len));
    if (err != 0)
        say(" error=%s", error_name(err));
}

/*
 * Both ends are out: until the peer's kernel has acknowledged ours. From then on shutdown() says ENOTCONN, and a peer
 * whose process is just in a call on its socket acknowledges after that call.
 */
static void await_both_over(int s)
{
    struct tcp_info info;
    socklen_t len = sizeof(info);
    for (int ms = 0; ms < LATE_MS && getsockopt(s, IPPROTO_TCP, TCP_INFO, &info, &len) == 0 &&
                     (info.tcpi_state == TCP_LAST_ACK || info.tcpi_state == TCP_CLOSING);
         ms++)
        sleep_ms(1);
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
    await_both_over(s);
    say_result("rdwr", shutdown(s, SHUT_RDWR));
    say(" poll=%s", poll_names(poll_one(s, ALL, 0)));
}

static bool ends_our_reading(enum act far)
{
    return far != ACT_RD;
}

struct cell {
    enum act near, far;
    bool near_first, near_unread, far_unread;
    bool seen; /* the second one has seen what the first did */
};

static void both_end(const struct cell *c)
{
    int s = another();
    bool closed = false;
    if (c->near_unread) {
        far_do(FAR_SEND, UNREAD);
        if (c->near != ACT_KILL)
            await_octets(s, UNREAD);
    }
    if (c->far_unread)
        send_next(s, UNREAD);
    if (c->near_first)
        closed = near_act(s, c->near);
    if (c->near_first && c->seen && c->near != ACT_RD)
        say(" saw=%s", poll_names((int)far_do(FAR_POLL, 0).r));
    far_act(c->far);
    if (!c->near_first) {
        if (c->seen && ends_our_reading(c->far))
            poll_one(s, POLLRDHUP, LATE_MS);
        closed = near_act(s, c->near);
    } else if (!closed && ends_our_reading(c->far)) {
        poll_one(s, c->near == ACT_WR ? POLLRDHUP : 0, c->near == ACT_WR ? LATE_MS : 0);
    }
    if (!closed) {
        look_at(s);
        close(s);
    }
}

/* A process that ends is a child of its own, which makes the connection. */
static void cell(const struct cell *c)
{
    say(" [%s%s%s", c->near_unread ? "unread" : "", c->far_unread ? ",theirs" : "", c->seen ? ",seen" : "");
    if (ends_process(c->far))
        far_do(FAR_CHILD, 0);
    pid_t pid = ends_process(c->near) ? (pid_t)must("fork", fork()) : -1;
    if (pid <= 0)
        both_end(c);
    if (pid > 0) {
        made++;
        must("waitpid", waitpid(pid, NULL, 0));
        say(" %s", act_names[c->near]);
    }
    if (ends_process(c->far))
        made--; /* (it is not known to the far end's parent) */
    else if (c->far <= ACT_RDWR)
        far_looks();
    say("]");
}

static void row(enum act near)
{
    signal(SIGPIPE, SIG_IGN);
    for (int far = ACT_RD; far <= ACT_KILL; far++) {
        if (ends_process(near) && ends_process((enum act)far))
            continue; /* no thread is left to tell */
        for (unsigned bits = 0; bits < 16; bits++) {
            struct cell c = { near, (enum act)far, bits & 1, bits & 2, bits & 4, bits & 8 };
            /*
             * (sockwarp(7): what a look has taken dies with the process that is killed, and its kernel knows of nothing
             * unread.)
             */
            if (far == ACT_KILL && c.near_first && c.far_unread && c.seen)
                continue;
            cell(&c);
        }
    }
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

static void ends_linger(int s)
{
    (void)s;
    row(ACT_LINGER);
}

static void ends_by_exit(int s)
{
    (void)s;
    row(ACT_EXIT);
}

static void ends_by_kill(int s)
{
    (void)s;
    row(ACT_KILL);
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

/* Bytes stay unread, and the reading side is shut down: the peer's next read tells of a reset. */
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

/* Until the peer's reset is there; asks nothing that looks at the connection. */
static void await_reset(int s)
{
    struct tcp_info info;
    socklen_t len = sizeof(info);
    for (int ms = 0;
         ms < LATE_MS && getsockopt(s, IPPROTO_TCP, TCP_INFO, &info, &len) == 0 && info.tcpi_state != TCP_CLOSE; ms++)
        sleep_ms(1);
}

/* The peer resets while bytes of ours wait for room: the next call tells, whichever it is, and only once. */
static void ends_unsent(int s)
{
    enum { BY_RECV = SHUT_RDWR + 1, BY_SEND, BY_ERROR, ALL_WAYS };
    (void)s;
    signal(SIGPIPE, SIG_IGN);
    for (int how = SHUT_RD; how < ALL_WAYS; how++) {
        for (int unread = 0; unread < 2; unread++) {
            int c = another();
            fill_up(c);
            if (unread) {
                far_do(FAR_SEND, UNREAD);
                await_octets(c, UNREAD);
            }
            far_do(FAR_RESET, 0);
            await_reset(c);
            if (how <= SHUT_RDWR)
                say_result("shutdown", shutdown(c, how));
            if (how == BY_SEND)
                say_result("send", send(c, "", 1, MSG_DONTWAIT));
            if (how == BY_ERROR)
                say_error(c);
            for (int n = 0; n < 3; n++)
                say_result("recv", recv(c, (char[64]){ 0 }, 64, MSG_DONTWAIT));
            say_result("send", send(c, "", 1, MSG_DONTWAIT));
            say_error(c);
            close(c);
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

/*
 * A sender is killed whose last octets found no room: what had come before is all right, and then there is an end. (How
 * much comes is not said: of a frame that is not whole nothing does.)
 */
static void cut(enum far_op how)
{
    pid_t pid = (pid_t)far_do(FAR_CHILD, 0).r;
    int s = another();
    far_begin(how, CUT_LEN, 0);
    poll_one(s, POLLIN, LATE_MS);
    if (how == FAR_FILL)
        far_end();
    else
        await_asleep(pid, pid, LATE_MS);
    must("kill", kill(pid, SIGKILL));
    far_end();
    made--;
    say(" some=%d", recv_next(s, CUT_LEN) > 0);
    look_at(s);
    close(s);
}

static void ends_cut(int s)
{
    (void)s;
    cut(FAR_SEND);
}

static void ends_cut_full(int s)
{
    (void)s;
    cut(FAR_FILL);
}

/*
 * The peer sends as much as there is room for before this end accepts, and then resets: no reader may take what came for
 * all. (What the first read may make room for is less than what the peer's kernel holds then.)
 */
static void ends_filled(int s)
{
    int small = 8192;
    close(s);
    must("SO_RCVBUF", setsockopt(sem_listener, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)));
    far_do(FAR_CONNECT, sem_port);
    int64_t all = far_do(FAR_FILL, 0).r;
    s = (int)must("accept", accept(sem_listener, NULL, NULL));
    sem_rx = 0;
    recv_next(s, 1);
    far_do(FAR_RESET, 0);
    say(" less=%d", (int64_t)recv_next(s, (size_t)all) < all - 1);
    say_result("then", recv(s, (char[1]){ 0 }, 1, MSG_DONTWAIT));
    close(s);
}

const struct scenario sem_ends[] = {
    { "ends_rd", ends_rd },
    { "ends_wr", ends_wr },
    { "ends_rdwr", ends_rdwr },
    { "ends_close", ends_close },
    { "ends_reset", ends_reset },
    { "ends_linger", ends_linger },
    { "ends_by_exit", ends_by_exit },
    { "ends_by_kill", ends_by_kill },
    { "ends_cut", ends_cut },
    { "ends_cut_full", ends_cut_full },
    { "ends_filled", ends_filled },
    { "ends_at_once", ends_at_once },
    { "ends_unread", ends_unread },
    { "ends_unsent", ends_unsent },
    { "ends_exit", ends_exit },
    { "ends_exit_read", ends_exit_read },
    { NULL, NULL },
};
