/*
 * The verdict cache.
 */
#include "core/negotiate/verdict.h"

#include <netinet/in.h>
#include <string.h>

static bool key(const struct sockaddr *peer, struct verdict_entry *e)
{
    memset(e, 0, sizeof(*e));
    if (peer->sa_family == AF_INET) {
        struct sockaddr_in in;
        memcpy(&in, peer, sizeof(in));
        memcpy(e->addr, &in.sin_addr, 4);
        e->port = in.sin_port;
    } else if (peer->sa_family == AF_INET6) {
        struct sockaddr_in6 in6;
        memcpy(&in6, peer, sizeof(in6));
        memcpy(e->addr, &in6.sin6_addr, 16);
        e->port = in6.sin6_port;
        e->scope = in6.sin6_scope_id;
    } else {
        return false;
    }
    e->family = (uint8_t)peer->sa_family;
    return true;
}

static bool same(const struct verdict_entry *a, const struct verdict_entry *b)
{
    return a->family == b->family && a->port == b->port && a->scope == b->scope &&
           memcmp(a->addr, b->addr, sizeof(a->addr)) == 0;
}

/* FNV-1a over address and port. */
static uint32_t slot_of(const struct verdict_entry *e)
{
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < sizeof(e->addr); i++)
        h = (h ^ e->addr[i]) * 16777619u;
    h = (h ^ (e->port & 0xff)) * 16777619u;
    h = (h ^ (e->port >> 8)) * 16777619u;
    return h % VERDICT_SLOTS;
}

bool verdict_plain(const struct verdicts *v, const struct sockaddr *peer, uint64_t now_ns)
{
    struct verdict_entry k;
    if (!key(peer, &k))
        return false;
    const struct verdict_entry *e = &v->slot[slot_of(&k)];
    return same(e, &k) && now_ns < e->until_ns;
}

static uint64_t grown(const struct verdict_entry *before, uint64_t now_ns, uint64_t ttl_ns)
{
    if (now_ns - before->until_ns > before->ttl_ns || before->ttl_ns < ttl_ns)
        return ttl_ns;
    uint64_t max = ttl_ns > VERDICT_TTL_MAX_NS ? ttl_ns : VERDICT_TTL_MAX_NS;
    return before->ttl_ns < max / 2 ? 2 * before->ttl_ns : max;
}

void verdict_add(struct verdicts *v, const struct sockaddr *peer, uint64_t now_ns, uint64_t ttl_ns)
{
    struct verdict_entry k;
    if (!key(peer, &k))
        return;
    struct verdict_entry *e = &v->slot[slot_of(&k)];
    bool again = same(e, &k);
    if (again && now_ns < e->until_ns) /* two connections asked at the same time */
        return;
    k.ttl_ns = again ? grown(e, now_ns, ttl_ns) : ttl_ns;
    k.until_ns = now_ns + k.ttl_ns;
    *e = k;
}
