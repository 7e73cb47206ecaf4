/*
 * Vectors of every shape, many messages at a time, offsets a socket does not have, and calls that are for files.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "tests/semantics/sem.h"

static void vector_1024(int s)
{
    static uint8_t buf[1024 * 3];
    static struct iovec iov[1025];
    fill(buf, sizeof(buf), 0);
    for (size_t i = 0; i < 1024; i++)
        iov[i] = (struct iovec){ buf + 3 * i, 3 };
    iov[1024] = (struct iovec){ buf, 1 };
    struct msghdr m = { .msg_iov = iov, .msg_iovlen = 1024 };
    far_begin(FAR_ECHO, 6144, 0);
    say_result("writev", writev(s, iov, 1024));
    sem_tx += sizeof(buf);
    fill(buf, sizeof(buf), sem_tx);
    say_result("sendmsg", sendmsg(s, &m, 0));
    far_say("far", far_end());
    await_octets(s, 6144);
    say_result("readv", readv(s, iov, 1024));
    check(buf, sizeof(buf));
    say_result("recvmsg", recvmsg(s, &m, 0));
    check(buf, sizeof(buf));
}

static void vector_too_long(int s)
{
    static struct iovec iov[1025];
    uint8_t buf[4];
    volatile int many = 1025; /* not the compiler's to judge */
    far_do(FAR_SEND, 4);
    await_octets(s, 4);
    for (size_t i = 0; i < 1025; i++)
        iov[i] = (struct iovec){ buf, 0 };
    iov[1024].iov_len = 1;
    struct msghdr m = { .msg_iov = iov, .msg_iovlen = 1025 };
    struct mmsghdr mm[2] = { { .msg_hdr = m }, { .msg_hdr = m } };
    say_result("readv", readv(s, iov, many));
    say_result("writev", writev(s, iov, many));
    say_result("preadv2", preadv2(s, iov, many, -1, 0));
    say_result("pwritev2", pwritev2(s, iov, many, -1, 0));
    say_result("recvmsg", recvmsg(s, &m, MSG_DONTWAIT));
    say_result("sendmsg", sendmsg(s, &m, MSG_DONTWAIT));
    say_result("recvmmsg", recvmmsg(s, mm, 2, MSG_DONTWAIT, NULL));
    say_result("sendmmsg", sendmmsg(s, mm, 2, MSG_DONTWAIT));
    m.msg_iovlen = (size_t)-1;
    say_result("recvmsg_max", recvmsg(s, &m, MSG_DONTWAIT));
    say_result("sendmsg_max", sendmsg(s, &m, MSG_DONTWAIT));
    say(" rest=%zu", recv_next(s, 4));
}

static void vector_empty(int s)
{
    uint8_t buf[4];
    struct iovec iov[3] = { { NULL, 0 }, { buf, 0 }, { NULL, 0 } };
    struct msghdr none = { 0 }, m = { .msg_iov = iov, .msg_iovlen = 3 };
    say_result("recvmsg_none", recvmsg(s, &none, MSG_DONTWAIT));
    say_result("recvmsg_empty", recvmsg(s, &m, MSG_DONTWAIT));
    say_result("sendmsg_none", sendmsg(s, &none, 0));
    say_result("sendmsg_empty", sendmsg(s, &m, 0));
    say_result("readv_empty", readv(s, iov, 3));
    say_result("writev_empty", writev(s, iov, 3));
    far_do(FAR_SEND, 4);
    await_octets(s, 4);
    say_result("recvmsg_none", recvmsg(s, &none, 0));
    say_result("recvmsg_empty", recvmsg(s, &m, 0));
    say_result("readv_empty", readv(s, iov, 3));
    iov[1].iov_len = 4;
    say_result("readv", readv(s, iov, 3));
    check(buf, 4);
    far_do(FAR_CLOSE, 0);
    poll_one(s, POLLIN, 10000);
    say_result("readv_end", readv(s, iov, 3));
    say_result("recvmsg_end", recvmsg(s, &none, 0));
}

/* The same memory more than once. */
static void vector_overlapping(int s)
{
    uint8_t buf[12], twice[20];
    fill(buf, 10, 0);
    memcpy(twice, buf, 10);
    memcpy(twice + 10, buf, 10);
    struct iovec iov[2] = { { buf, 10 }, { buf, 10 } };
    far_begin(FAR_ECHO, 20, 0);
    say_result("writev", writev(s, iov, 2));
    far_end();
    await_octets(s, 20);
    iov[1].iov_base = buf + 2;
    memset(buf, 0, sizeof(buf));
    say_result("readv", readv(s, iov, 2));
    say(" first=%d second=%d", memcmp(buf, twice, 2) == 0, memcmp(buf + 2, twice + 10, 10) == 0);
}

/* Lengths that no program can mean. (The memory is not the stack's: the kernel adds up where it would end.) */
static void vector_huge(int s)
{
    static uint8_t buf[100];
    volatile size_t half = SIZE_MAX / 2, whole = SIZE_MAX, above = SIZE_MAX / 2 + 1, much = (size_t)1 << 33;
    struct iovec iov[2] = { { buf, 10 }, { buf + 10, above } };
    struct msghdr m = { .msg_iov = iov, .msg_iovlen = 2 };
    far_do(FAR_SEND, 60);
    await_octets(s, 60);
    say_result("readv", readv(s, iov, 2));
    say_result("recvmsg", recvmsg(s, &m, MSG_DONTWAIT));
    say_result("writev", writev(s, iov, 2));
    say_result("sendmsg", sendmsg(s, &m, MSG_DONTWAIT));
    iov[1].iov_len = whole - 4; /* the sum is small again */
    say_result("readv_wraps", readv(s, iov, 2));
    say_result("writev_wraps", writev(s, iov, 2));
    say_result("read", read(s, buf, whole));
    say_result("write", write(s, buf, whole));
    say_result("read_above", read(s, buf, above));
    say_result("read_half", read(s, buf, half));
    iov[1].iov_len = half;
    say_result("readv_half", readv(s, iov, 2));
    /* What there may be is cut to what one call may move. */
    iov[1].iov_len = much;
    say_result("readv_much", readv(s, iov, 2));
    far_do(FAR_SEND, 20);
    await_octets(s, 20);
    say_result("recv_whole", recv(s, buf, whole, MSG_DONTWAIT));
    far_do(FAR_SEND, 20);
    await_octets(s, 20);
    say_result("read_much", read(s, buf, much));
}

static void positioned(int s)
{
    uint8_t buf[8];
    struct iovec iov = { buf, sizeof(buf) };
    far_do(FAR_SEND, 8);
    await_octets(s, 8);
    say_result("pread", pread(s, buf, 8, 0));
    say_result("pwrite", pwrite(s, buf, 8, 0));
    say_result("preadv", preadv(s, &iov, 1, 0));
    say_result("pwritev", pwritev(s, &iov, 1, 0));
    say_result("preadv_minus", preadv(s, &iov, 1, -1));
    say_result("pwritev_minus", pwritev(s, &iov, 1, -1));
    say_result("preadv2", preadv2(s, &iov, 1, 5, 0));
    say_result("pwritev2", pwritev2(s, &iov, 1, 5, 0));
    say_result("preadv2_minus2", preadv2(s, &iov, 1, -2, 0));
    say_result("lseek", lseek(s, 0, SEEK_SET));
    say_result("lseek_end", lseek(s, 0, SEEK_END));
    say(" rest=%zu", recv_next(s, 8));
}

static void rw_flags(int s)
{
    static const int flags[] = {
        RWF_HIPRI, RWF_DSYNC, RWF_SYNC, RWF_NOWAIT, RWF_APPEND, 0x1000000, RWF_NOWAIT | RWF_HIPRI
    };
    uint8_t buf[4];
    struct iovec iov = { buf, sizeof(buf) };
    far_do(FAR_SEND, 28);
    await_octets(s, 28);
    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
        ssize_t r = preadv2(s, &iov, 1, -1, flags[i]);
        say_result("read", r);
        check(buf, r > 0 ? (size_t)r : 0);
    }
    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
        fill(buf, sizeof(buf), sem_tx);
        ssize_t r = pwritev2(s, &iov, 1, -1, flags[i]);
        say_result("write", r);
        sem_tx += r > 0 ? (size_t)r : 0;
    }
    recv_next(s, 28 - sem_rx);
    say_result("nowait", preadv2(s, &iov, 1, -1, RWF_NOWAIT));
    say_result("bad_nothing", preadv2(s, &iov, 0, -1, 0x1000000));
    far_say("far", far_do(FAR_RECV, (int64_t)sem_tx));
}

static void nowait_full(int s)
{
    uint8_t c = 0;
    struct iovec iov = { &c, 1 };
    fill_up(s);
    say_result("nowait", pwritev2(s, &iov, 1, -1, RWF_NOWAIT));
}

static void for_files(int s)
{
    struct stat st;
    struct statfs fs;
    must("fstat", fstat(s, &st));
    say(" socket=%d size=%lld links=%d", S_ISSOCK(st.st_mode), (long long)st.st_size, (int)st.st_nlink);
    say_result("fstatfs", fstatfs(s, &fs));
    say_result("ftruncate", ftruncate(s, 10));
    say_result("fsync", fsync(s));
    say_result("fdatasync", fdatasync(s));
    say_result("fallocate", fallocate(s, 0, 0, 10));
    say_result("fadvise", -posix_fadvise(s, 0, 0, POSIX_FADV_NORMAL));
    say_result("readahead", readahead(s, 0, 10));
    say_result("sync_range", sync_file_range(s, 0, 0, SYNC_FILE_RANGE_WRITE));
    say_result("flock", flock(s, LOCK_EX | LOCK_NB));
    say_result("unlock", flock(s, LOCK_UN));
    say_result("fchdir", fchdir(s));
    say_result("isatty", isatty(s));
    void *p = mmap(NULL, 4096, PROT_READ, MAP_SHARED, s, 0);
    say_result("mmap", p == MAP_FAILED ? -1 : 0);
    send_next(s, 1);
    far_say("far", far_do(FAR_RECV, 1));
}

#define MSGS 4

static struct iovec mm_iov[MSGS];
static uint8_t mm_buf[MSGS][10];

static void mm_setup(struct mmsghdr *m)
{
    memset(m, 0, sizeof(*m) * MSGS);
    for (size_t i = 0; i < MSGS; i++) {
        mm_iov[i] = (struct iovec){ mm_buf[i], 10 };
        m[i].msg_hdr.msg_iov = &mm_iov[i];
        m[i].msg_hdr.msg_iovlen = 1;
        m[i].msg_len = 99;
    }
}

static void recvmmsg_end(int s)
{
    struct mmsghdr m[MSGS];
    mm_setup(m);
    far_do(FAR_SEND, 15);
    far_do(FAR_CLOSE, 0);
    await_octets(s, 15);
    poll_one(s, POLLRDHUP, 10000);
    say_result("recvmmsg", recvmmsg(s, m, MSGS, 0, NULL));
    say(" lengths=%u,%u,%u,%u", m[0].msg_len, m[1].msg_len, m[2].msg_len, m[3].msg_len);
    mm_setup(m);
    say_result("waitforone", recvmmsg(s, m, MSGS, MSG_WAITFORONE, NULL));
    say(" lengths=%u,%u,%u,%u", m[0].msg_len, m[1].msg_len, m[2].msg_len, m[3].msg_len);
}

static void recvmmsg_none(int s)
{
    struct mmsghdr m[MSGS];
    mm_setup(m);
    far_do(FAR_SEND, 15);
    await_octets(s, 15);
    say_result("vlen0", recvmmsg(s, m, 0, 0, NULL));
    say_result("null", recvmmsg(s, NULL, 0, 0, NULL));
    say_result("send_vlen0", sendmmsg(s, m, 0, 0));
    struct timespec bad[] = { { .tv_nsec = 1000000000 }, { .tv_sec = -1 }, { .tv_nsec = -1 } };
    for (size_t i = 0; i < 3; i++)
        say_result("bad_time", recvmmsg(s, m, MSGS, MSG_DONTWAIT, &bad[i]));
    say_result("recvmmsg", recvmmsg(s, m, MSGS, MSG_DONTWAIT, NULL));
    say(" lengths=%u,%u,%u,%u", m[0].msg_len, m[1].msg_len, m[2].msg_len, m[3].msg_len);
    check(mm_buf[0], 10);
    check(mm_buf[1], 5);
}

/* The time is looked at after each message only, and what is left of it is told. */
static void recvmmsg_timed(int s)
{
    struct mmsghdr m[MSGS];
    mm_setup(m);
    struct timespec ts = { 0 };
    far_do(FAR_SEND, 25);
    await_octets(s, 25);
    say_result("zero", recvmmsg(s, m, MSGS, 0, &ts));
    say(" left=%lld,%ld", (long long)ts.tv_sec, ts.tv_nsec);
    ts = (struct timespec){ .tv_sec = 100 };
    say_result("long", recvmmsg(s, m, 2, 0, &ts));
    say(" left=%d", ts.tv_sec >= 90 && ts.tv_sec <= 100);
    ts = (struct timespec){ .tv_nsec = 50000000 };
    far_do(FAR_SEND, 10);
    far_begin(FAR_SEND, 10, 90);
    say_result("late", recvmmsg(s, m, MSGS, 0, &ts));
    say(" left=%lld,%ld", (long long)ts.tv_sec, ts.tv_nsec);
    far_end();
    ts = (struct timespec){ .tv_sec = 7 };
    say_result("empty", recvmmsg(s, m, MSGS, MSG_DONTWAIT, &ts));
    say(" left=%lld", (long long)ts.tv_sec);
}

static void recvmmsg_waits(int s)
{
    struct mmsghdr m[MSGS];
    mm_setup(m);
    far_begin(FAR_SEND, 10, 30);
    say_result("waitforone", recvmmsg(s, m, MSGS, MSG_WAITFORONE, NULL));
    far_end();
    mm_setup(m);
    far_do(FAR_SEND, 13);
    far_begin(FAR_SEND, 27, 30);
    say_result("all", recvmmsg(s, m, MSGS, MSG_WAITALL, NULL));
    say(" lengths=%u,%u,%u,%u", m[0].msg_len, m[1].msg_len, m[2].msg_len, m[3].msg_len);
    far_end();
    mm_setup(m);
    struct timeval tv = { .tv_usec = 60000 };
    must("SO_RCVTIMEO", setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)));
    far_do(FAR_SEND, 13);
    await_octets(s, 13);
    say_result("timeo", recvmmsg(s, m, MSGS, 0, NULL));
    say(" lengths=%u,%u", m[0].msg_len, m[1].msg_len);
    say_result("timeo", recvmmsg(s, m, MSGS, 0, NULL));
}

/* An error after some messages is told by the next call. */
static void recvmmsg_error(int s)
{
    struct mmsghdr m[MSGS];
    uint8_t buf[10];
    mm_setup(m);
    m[1].msg_hdr.msg_iovlen = 5000;
    far_do(FAR_SEND, 30);
    await_octets(s, 30);
    say_result("recvmmsg", recvmmsg(s, m, MSGS, 0, NULL));
    say(" poll=%s", poll_names(poll_one(s, POLLIN, 0)));
    say_result("recvmmsg", recvmmsg(s, m, 1, 0, NULL));
    say_result("recv", recv(s, buf, 10, 0));
    say_result("first", recvmmsg(s, m + 1, 1, 0, NULL));
    say_result("last", recv(s, buf, 10, MSG_DONTWAIT));
}

static void sendmmsg_error(int s)
{
    struct mmsghdr m[MSGS];
    mm_setup(m);
    for (size_t i = 0; i < MSGS; i++)
        fill(mm_buf[i], 10, 10 * i);
    m[2].msg_hdr.msg_iovlen = 5000;
    say_result("sendmmsg", sendmmsg(s, m, MSGS, 0));
    say(" lengths=%u,%u,%u,%u", m[0].msg_len, m[1].msg_len, m[2].msg_len, m[3].msg_len);
    say_result("first", sendmmsg(s, m + 2, 1, 0));
    say_result("then", send(s, mm_buf[2], 10, 0));
    far_say("far", far_do(FAR_RECV, 30));
}

/* One call takes 1024 messages at most. */
static void mmsg_2000(int s)
{
    static struct mmsghdr m[2000];
    static uint8_t buf[2000];
    static struct iovec iov[2000];
    fill(buf, sizeof(buf), 0);
    for (size_t i = 0; i < 2000; i++) {
        iov[i] = (struct iovec){ buf + i, 1 };
        m[i].msg_hdr.msg_iov = &iov[i];
        m[i].msg_hdr.msg_iovlen = 1;
    }
    far_begin(FAR_ECHO, 1024, 0);
    say_result("sendmmsg", sendmmsg(s, m, 2000, 0));
    far_say("far", far_end());
    await_octets(s, 1024);
    memset(buf, 0, sizeof(buf));
    say_result("recvmmsg", recvmmsg(s, m, 2000, MSG_DONTWAIT, NULL));
    check(buf, 1024);
}

static void sendmmsg_full(int s)
{
    struct mmsghdr m[MSGS];
    mm_setup(m);
    fill_up(s);
    set_nonblock(s, true);
    say_result("full", sendmmsg(s, m, MSGS, 0));
    must("shutdown", shutdown(s, SHUT_WR));
    say_result("shut", sendmmsg(s, m, MSGS, MSG_NOSIGNAL));
}

const struct scenario sem_vector[] = {
    { "vector_1024", vector_1024 },
    { "vector_too_long", vector_too_long },
    { "vector_empty", vector_empty },
    { "vector_overlapping", vector_overlapping },
    { "vector_huge", vector_huge },
    { "positioned", positioned },
    { "rw_flags", rw_flags },
    { "nowait_full", nowait_full },
    { "for_files", for_files },
    { "recvmmsg_end", recvmmsg_end },
    { "recvmmsg_none", recvmmsg_none },
    { "recvmmsg_timed", recvmmsg_timed },
    { "recvmmsg_waits", recvmmsg_waits },
    { "recvmmsg_error", recvmmsg_error },
    { "sendmmsg_error", sendmmsg_error },
    { "mmsg_2000", mmsg_2000 },
    { "sendmmsg_full", sendmmsg_full },
    { NULL, NULL },
};
