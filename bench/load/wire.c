/* Request and report of sockwarp-bench, byte by byte in network order. */
#include "bench/load/load.h"

#include <string.h>

static const uint8_t request_key[8] = "swbench2";
static const uint8_t report_key[8] = "swrepor2";

static void put32(uint8_t *p, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        p[i] = (uint8_t)(v >> (24 - 8 * i));
}

static uint32_t get32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void put64(uint8_t *p, uint64_t v)
{
    put32(p, (uint32_t)(v >> 32));
    put32(p + 4, (uint32_t)v);
}

static uint64_t get64(const uint8_t *p)
{
    return (uint64_t)get32(p) << 32 | get32(p + 4);
}

void bench_request_encode(const struct bench_request *r, uint8_t buf[BENCH_REQUEST_LEN])
{
    memset(buf, 0, BENCH_REQUEST_LEN);
    memcpy(buf, request_key, sizeof(request_key));
    buf[8] = (uint8_t)r->mode;
    buf[9] = (uint8_t)((r->verify ? 1 : 0) | (r->nodelay ? 2 : 0));
    put32(buf + 12, r->len);
    put32(buf + 16, r->recv_len);
    put32(buf + 20, r->time_ms);
    put32(buf + 24, r->seed);
}

int bench_request_decode(const uint8_t buf[BENCH_REQUEST_LEN], struct bench_request *r)
{
    if (memcmp(buf, request_key, sizeof(request_key)) != 0)
        return -1;
    if (buf[8] < BENCH_STREAM || buf[8] > BENCH_PINGPONG)
        return -1;
    r->mode = (enum bench_mode)buf[8];
    r->verify = buf[9] & 1;
    r->nodelay = buf[9] & 2;
    r->len = get32(buf + 12);
    r->recv_len = get32(buf + 16);
    r->time_ms = get32(buf + 20);
    r->seed = get32(buf + 24);
    if (r->len == 0 || r->len > BENCH_LEN_MAX || r->recv_len == 0 || r->recv_len > BENCH_LEN_MAX ||
        r->time_ms > BENCH_SECONDS_MAX * 1000u)
        return -1;
    return 0;
}

void bench_report_encode(const struct bench_report *r, uint8_t buf[BENCH_REPORT_LEN])
{
    memcpy(buf, report_key, sizeof(report_key));
    put64(buf + 8, r->bytes);
    put64(buf + 16, r->bad);
    put64(buf + 24, r->cpu_ns);
    memcpy(buf + 32, r->congestion, sizeof(r->congestion));
}

int bench_report_decode(const uint8_t buf[BENCH_REPORT_LEN], struct bench_report *r)
{
    if (memcmp(buf, report_key, sizeof(report_key)) != 0)
        return -1;
    r->bytes = get64(buf + 8);
    r->bad = get64(buf + 16);
    r->cpu_ns = get64(buf + 24);
    memcpy(r->congestion, buf + 32, sizeof(r->congestion));
    r->congestion[sizeof(r->congestion) - 1] = '\0';
    return 0;
}
