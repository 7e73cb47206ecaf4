/*
 * Two processes, one connection over a device: the stream over the verbs endpoint, without sockets. Runs in the virtual
 * machine.
 *
 *     vbpeer ADDRESS SCENARIO     ADDRESS: the device's
 *
 * The parent is the responder, the child the initiator; a socket pair tells the child where to connect. Exit status 0:
 * all is as it must be; what is not is said on stderr.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/stream/stream.h"
#include "core/transport/verbs_impl.h"

#define TIME_MS 20000 /* any single wait */
#define TOKEN "0123456789abcdef"

static const char *who = "responder";
static bool initiator;

static void say(const char *what, const char *more)
{
    fprintf(stderr, "%s: %s%s%s\n", who, what, more[0] ? ": " : "", more);
}

static void must(bool good, const char *what)
{
    if (good)
        return;
    say(what, strerror(errno));
    exit(1);
}

/* ---- descriptors: not hidden here, only counted ---- */

static int same_fd(int fd)
{
    return fd;
}

static void nothing(int fd)
{
    (void)fd;
}

static void close_fd(int fd)
{
    close(fd);
}

static int open_fds(void)
{
    int n = 0;
    for (int fd = 0; fd < 1024; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

static int holds;

static void hold(void)
{
    holds++;
}

static void go_on(void)
{
    holds--;
}

static const struct verbs_env env = {
    .hide_fd = same_fd, .reveal_fd = nothing, .close_fd = close_fd, .hold = hold, .go_on = go_on
};

static struct verbs_cfg cfg = {
    .ring_len = 256 * 1024,
    .msg_max = 4096 + STREAM_HDR_LEN,
    .bufs = 32,
    .tx_len = 256 * 1024,
    .write_max = 64 * 1024,
    .token = TOKEN,
};

/* ---- a connection ---- */

struct pipe_end {
    struct verbs_ep *ep;
    struct stream st;
    uint64_t sent, got; /* octets */
    uint64_t to_send, want;
    uint64_t tx_seed, rx_seed;
    bool fin_sent;
    uint64_t sleeps;
};

/* The octet at place `at` of a direction. */
static uint8_t octet(uint64_t seed, uint64_t at)
{
    uint64_t x = (at / 8 + 1) * 0x9e3779b97f4a7c15ull + seed;
    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9ull;
    x ^= x >> 32;
    return (uint8_t)(x >> (at % 8 * 8));
}

static void await_state(struct verbs_ep *ep, enum verbs_state wanted)
{
    while (verbs_state(ep) != wanted) {
        struct pollfd p = { .fd = verbs_cm_fd(), .events = POLLIN };
        if (verbs_state(ep) == VERBS_DOWN) {
            say("down", verbs_why(ep));
            exit(1);
        }
        must(poll(&p, 1, TIME_MS) == 1, "the connection manager is silent");
        verbs_cm_dispatch();
    }
}

static struct stream_params params_of(struct verbs_side side)
{
    return (struct stream_params){
        .version = 1,
        .ring_stag = side.ring_stag,
        .ring_len = side.ring_len,
        .eager_max = (uint16_t)(side.msg_max - STREAM_HDR_LEN),
        .bufs = side.bufs,
    };
}

static void begin_stream(struct pipe_end *p)
{
    struct stream_cfg sc = {
        .ep = verbs_endpoint(p->ep),
        .local = params_of(verbs_local(p->ep)),
        .peer = params_of(verbs_peer(p->ep)),
        .ring = verbs_ring(p->ep),
        .eager_limit = 4096,
    };
    must(stream_init(&p->st, &sc) == 0, "stream_init");
    p->tx_seed = initiator ? 1 : 2;
    p->rx_seed = initiator ? 2 : 1;
}

static struct verbs_ep *endpoint_up(const char *address, int control)
{
    struct sockaddr_storage at;
    struct verbs_ep *ep = verbs_new(&cfg);
    const char *why = "";
    must(ep != NULL && verbs_setup(&env, &why) == 0, why);
    if (initiator) {
        must(read(control, &at, sizeof(at)) == (ssize_t)sizeof(at), "where to connect");
        must(verbs_connect(ep, (struct sockaddr *)&at, sizeof(at), TIME_MS) == 0, "verbs_connect");
    } else {
        struct sockaddr_in local = { .sin_family = AF_INET };
        enum verbs_kind kind;
        inet_pton(AF_INET, address, &local.sin_addr);
        must(verbs_expect(ep, (struct sockaddr *)&local, &at, &kind) == 0, "verbs_expect");
        must(kind == verbs_kind_at((struct sockaddr *)&local) && kind != VERBS_KIND_NONE, "the device's kind");
        must(write(control, &at, sizeof(at)) == (ssize_t)sizeof(at), "control");
    }
    await_state(ep, VERBS_UP);
    char up = 1;
    if (initiator)
        must(read(control, &up, 1) == 1, "the responder is up");
    else
        must(write(control, &up, 1) == 1, "control");
    return ep;
}

/* Sends what may be sent, up to to_send; then FIN. True: something went. */
static bool push(struct pipe_end *p)
{
    static uint8_t buf[300 * 1024];
    bool some = false;
    while (p->sent < p->to_send) {
        /* All sizes, small and large ones alike. */
        uint64_t dice = (p->sent + 1) * 0x9e3779b97f4a7c15ull >> 20;
        size_t len = 1 + (size_t)(dice >> 8) % (dice % 3 ? 3000 : sizeof(buf));
        if (len > p->to_send - p->sent)
            len = (size_t)(p->to_send - p->sent);
        for (size_t i = 0; i < len; i++)
            buf[i] = octet(p->tx_seed, p->sent + i);
        struct iovec iov = { buf, len };
        struct iov_iter it = iov_iter_init(&iov, 1);
        ssize_t n = stream_write(&p->st, &it, len);
        must(n >= 0, "stream_write");
        must(verbs_flush(p->ep) == 0, "verbs_flush");
        stream_flushed(&p->st);
        must(verbs_flush(p->ep) == 0, "verbs_flush");
        p->sent += (uint64_t)n;
        some = some || n > 0;
        if (n < (ssize_t)len)
            return some;
    }
    if (!p->fin_sent && stream_fin(&p->st) == 0) {
        must(verbs_flush(p->ep) == 0, "verbs_flush");
        stream_flushed(&p->st);
        p->fin_sent = some = true;
    }
    return some;
}

static bool pull(struct pipe_end *p, size_t most)
{
    uint8_t buf[65536];
    int r = stream_poll(&p->st);
    bool some = r > 0; /* octets, or what push waits for */
    must(r >= 0, "stream_poll");
    for (size_t done = 0, n; done < most; done += n) {
        struct iovec iov = { buf, most - done < sizeof(buf) ? most - done : sizeof(buf) };
        struct iov_iter it = iov_iter_init(&iov, 1);
        n = stream_read(&p->st, &it, iov.iov_len);
        if (n == 0)
            break;
        for (size_t i = 0; i < n; i++)
            if (buf[i] != octet(p->rx_seed, p->got + i)) {
                fprintf(stderr, "%s: octet %llu is wrong\n", who, (unsigned long long)(p->got + i));
                exit(1);
            }
        p->got += n;
        some = true;
    }
    if (stream_wants_credit(&p->st) && stream_credit(&p->st) == 0) {
        must(verbs_flush(p->ep) == 0, "verbs_flush");
        stream_flushed(&p->st);
    }
    return some;
}

static void silent(const struct pipe_end *p)
{
    fprintf(
        stderr,
        "%s: the device is silent: %llu octets sent, %llu came; Sends %u (%u back), ring %llu (%u back); returned %u "
        "(told %u), ring %u (told %u), CREDITs %u of %u answered; slept %llu times\n",
        who, (unsigned long long)p->sent, (unsigned long long)p->got, p->st.tx.sends, p->st.peer_bufs,
        (unsigned long long)p->st.tx.ring_to, p->st.peer_ring, p->st.back_bufs, p->st.told_bufs, p->st.back_ring,
        p->st.told_ring, p->st.peer_credits, p->st.sent_credits, (unsigned long long)p->sleeps);
    exit(1);
}

/* Sleeps until the device has something. */
static void sleep_for(struct pipe_end *p)
{
    struct pollfd pfd = { .fd = verbs_fd(p->ep), .events = POLLIN };
    p->sleeps++;
    if (poll(&pfd, 1, TIME_MS) != 1)
        silent(p);
    verbs_drain(p->ep);
}

/* Both directions until both ends; most: octets read at a time, pause: between them. */
static void run_both(struct pipe_end *p, size_t most, unsigned pause_us)
{
    while (!p->fin_sent || p->st.rx.end == STREAM_OPEN || p->st.rx.avail > 0) {
        bool some = push(p);
        some = pull(p, most) || some;
        if (some) {
            if (pause_us)
                usleep(pause_us);
            continue;
        }
        must(!verbs_ended(p->ep) || p->st.rx.end != STREAM_OPEN, "the device ended the connection");
        verbs_arm(p->ep, true);
        verbs_arm(p->ep, false);
        if (push(p) || pull(p, most) || (p->fin_sent && p->st.rx.end != STREAM_OPEN))
            continue;
        sleep_for(p);
    }
    must(p->st.rx.end == STREAM_EOF, "no graceful end");
    if (p->got != p->want || p->sent != p->to_send) {
        fprintf(stderr, "%s: %llu octets came, %llu wanted\n", who, (unsigned long long)p->got,
                (unsigned long long)p->want);
        exit(1);
    }
}

/* All that was sent is in the peer's memory; and when the peer says the same, both may go. */
static void fence(struct pipe_end *p, int control)
{
    char c = 0;
    must(verbs_fence(p->ep) == 0, "verbs_fence");
    while (verbs_fence_done(p->ep) == 0) {
        verbs_arm(p->ep, false);
        if (verbs_fence_done(p->ep) == 0)
            sleep_for(p);
    }
    must(verbs_fence_done(p->ep) == 1, "the fence");
    must(write(control, &c, 1) == 1 && read(control, &c, 1) == 1, "control");
}

static void fence_and_free(struct pipe_end *p, int control)
{
    fence(p, control);
    const struct verbs_stats *s = verbs_stats(p->ep);
    printf(
        "# %s on %s: %llu Sends, %llu Writes, %llu doorbells, %llu messages in, slept %llu times, %zu octets of memory\n",
        who, verbs_device(p->ep), (unsigned long long)s->tx_sends, (unsigned long long)s->tx_writes,
        (unsigned long long)s->doorbells, (unsigned long long)s->rx_sends, (unsigned long long)p->sleeps,
        verbs_memory(p->ep));
    must(s->errors == 0, "errors were counted");
    verbs_free(p->ep);
}

/* The initiator goes first: its message, even an empty one. */
static void begin(struct pipe_end *p, const char *address, int control)
{
    p->ep = endpoint_up(address, control);
    begin_stream(p);
    if (initiator) {
        must(stream_rtr(&p->st) == 0 && verbs_flush(p->ep) == 0, "the first message");
        stream_flushed(&p->st);
        return;
    }
    while (p->st.rx.bufs_used == 0) {
        must(stream_poll(&p->st) >= 0, "stream_poll");
        if (p->st.rx.bufs_used > 0)
            break;
        verbs_arm(p->ep, true);
        must(stream_poll(&p->st) >= 0, "stream_poll");
        if (p->st.rx.bufs_used == 0)
            sleep_for(p);
    }
}

/* ---- scenarios ---- */

static void bulk(const char *address, int control)
{
    struct pipe_end p = { .to_send = 20000000, .want = 20000000 };
    begin(&p, address, control);
    run_both(&p, SIZE_MAX, 0);
    fence_and_free(&p, control);
}

/* The reader takes little at a time, and late: the sender runs out of ring and of buffers again and again. */
static void slow(const char *address, int control)
{
    struct pipe_end p = { .to_send = initiator ? 1500000 : 1000, .want = initiator ? 1000 : 1500000 };
    begin(&p, address, control);
    run_both(&p, initiator ? SIZE_MAX : 3000, initiator ? 0 : 300);
    fence_and_free(&p, control);
}

/* One side's end comes long before the other's. */
static void half(const char *address, int control)
{
    struct pipe_end p = { .to_send = initiator ? 10 : 5000000, .want = initiator ? 5000000 : 10 };
    begin(&p, address, control);
    if (!initiator) {
        uint64_t all = p.to_send;
        p.to_send = 0;
        while (p.st.rx.end == STREAM_OPEN) {
            pull(&p, SIZE_MAX);
            verbs_arm(p.ep, true);
            pull(&p, SIZE_MAX);
            if (p.st.rx.end == STREAM_OPEN)
                sleep_for(&p);
        }
        pull(&p, SIZE_MAX);
        must(p.st.rx.end == STREAM_EOF && p.got == 10, "the other half ends first");
        p.to_send = all;
    }
    run_both(&p, SIZE_MAX, 0);
    fence_and_free(&p, control);
}

/* The initiator is killed in the middle: the responder's endpoint ends, and can be freed. */
static void killed(const char *address, int control)
{
    struct pipe_end p = { .to_send = initiator ? 400000000 : 0, .want = 400000000 };
    begin(&p, address, control);
    while (!verbs_ended(p.ep)) {
        bool some = initiator && push(&p);
        some = pull(&p, SIZE_MAX) || some;
        if (initiator && p.sent > 3000000)
            kill(getpid(), SIGKILL);
        if (some)
            continue;
        verbs_arm(p.ep, true);
        verbs_arm(p.ep, false);
        if ((initiator && push(&p)) || pull(&p, SIZE_MAX) || verbs_ended(p.ep))
            continue;
        struct pollfd pfd[2] = { { .fd = verbs_fd(p.ep), .events = POLLIN }, { .fd = control, .events = POLLIN } };
        if (poll(pfd, 2, TIME_MS) <= 0)
            silent(&p);
        verbs_drain(p.ep);
        if (pfd[1].revents != 0 && pfd[0].revents == 0 && !verbs_ended(p.ep)) {
            /* (RoCE's device says nothing of a peer that is gone: whoever has a TCP connection beside it knows.) */
            must(strcmp(verbs_device(p.ep), "rxe0") == 0, "siw tells");
            break;
        }
    }
    must(p.got > 0 && p.got < p.want, "some of it has come");
    verbs_free(p.ep);
}

static void no_token(const char *address, int control)
{
    struct sockaddr_storage at;
    if (!initiator) {
        struct verbs_ep *ep = verbs_new(&cfg);
        const char *why = "";
        struct sockaddr_in local = { .sin_family = AF_INET };
        enum verbs_kind kind;
        inet_pton(AF_INET, address, &local.sin_addr);
        must(ep != NULL && verbs_setup(&env, &why) == 0, why);
        must(verbs_expect(ep, (struct sockaddr *)&local, &at, &kind) == 0, "verbs_expect");
        must(kind == verbs_kind_at((struct sockaddr *)&local) && kind != VERBS_KIND_NONE, "the device's kind");
        must(write(control, &at, sizeof(at)) == (ssize_t)sizeof(at), "control");
        struct pollfd p[2] = { { .fd = verbs_cm_fd(), .events = POLLIN }, { .fd = control, .events = POLLIN } };
        while (p[1].revents == 0) {
            must(poll(p, 2, TIME_MS) > 0, "the connection manager is silent");
            verbs_cm_dispatch();
        }
        must(verbs_state(ep) == VERBS_EXPECTING, "who shows another token gets nothing");
        verbs_free(ep);
        return;
    }
    const char *why = "";
    cfg.token[3] ^= 1;
    struct verbs_ep *ep = verbs_new(&cfg);
    must(ep != NULL && verbs_setup(&env, &why) == 0, why);
    must(read(control, &at, sizeof(at)) == (ssize_t)sizeof(at), "where to connect");
    must(verbs_connect(ep, (struct sockaddr *)&at, sizeof(at), TIME_MS) == 0, "verbs_connect");
    while (verbs_state(ep) != VERBS_DOWN) {
        struct pollfd p = { .fd = verbs_cm_fd(), .events = POLLIN };
        must(poll(&p, 1, TIME_MS) == 1, "the connection manager is silent");
        verbs_cm_dispatch();
        must(verbs_state(ep) != VERBS_UP, "rejected");
    }
    must(strstr(verbs_why(ep), "rejected") != NULL, verbs_why(ep));
    verbs_free(ep);
}

/* Many, one after the other: descriptors and the device's objects are given back each time. */
static void many(const char *address, int control)
{
    int before = 0;
    for (unsigned i = 0; i < 60; i++) {
        struct pipe_end p = { .to_send = 5000, .want = 5000 };
        begin(&p, address, control);
        run_both(&p, SIZE_MAX, 0);
        fence(&p, control);
        verbs_free(p.ep);
        char c = 0;
        must(write(control, &c, 1) == 1 && read(control, &c, 1) == 1, "control"); /* both have freed */
        if (i == 0)
            before = open_fds();
    }
    must(open_fds() == before, "descriptors are left");
}

/* A child of a process with an endpoint has nothing of it, and the parent goes on. */
static void forked(const char *address, int control)
{
    struct pipe_end p = { .to_send = 2000000, .want = 2000000 };
    begin(&p, address, control);
    pid_t pid = fork();
    must(pid >= 0, "fork");
    if (pid == 0) {
        int fd = verbs_fd(p.ep);
        verbs_after_fork();
        const char *why = "";
        must(fcntl(fd, F_GETFD) < 0 && errno == EBADF, "the child has the descriptor still");
        must(verbs_setup(&env, &why) == -ENOTSUP, "the child may not use the libraries");
        verbs_free(p.ep);
        _exit(0);
    }
    int status;
    run_both(&p, SIZE_MAX, 0);
    must(waitpid(pid, &status, 0) == pid && status == 0, "the child");
    fence_and_free(&p, control);
}

/* A hostile peer: what it asks of the other's memory that it has no right to. */
static void ask_forbidden(struct verbs_ep *ep, unsigned try)
{
    static uint8_t octets[8] = { 0xee, 0xee, 0xee, 0xee, 0xee, 0xee, 0xee, 0xee };
    struct iovec iov = { octets, sizeof(octets) };
    struct iov_iter it = iov_iter_init(&iov, 1);
    if (try == 0) { /* a Read of the ring; the fence's Read goes where these say */
        ep->peer.fence_stag = ep->peer.ring_stag;
        ep->peer_base -= ep->peer.ring_len;
    } else if (try == 1) { /* a Read past the octets that the fence reads */
        ep->peer_base += 4;
    } else {
        bool past_ring = try == 2;
        uint32_t stag = past_ring ? ep->peer.ring_stag : ep->peer.fence_stag;
        uint64_t to = ep->peer.ring_len - (past_ring ? 4 : 0);
        must(verbs_endpoint_ops.post_write(&ep->base, stag, to, &it, sizeof(octets)) == 0, "post_write");
    }
}

/* Has the connection ended, as the flushed receives tell? Nothing is to be received here. */
static bool has_ended(struct pipe_end *p)
{
    struct endpoint_event ev;
    must(verbs_endpoint_ops.poll(&p->ep->base, &ev) == 0, "a message");
    return verbs_ended(p->ep);
}

/*
 * Each try ends its connection, and neither reads nor changes anything. (Linux siw answers a Read of a region that lacks
 * the right: the ring has only what the peer has written there.)
 */
static void reach(const char *address, int control)
{
    struct pipe_end p;
    char c = 0;
    for (unsigned try = 0; try < 4; try++) {
        memset(&p, 0, sizeof(p));
        begin(&p, address, control);
        if (try == 0 && strcmp(verbs_device(p.ep), "rxe0") != 0) {
            fence_and_free(&p, control);
            continue;
        }
        if (!initiator) {
            memset(p.ep->ring, 0x5a, p.ep->cfg.ring_len);
            must(write(control, &c, 1) == 1 && read(control, &c, 1) == 1, "control");
            for (uint32_t i = 0; i < p.ep->cfg.ring_len; i++)
                must(p.ep->ring[i] == 0x5a, "the ring was written to");
            for (unsigned i = 0; i < VERBS_FENCE_LEN; i++)
                must(p.ep->shown[i] == 0, "what the fence reads was written to");
            verbs_free(p.ep);
            continue;
        }
        int r;
        must(read(control, &c, 1) == 1, "control");
        ask_forbidden(p.ep, try);
        must(verbs_fence(p.ep) <= 0, "verbs_fence");
        /* (siw never completes what is posted behind the end.) */
        while ((r = verbs_fence_done(p.ep)) == 0 && !has_ended(&p)) {
            verbs_arm(p.ep, true);
            verbs_arm(p.ep, false);
            if (verbs_fence_done(p.ep) == 0 && !has_ended(&p))
                sleep_for(&p);
        }
        r = verbs_fence_done(p.ep);
        if (r > 0) {
            fprintf(stderr, "initiator: try %u: the other device lets it\n", try);
            exit(1);
        }
        for (unsigned i = 0; i < VERBS_FENCE_LEN; i++)
            must(p.ep->sink[i] == 0, "the ring was read");
        must(write(control, &c, 1) == 1, "control");
        verbs_free(p.ep);
    }
}

static const struct {
    const char *name;
    void (*run)(const char *address, int control);
    int initiator_status;
} scenarios[] = {
    { "bulk", bulk, 0 },         { "slow", slow, 0 }, { "half", half, 0 },     { "killed", killed, SIGKILL },
    { "no-token", no_token, 0 }, { "many", many, 0 }, { "forked", forked, 0 }, { "reach", reach, 0 },
};

int main(int argc, char **argv)
{
    int control[2], status;
    unsigned i = 0;
    while (argc == 3 && i < sizeof(scenarios) / sizeof(scenarios[0]) && strcmp(scenarios[i].name, argv[2]) != 0)
        i++;
    if (argc != 3 || i == sizeof(scenarios) / sizeof(scenarios[0])) {
        fprintf(stderr, "usage: vbpeer ADDRESS SCENARIO\n");
        return 2;
    }
    must(socketpair(AF_UNIX, SOCK_STREAM, 0, control) == 0, "socketpair");
    pid_t pid = fork();
    must(pid >= 0, "fork");
    initiator = pid == 0;
    if (initiator)
        who = "initiator";
    close(control[initiator ? 0 : 1]);
    scenarios[i].run(argv[1], control[initiator ? 1 : 0]);
    must(holds == 0, "hold and go_on come in pairs");
    if (initiator)
        return 0;
    must(waitpid(pid, &status, 0) == pid, "waitpid");
    if (status != scenarios[i].initiator_status) {
        fprintf(stderr, "the initiator's status: %#x\n", status);
        return 1;
    }
    return 0;
}
