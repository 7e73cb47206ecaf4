/*
 * sockwarp-bench: a load generator over plain sockets. It includes nothing of sockwarp and knows nothing of it, so that
 * under the launcher it is a program like any other.
 *
 * One run is one connection per stream:
 *
 *   client                         server
 *   request  ------------------->            what is wanted: mode, sizes, time
 *            <------------------- 'K'        buffers are there
 *   (all streams wait for each other)
 *   STREAM:   block, block, ... ->            a block is len bytes; its first byte is 'D', in the last one 'E'
 *            <------------------- report
 *   REVERSE:  'G' -------------->
 *            <------------------- block, block, ..., report
 *   PINGPONG: block ------------->
 *            <------------------- the same bytes, again and again; after 'E' the report
 *
 * "connect" with "answer", and "crowd" with "echo", know no request: the server gives back the bytes that it gets.
 */
#ifndef BENCH_LOAD_LOAD_H
#define BENCH_LOAD_LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#define BENCH_LEN_MAX (64u << 20)
#define BENCH_STREAMS_MAX 1024u
#define BENCH_CROWD_MAX 1000000u /* idle, and active */
#define BENCH_SECONDS_MAX 86400u

#define BENCH_READY 'K'
#define BENCH_GO 'G'
#define BENCH_DATA 'D'
#define BENCH_END 'E'

enum bench_mode { BENCH_STREAM = 1, BENCH_REVERSE = 2, BENCH_PINGPONG = 3 };

/* ---- wire.c: what client and server tell each other, network byte order ---- */

#define BENCH_REQUEST_LEN 32u
#define BENCH_REPORT_LEN 48u
#define BENCH_CONGESTION_LEN 16u /* TCP_CA_NAME_MAX, the NUL included */

struct bench_request {
    enum bench_mode mode;
    bool verify;       /* fill blocks with the pattern, compare on receipt */
    bool nodelay;      /* TCP_NODELAY */
    uint32_t len;      /* bytes a block, 1..BENCH_LEN_MAX */
    uint32_t recv_len; /* bytes a recv() asks for, 1..BENCH_LEN_MAX */
    uint32_t time_ms;  /* REVERSE: how long the server sends */
    uint32_t seed;     /* pattern; differs per stream */
};

struct bench_report {
    uint64_t bytes;                        /* bytes of whole blocks the server received (REVERSE: sent) */
    uint64_t bad;                          /* bytes that differ from the pattern */
    uint64_t cpu_ns;                       /* processor time of the server's thread, user and system */
    char congestion[BENCH_CONGESTION_LEN]; /* of the server's socket */
};

void bench_request_encode(const struct bench_request *r, uint8_t buf[BENCH_REQUEST_LEN]);
/* 0, or -1: not a request of ours, or a value out of range. */
int bench_request_decode(const uint8_t buf[BENCH_REQUEST_LEN], struct bench_request *r);
void bench_report_encode(const struct bench_report *r, uint8_t buf[BENCH_REPORT_LEN]);
int bench_report_decode(const uint8_t buf[BENCH_REPORT_LEN], struct bench_report *r);

/* ---- net.c: sockets; 0 or an fd, or -1 with errno ---- */

/*
 * A listening socket; *port is where it really listens (for port "0"). congestion: the name of a congestion control for
 * its connections, NULL for the system's. Says what failed on stderr.
 */
int net_listen(const char *addr, const char *port, const char *congestion, unsigned *real_port);
/* A connected socket, with this congestion control from the start (NULL: the system's). Says what failed on stderr. */
int net_connect(const char *host, const char *port, const char *congestion);
/* The same from addresses that are looked up already; silent. */
struct addrinfo;
int net_connect_to(const struct addrinfo *list, const char *congestion);
/* "listening on port N" on stdout, for whoever started us. */
void net_say_listening(unsigned port);
/* All len bytes; a peer that closes early is ECONNRESET (recv). */
int net_send_all(int fd, const void *buf, size_t len);
int net_recv_all(int fd, void *buf, size_t len);
int net_nodelay(int fd);
int net_nonblock(int fd);
/* Name of the congestion control, "?" if the kernel does not tell. */
void net_congestion(int fd, char *buf, size_t cap);

uint64_t bench_now_ns(void); /* CLOCK_MONOTONIC */
uint64_t bench_thread_cpu_ns(void);
double bench_cpu_s(void); /* processor time of the process, user and system */

/* ---- blocks.c: sending and receiving blocks, the same at both ends ---- */

struct blocks {
    const struct bench_request *req;
    uint8_t *buf; /* one block to send, and a second one to receive into (the larger of len and recv_len) */
    uint8_t *in;
    uint8_t *pattern; /* NULL without verify */
    uint64_t off;     /* bytes since the first block, this direction */
    uint64_t bad;     /* bytes that differed */
};

/* 0, or -1 with errno ENOMEM. blocks_fini also after a failed init. */
int blocks_init(struct blocks *b, const struct bench_request *req);
void blocks_fini(struct blocks *b);
/* Sends the next block, the last one if last. 0 or -1 with errno. */
int blocks_send(struct blocks *b, int fd, bool last);
/* Receives exactly one block: 1 there are more, 0 it was the last, -1 with errno. */
int blocks_recv_one(struct blocks *b, int fd);
/*
 * Receives blocks until the last; extra bytes that follow it, up to tail_len, are read into tail (what a REVERSE
 * server sends behind). 0 or -1 with errno; b->off counts the bytes of the blocks.
 */
int blocks_recv_all(struct blocks *b, int fd, uint8_t *tail, size_t tail_len);

/* ---- histogram.c: round trip times, error below 1 % ---- */

#define HISTOGRAM_BUCKETS (64u * 128u)

struct histogram {
    uint64_t count, sum, min, max;
    uint64_t bucket[HISTOGRAM_BUCKETS];
};

void histogram_add(struct histogram *h, uint64_t value);
void histogram_merge(struct histogram *to, const struct histogram *from);
/* The value that this fraction (0..1) of the values does not exceed; 0 if there are none. */
uint64_t histogram_quantile(const struct histogram *h, double fraction);

/* "name":{"count":…,"min":…,"mean":…,"p50":…,"p99":…,"p999":…,"max":…}, in microseconds; the values are nanoseconds. */
void histogram_print_json(const struct histogram *h, const char *name);

/* ---- the commands; the exit status ---- */

struct bench_options {
    struct bench_request req;
    const char *host, *port, *addr; /* addr: servers' */
    const char *congestion;         /* NULL: the system's */
    const char *path;               /* file */
    const char *by;                 /* answer: how it accepts */
    unsigned streams;
    unsigned idle, active; /* crowd */
    uint32_t time_ms;
    bool json;
    bool steps; /* crowd: say how far it is, and go on at a line on stdin */
};

int bench_client(const struct bench_options *o);  /* client.c: stream and pingpong */
int bench_server(const struct bench_options *o);  /* server.c */
int bench_connect(const struct bench_options *o); /* connect.c: connections a second */
int bench_answer(const struct bench_options *o);  /* answer.c: its server */
int bench_crowd(const struct bench_options *o);   /* crowd.c: many idle connections, some busy */
int bench_echo(const struct bench_options *o);    /* echo.c: its server */
int bench_file(const struct bench_options *o);    /* file.c: no socket at all */

/* Does answer know this way to accept: turn, prefork, threads, epoll? */
bool bench_answers_by(const char *way);
/* As many descriptors as the hard limit allows. -1, said on stderr, if that is less than want. */
int bench_raise_nofile(unsigned want);

#endif
