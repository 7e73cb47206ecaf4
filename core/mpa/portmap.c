/* The iWARP port mapper's messages; see portmap.h. */
#include "core/mpa/portmap.h"

#include <errno.h>
#include <string.h>

#include "core/base/bytes.h"

#define VERSION 0u
#define IP4_LEN 4u

static bool known_ip(uint8_t ip)
{
    return ip == 4 || ip == 6;
}

static void put_ip(struct bytes_wr *w, const struct portmap_addr *a, uint8_t ip)
{
    uint8_t octets[PORTMAP_IP_LEN] = { 0 };
    memcpy(octets, a->ip, ip == 4 ? IP4_LEN : PORTMAP_IP_LEN);
    bytes_wr_copy(w, octets, sizeof(octets));
}

static void take_ip(struct bytes_rd *r, struct portmap_addr *a, uint8_t ip)
{
    const uint8_t *octets = bytes_rd_take(r, PORTMAP_IP_LEN);
    if (octets != NULL)
        memcpy(a->ip, octets, ip == 4 ? IP4_LEN : PORTMAP_IP_LEN);
}

ssize_t portmap_encode(const struct portmap_msg *m, uint8_t *buf, size_t cap)
{
    if (m->type > PORTMAP_REJECT || !known_ip(m->ip))
        return -EINVAL;
    bool request = m->type == PORTMAP_REQUEST;
    struct bytes_wr w = bytes_wr_init(buf, cap);
    bytes_wr_u8(&w, (uint8_t)(VERSION << 6 | (unsigned)m->type << 4 | m->ip));
    bytes_wr_u8(&w, m->time);
    bytes_wr_be16(&w, request ? m->mapped.port : 0);
    bytes_wr_be16(&w, m->accepting.port);
    bytes_wr_be16(&w, m->connecting.port);
    bytes_wr_be64(&w, m->handle);
    put_ip(&w, &m->connecting, m->ip);
    put_ip(&w, &m->accepting, m->ip);
    if (request)
        put_ip(&w, &m->mapped, m->ip);
    return w.bad ? -EMSGSIZE : (ssize_t)bytes_wr_len(&w);
}

int portmap_decode(const uint8_t *buf, size_t len, struct portmap_msg *out)
{
    struct bytes_rd r = bytes_rd_init(buf, len);
    struct portmap_msg m = { 0 };
    uint8_t first = bytes_rd_u8(&r);
    if (r.bad)
        return -EMSGSIZE;
    m.type = first >> 4 & 3;
    m.ip = first & 15;
    if (first >> 6 != VERSION || !known_ip(m.ip))
        return -EPROTO;
    m.time = bytes_rd_u8(&r);
    uint16_t mapped = bytes_rd_be16(&r);
    m.accepting.port = bytes_rd_be16(&r);
    m.connecting.port = bytes_rd_be16(&r);
    m.handle = bytes_rd_be64(&r);
    take_ip(&r, &m.connecting, m.ip);
    take_ip(&r, &m.accepting, m.ip);
    if (m.type == PORTMAP_REQUEST) {
        m.mapped.port = mapped;
        take_ip(&r, &m.mapped, m.ip);
    }
    if (r.bad)
        return -EMSGSIZE;
    *out = m;
    return 0;
}

static bool same_ip(const struct portmap_addr *a, const struct portmap_addr *b, uint8_t ip)
{
    return memcmp(a->ip, b->ip, ip == 4 ? IP4_LEN : PORTMAP_IP_LEN) == 0;
}

int portmap_hear(const struct portmap_msg *request, const uint8_t *buf, size_t len, uint16_t *port,
                 uint8_t ack[PORTMAP_LEN])
{
    struct portmap_msg m;
    if (portmap_decode(buf, len, &m) < 0 || m.ip != request->ip || m.handle != request->handle ||
        m.connecting.port != request->connecting.port || !same_ip(&m.connecting, &request->connecting, m.ip) ||
        !same_ip(&m.accepting, &request->accepting, m.ip))
        return 0;
    if (m.type == PORTMAP_REJECT)
        return m.accepting.port == request->accepting.port ? -ECONNREFUSED : 0;
    if (m.type != PORTMAP_ACCEPT || m.accepting.port == 0)
        return 0;
    *port = m.accepting.port;
    m.type = PORTMAP_ACK;
    return portmap_encode(&m, ack, PORTMAP_LEN) == (ssize_t)PORTMAP_LEN;
}
