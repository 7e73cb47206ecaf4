/*
 * Names of listeners. See local_key.h.
 */
#include "preload/startup/local_key.h"

#include <netinet/in.h>
#include <string.h>

bool local_key_of(const struct sockaddr *sa, struct local_key *k)
{
    memset(k, 0, sizeof(*k));
    if (sa->sa_family == AF_INET) {
        struct sockaddr_in in;
        memcpy(&in, sa, sizeof(in));
        k->family = AF_INET;
        k->addr_len = 4;
        memcpy(k->addr, &in.sin_addr, 4);
        k->port = ntohs(in.sin_port);
        return true;
    }
    if (sa->sa_family != AF_INET6)
        return false;
    struct sockaddr_in6 in6;
    memcpy(&in6, sa, sizeof(in6));
    k->port = ntohs(in6.sin6_port);
    if (IN6_IS_ADDR_V4MAPPED(&in6.sin6_addr)) {
        k->family = AF_INET;
        k->addr_len = 4;
        memcpy(k->addr, in6.sin6_addr.s6_addr + 12, 4);
        return true;
    }
    k->family = AF_INET6;
    k->addr_len = 16;
    memcpy(k->addr, &in6.sin6_addr, 16);
    if (IN6_IS_ADDR_LINKLOCAL(&in6.sin6_addr))
        k->scope = in6.sin6_scope_id;
    return true;
}

bool local_key_any(const struct local_key *k)
{
    for (size_t i = 0; i < k->addr_len; i++)
        if (k->addr[i] != 0)
            return false;
    return true;
}

bool local_key_same(const struct local_key *a, const struct local_key *b)
{
    return a->family == b->family && a->port == b->port && a->scope == b->scope &&
           memcmp(a->addr, b->addr, sizeof(a->addr)) == 0;
}

static char *hex(char *p, uint32_t v, int digits)
{
    static const char digit[] = "0123456789abcdef";
    for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4)
        *p++ = digit[v >> shift & 15];
    return p;
}

socklen_t local_name_of(const struct local_key *k, struct sockaddr_un *un)
{
    static const char head[] = "sockwarp/2/";
    memset(un, 0, sizeof(*un));
    un->sun_family = AF_UNIX;
    char *p = un->sun_path + 1;
    memcpy(p, head, sizeof(head) - 1);
    p += sizeof(head) - 1;
    *p++ = k->family == AF_INET ? '4' : '6';
    *p++ = '/';
    for (size_t i = 0; i < k->addr_len; i++)
        p = hex(p, k->addr[i], 2);
    if (k->scope != 0) {
        *p++ = '%';
        p = hex(p, k->scope, 8);
    }
    *p++ = '/';
    p = hex(p, k->port, 4);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + (size_t)(p - un->sun_path));
}

socklen_t local_name_of_ino(uint64_t ino, struct sockaddr_un *un)
{
    static const char head[] = "sockwarp/2/i/";
    memset(un, 0, sizeof(*un));
    un->sun_family = AF_UNIX;
    memcpy(un->sun_path + 1, head, sizeof(head) - 1);
    const char *end = hex(un->sun_path + sizeof(head), (uint32_t)ino, 8); /* (sock_diag has 32 bits of it) */
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + (size_t)(end - un->sun_path));
}
