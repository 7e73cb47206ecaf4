/*
 * A connection's line of statistics; see stats.h. No standard but JSON's (RFC 8259) and UTF-8's (RFC 3629). It runs at
 * the end of a connection's life, outside the receive path.
 *
 * It writes byte by byte into the caller's buffer: it may run while a program exits, perhaps in a signal handler, where
 * neither malloc nor stdio may be called.
 */
#include "preload/process/stats.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <string.h>

#include "core/base/reason.h"

/*
 * The longest an escaped string may be. A file name of 255 control characters would take 1530 bytes; the rest of a line
 * takes less than 760, so a line fits into 1024 more.
 */
#define STATS_STRING_MAX 256

/* Where the next byte goes; one byte is kept for the NUL. What does not fit is dropped. */
struct out {
    char *p;
    char *end;
};

static void put(struct out *o, const char *s, size_t len)
{
    size_t room = (size_t)(o->end - o->p);

    if (len > room)
        len = room;
    memcpy(o->p, s, len);
    o->p += len;
}

static void put_str(struct out *o, const char *s)
{
    put(o, s, strlen(s));
}

static void put_u64(struct out *o, uint64_t v)
{
    char digits[20];
    size_t n = sizeof(digits);

    do {
        digits[--n] = (char)('0' + v % 10);
        v /= 10;
    } while (v > 0);
    put(o, digits + n, sizeof(digits) - n);
}

/*
 * The length of the UTF-8 character at s (which ends in NUL), 0 if there is none. RFC 3629 section 4: no overlong
 * forms, no surrogates, nothing above U+10FFFF.
 */
static size_t utf8_len(const unsigned char *s)
{
    unsigned char lo = 0x80, hi = 0xbf;
    size_t len;

    if (s[0] < 0x80)
        return 1;
    if (s[0] >= 0xc2 && s[0] <= 0xdf)
        len = 2;
    else if (s[0] >= 0xe0 && s[0] <= 0xef)
        len = 3;
    else if (s[0] >= 0xf0 && s[0] <= 0xf4)
        len = 4;
    else
        return 0;
    if (s[0] == 0xe0)
        lo = 0xa0;
    else if (s[0] == 0xed)
        hi = 0x9f;
    else if (s[0] == 0xf0)
        lo = 0x90;
    else if (s[0] == 0xf4)
        hi = 0x8f;
    if (s[1] < lo || s[1] > hi)
        return 0;
    for (size_t i = 2; i < len; i++)
        if (s[i] < 0x80 || s[i] > 0xbf)
            return 0;
    return len;
}

/* A JSON string, quotes included; cut between characters at STATS_STRING_MAX. NULL is "". */
static void put_json(struct out *o, const char *str)
{
    static const char hex[] = "0123456789abcdef";
    const unsigned char *s = (const unsigned char *)(str ? str : "");
    size_t left = STATS_STRING_MAX;

    put(o, "\"", 1);
    while (*s != '\0') {
        char esc[] = "\\u0000";
        const char *text = (const char *)s;
        size_t used = utf8_len(s), len = used;

        if (used == 0) {
            text = "\xef\xbf\xbd"; /* U+FFFD */
            used = 1;
            len = 3;
        } else if (*s == '"' || *s == '\\') {
            esc[1] = (char)*s;
            text = esc;
            len = 2;
        } else if (*s < 0x20) {
            esc[4] = hex[*s >> 4];
            esc[5] = hex[*s & 15];
            text = esc;
            len = 6;
        }
        if (len > left)
            break;
        put(o, text, len);
        left -= len;
        s += used;
    }
    put(o, "\"", 1);
}

static void key_json(struct out *o, const char *key, const char *value)
{
    put_str(o, key);
    put_json(o, value);
}

static void key_u64(struct out *o, const char *key, uint64_t value)
{
    put_str(o, key);
    put_u64(o, value);
}

size_t stats_addr(const struct sockaddr_storage *ss, char *buf, size_t cap)
{
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)ss;
    const struct sockaddr_in *in = (const struct sockaddr_in *)ss;
    char host[INET6_ADDRSTRLEN];
    struct out o;

    if (cap == 0)
        return 0;
    o = (struct out){ buf, buf + cap - 1 };
    if (ss->ss_family == AF_INET) {
        inet_ntop(AF_INET, &in->sin_addr, host, sizeof(host));
        put_str(&o, host);
        put(&o, ":", 1);
        put_u64(&o, ntohs(in->sin_port));
    } else if (ss->ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr)) {
        inet_ntop(AF_INET, &in6->sin6_addr.s6_addr[12], host, sizeof(host));
        put_str(&o, host);
        put(&o, ":", 1);
        put_u64(&o, ntohs(in6->sin6_port));
    } else if (ss->ss_family == AF_INET6) {
        inet_ntop(AF_INET6, &in6->sin6_addr, host, sizeof(host));
        put(&o, "[", 1);
        put_str(&o, host);
        put(&o, "]:", 2);
        put_u64(&o, ntohs(in6->sin6_port));
    }
    *o.p = '\0';
    return (size_t)(o.p - buf);
}

size_t stats_format(const struct stats_record *r, char *buf, size_t cap)
{
    char addr[INET6_ADDRSTRLEN + 9]; /* "[…]:65535" */
    bool upgraded = r->reason == REASON_UPGRADED;
    struct out o;

    if (cap == 0)
        return 0;
    o = (struct out){ buf, buf + cap - 1 };
    key_u64(&o, "{\"pid\":", r->pid > 0 ? (uint64_t)r->pid : 0);
    key_json(&o, ",\"program\":", r->program);
    key_json(&o, ",\"role\":", r->role);
    stats_addr(&r->local, addr, sizeof(addr));
    key_json(&o, ",\"local\":", addr);
    stats_addr(&r->peer, addr, sizeof(addr));
    key_json(&o, ",\"peer\":", addr);
    key_json(&o, ",\"transport\":", r->transport);
    key_json(&o, ",\"reason\":", reason_name(r->reason));
    key_json(&o, ",\"rtr\":", upgraded && r->rtr ? r->rtr : "none");
    key_u64(&o, ",\"ird\":", upgraded ? r->ird : 0);
    key_u64(&o, ",\"ord\":", upgraded ? r->ord : 0);
    put_str(&o, r->crc ? ",\"crc\":true" : ",\"crc\":false");
    key_u64(&o, ",\"tx_bytes\":", r->tx_bytes);
    key_u64(&o, ",\"rx_bytes\":", r->rx_bytes);
    key_u64(&o, ",\"tx_fpdus\":", r->tx_fpdus);
    key_u64(&o, ",\"rx_fpdus\":", r->rx_fpdus);
    key_u64(&o, ",\"sends\":", r->sends);
    key_u64(&o, ",\"writes\":", r->writes);
    key_u64(&o, ",\"errors\":", r->errors);
    key_u64(&o, ",\"immediates\":", r->immediates);
    key_u64(&o, ",\"coalesced\":", r->coalesced);
    key_u64(&o, ",\"empty\":", r->empty);
    key_u64(&o, ",\"direct\":", r->direct);
    key_u64(&o, ",\"memory\":", r->memory);
    if (r->device != NULL)
        key_json(&o, ",\"device\":", r->device);
    put_str(&o, "}\n");
    *o.p = '\0';
    return (size_t)(o.p - buf);
}
