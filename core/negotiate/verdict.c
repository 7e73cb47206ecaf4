/*
 * The verdict cache.
 */
#include "core/negotiate/verdict.h"

#include <netinet/in.h>
#include <stddef.h>
#include <string.h>

#include "core/base/fnv.h"

#define AGAIN_MAX 31u

bool verdict_key(struct verdict_entry *key, const struct sockaddr *peer, uint64_t netns)
{
    memset(key, 0, sizeof(*key));
    if (peer->sa_family == AF_INET) {
        struct sockaddr_in in;
        memcpy(&in, peer, sizeof(in));
        memcpy(key->addr, &in.sin_addr, 4);
        key->port = in.sin_port;
    } else if (peer->sa_family == AF_INET6) {
        struct sockaddr_in6 in6;
        memcpy(&in6, peer, sizeof(in6));
        memcpy(key->addr, &in6.sin6_addr, 16);
        key->port = in6.sin6_port;
        key->scope = in6.sin6_scope_id;
    } else {
        return false;
    }
    key->family = (uint8_t)peer->sa_family;
    key->netns = netns;
    return true;
}

static bool same(const struct verdict_entry *a, const struct verdict_entry *b)
{
    return a->family == b->family && a->port == b->port && a->scope == b->scope &&
           memcmp(a->addr, b->addr, sizeof(a->addr)) == 0;
}

/* FNV-1a over address and port. */
uint32_t verdict_slot(const struct verdict_entry *key)
{
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < sizeof(key->addr); i++)
        h = (h ^ key->addr[i]) * 16777619u;
    h = (h ^ (key->port & 0xff)) * 16777619u;
    h = (h ^ (key->port >> 8)) * 16777619u;
    return h % VERDICT_SLOTS;
}

/* A record that was read while another process wrote it does not have it. */
static uint64_t check_of(const struct verdict_entry *e)
{
    return fnv_add(FNV_BEGIN, e, offsetof(struct verdict_entry, check));
}

/* Is it a record of this peer, on this network, from the past? */
static bool is_of(const struct verdict_entry *e, const struct verdict_entry *key, uint64_t now_ns)
{
    return same(e, key) && e->check == check_of(e) && e->found_ns <= now_ns &&
           (key->netns == 0 || key->netns == e->netns);
}

static uint64_t length(const struct verdict_entry *e, uint64_t ttl_ns)
{
    uint64_t max = ttl_ns > VERDICT_TTL_MAX_NS ? ttl_ns : VERDICT_TTL_MAX_NS;
    unsigned twice = e->again < AGAIN_MAX ? e->again : AGAIN_MAX;
    return ttl_ns < max >> twice ? ttl_ns << twice : max;
}

bool verdict_holds(const struct verdict_entry *e, const struct verdict_entry *key, uint64_t now_ns, uint64_t ttl_ns)
{
    return is_of(e, key, now_ns) && now_ns - e->found_ns < length(e, ttl_ns);
}

bool verdict_renew(struct verdict_entry *e, const struct verdict_entry *key, uint64_t now_ns, uint64_t ttl_ns)
{
    if (verdict_holds(e, key, now_ns, ttl_ns)) /* two connections asked at the same time */
        return false;
    struct verdict_entry n = *key;
    n.found_ns = now_ns;
    if (is_of(e, key, now_ns) && now_ns - e->found_ns <= 2 * length(e, ttl_ns))
        n.again = (uint8_t)(e->again < AGAIN_MAX ? e->again + 1u : AGAIN_MAX);
    n.check = check_of(&n);
    *e = n;
    return true;
}
