/*
 * A server that does not import accept(): unseen HOW WHERE. HOW: "ring" accepts by an io_uring that it enters by system
 * calls of its own, "raw" by one of these, "found" by libc's accept(), which it asks the linker for. WHERE: "own" listens by
 * itself, "given" at descriptor 0, "sent" at what the socket that is descriptor 0 brings. It tells its port, and of each connection what it
 * has read first; its answer is "answer".
 */
#include <dlfcn.h>
#include <linux/io_uring.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/rawsys.h"

static void need(int right, const char *what)
{
    if (right)
        return;
    perror(what);
    exit(1);
}

static struct ring {
    int fd;
    unsigned char *rings;
    struct io_uring_sqe *sqes;
    struct io_uring_params p;
} ring;

/* False: the kernel makes none here. */
static int ring_make(void)
{
    ring.fd = (int)rawsys4(__NR_io_uring_setup, 4, (long)&ring.p, 0, 0);
    if (ring.fd < 0)
        return 0;
    need(ring.p.features & IORING_FEAT_SINGLE_MMAP, "one mapping for both queues");
    ring.rings = mmap(NULL, ring.p.cq_off.cqes + ring.p.cq_entries * sizeof(struct io_uring_cqe),
                      PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring.fd, IORING_OFF_SQ_RING);
    ring.sqes = mmap(NULL, ring.p.sq_entries * sizeof(*ring.sqes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
                     ring.fd, IORING_OFF_SQES);
    need(ring.rings != MAP_FAILED && ring.sqes != MAP_FAILED, "mmap");
    return 1;
}

static _Atomic uint32_t *word(unsigned offset)
{
    return (_Atomic uint32_t *)(ring.rings + offset);
}

static int ring_accept(int listener)
{
    uint32_t tail = atomic_load(word(ring.p.sq_off.tail)), at = tail & *word(ring.p.sq_off.ring_mask);
    memset(&ring.sqes[at], 0, sizeof(ring.sqes[at]));
    ring.sqes[at].opcode = IORING_OP_ACCEPT;
    ring.sqes[at].fd = listener;
    *word(ring.p.sq_off.array + at * (unsigned)sizeof(uint32_t)) = at;
    atomic_store(word(ring.p.sq_off.tail), tail + 1);
    need(rawsys6(__NR_io_uring_enter, ring.fd, 1, 1, IORING_ENTER_GETEVENTS, 0, 0) == 1, "io_uring_enter");
    uint32_t head = atomic_load(word(ring.p.cq_off.head));
    struct io_uring_cqe *cqe =
        (struct io_uring_cqe *)(ring.rings + ring.p.cq_off.cqes) + (head & *word(ring.p.cq_off.ring_mask));
    int fd = cqe->res;
    atomic_store(word(ring.p.cq_off.head), head + 1);
    return fd;
}

static int raw_accept(int listener)
{
    return (int)rawsys4(__NR_accept4, listener, 0, 0, 0);
}

static int found_accept(int listener)
{
    static int (*call)(int, struct sockaddr *, socklen_t *);
    if (call == NULL)
        *(void **)&call = dlsym(RTLD_DEFAULT, "accept");
    need(call != NULL, "dlsym");
    return call(listener, NULL, NULL);
}

static int listens(void)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    struct sockaddr_in any = { .sin_family = AF_INET };
    need(fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
             bind(fd, (struct sockaddr *)&any, sizeof(any)) == 0 && listen(fd, 64) == 0,
         "listen");
    return fd;
}

static int sent(void)
{
    char octet;
    struct iovec iov = { &octet, 1 };
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control) };
    int fd;
    need(recvmsg(0, &msg, 0) == 1 && CMSG_FIRSTHDR(&msg) != NULL, "recvmsg");
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(fd));
    return fd;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int (*accepts)(int) = strcmp(argv[1], "ring") == 0  ? ring_accept
                          : strcmp(argv[1], "raw") == 0 ? raw_accept
                                                        : found_accept;
    if (accepts == ring_accept && !ring_make()) {
        puts("none");
        return 0;
    }
    int fd = strcmp(argv[2], "own") == 0 ? listens() : strcmp(argv[2], "sent") == 0 ? sent() : 0;
    struct sockaddr_in at;
    socklen_t len = sizeof(at);
    need(getsockname(fd, (struct sockaddr *)&at, &len) == 0, "getsockname");
    printf("%d\n", ntohs(at.sin_port));
    fflush(stdout);
    for (;;) {
        char got[512];
        int c = accepts(fd);
        need(c >= 0, "accept");
        ssize_t n = read(c, got, sizeof(got) - 1);
        got[n > 0 ? n : 0] = '\0';
        printf("%zd %s\n", n, got);
        fflush(stdout);
        need(n <= 0 || write(c, "answer", 6) == 6, "write");
        close(c);
    }
}
