/*
 * Fuzz target: SOCKWARP_POLICY. The first octet picks role and kind of address to match, the rest
 * is the text. What must hold: no crash; an error points into the text and says something; a rule
 * that was accepted is within its ranges; matching finds the first rule that a rule-by-rule match
 * finds.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/negotiate/hello.h"
#include "core/policy/policy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int cond)
{
    if (!cond)
        abort();
}

static void check_rule(const struct policy_rule *r, const char *text)
{
    must(r->role >= POLICY_CONNECT && r->role <= POLICY_ANY);
    must(r->family == AF_UNSPEC || r->family == AF_INET || r->family == AF_INET6);
    must(r->prefix <= (r->family == AF_INET6 ? 128 : r->family == AF_INET ? 32 : 0));
    must(r->port_lo <= r->port_hi);
    must(r->action <= POLICY_REQUIRE);
    must(r->opts.transports == HELLO_TRANSPORT_IWARP);
    must(r->opts.ird <= 16383 && r->opts.ord <= 16383);
    must(r->opts.fpdu_len == 0 || (r->opts.fpdu_len >= 128 && r->opts.fpdu_len <= 64768));
    must(r->opts.ring_len >= 65536 && r->opts.ring_len <= 1u << 30);
    must(r->opts.rtr != 0 && r->opts.rtr_pref[0] != 0);
    must(r->column >= 1 && r->column <= strlen(text));
    must(strchr("ac", text[r->column - 1]) != NULL); /* where "any", "accept" or "connect" begins */
}

/*
 * A rule must match the lowest address of its own prefix and its own ports, unless an earlier one
 * takes it.
 */
static void check_match(const struct policy *p, size_t i)
{
    const struct policy_rule *r = &p->rules[i], *got;
    enum policy_role role = (r->role & POLICY_CONNECT) ? POLICY_CONNECT : POLICY_ACCEPT;
    struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(r->port_hi) };
    struct sockaddr_in6 in6 = { .sin6_family = AF_INET6, .sin6_port = htons(r->port_lo) };

    memcpy(&in.sin_addr, r->addr, 4);
    memcpy(&in6.sin6_addr, r->addr, 16);
    if (r->family == AF_INET6)
        got = policy_match(p, role, (struct sockaddr *)&in6, sizeof(in6));
    else
        got = policy_match(p, role, (struct sockaddr *)&in, sizeof(in));
    /* "::ffff:0:0/95" and the like: an IPv6 rule whose lowest address counts as IPv4. */
    if (r->family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&in6.sin6_addr))
        return;
    must(got != NULL && got <= r && (got->role & role));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct policy_opts defaults = policy_default_opts(HELLO_TRANSPORT_IWARP);
    struct sockaddr_storage ss = { .ss_family = AF_INET6 };
    struct policy_error err;
    struct policy p;
    char *text;
    int rc;

    if (size == 0)
        return 0;
    ss.ss_family = data[0] & 1 ? AF_INET : AF_INET6;
    text = malloc(size);
    must(text != NULL);
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';

    rc = policy_parse(text, &defaults, &p, &err);
    if (rc == 0) {
        for (size_t i = 0; i < p.n; i++) {
            check_rule(&p.rules[i], text);
            check_match(&p, i);
        }
        const struct policy_rule *r = policy_match_listener(&p, (struct sockaddr *)&ss, sizeof(ss));
        must(r == NULL || ((r->role & POLICY_ACCEPT) && r->action != POLICY_OFF));
    } else {
        must(rc == -EINVAL);
        must(err.column >= 1 && err.column <= strlen(text) + 1);
        must(err.text[0] != '\0');
        must(p.n == 0 && p.rules == NULL);
    }
    policy_free(&p);
    free(text);
    return 0;
}
