/*
 * Rules: parsing and matching; grammar and contracts in policy.h, DESIGN section 8. No standard: the words are
 * sockwarp's own. They come before negotiation: the rules decide about a connection before anything is sent on it.
 *
 * The parser walks the text once with a cursor; a word is a slice of the text, so that every error can give the
 * position of the bad word.
 */
#include "core/policy/policy.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/mpa/startup.h"
#include "core/negotiate/hello.h"

#define RING_LEN_MIN (64u << 10)
#define RING_LEN_MAX (1u << 30)
#define ORD_MIN_MAX 16u
#define FPDU_LEN_MIN 128u
#define FPDU_LEN_MAX 64768u

/* A slice of the text. */
struct word {
    const char *p;
    size_t len;
};

struct parser {
    const char *text; /* start of the whole text, for columns */
    struct policy_error *err;
};

/* Records the error at `at`, with the word `w` as "%s" of fmt, cut and made printable. */
static int fail(struct parser *ps, const char *at, const char *fmt, struct word w)
{
    char shown[48];
    size_t n = w.len < sizeof(shown) - 4 ? w.len : sizeof(shown) - 4;

    for (size_t i = 0; i < n; i++)
        shown[i] = w.p[i] >= 0x20 && w.p[i] < 0x7f ? w.p[i] : '?';
    strcpy(shown + n, n < w.len ? "..." : "");
    ps->err->column = (size_t)(at - ps->text) + 1;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(ps->err->text, sizeof(ps->err->text), fmt, shown);
#pragma GCC diagnostic pop
    return -EINVAL;
}

static int fail_word(struct parser *ps, const char *fmt, struct word w)
{
    return fail(ps, w.p, fmt, w);
}

static bool is(struct word w, const char *s)
{
    return strlen(s) == w.len && memcmp(w.p, s, w.len) == 0;
}

static bool blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* The next word before `end`; len 0 (at the end) if there is none. Moves *p behind it. */
static struct word next_word(const char **p, const char *end)
{
    struct word w;

    while (*p < end && blank(**p))
        (*p)++;
    w.p = *p;
    while (*p < end && !blank(**p))
        (*p)++;
    w.len = (size_t)(*p - w.p);
    return w;
}

/* Splits w at the first `sep`: returns the part before it, and w becomes the rest. found: does w contain sep? */
static struct word cut(struct word *w, char sep, bool *found)
{
    struct word head = *w;
    const char *at = memchr(w->p, sep, w->len);

    *found = at != NULL;
    if (at) {
        head.len = (size_t)(at - w->p);
        w->len -= head.len + 1;
        w->p = at + 1;
    } else {
        w->p += w->len;
        w->len = 0;
    }
    return head;
}

/* Plain decimal digits, nothing else. false also if the value exceeds max. */
static bool number(struct word w, uint32_t max, uint32_t *out)
{
    uint64_t v = 0;

    if (w.len == 0 || w.len > 10)
        return false;
    for (size_t i = 0; i < w.len; i++) {
        if (w.p[i] < '0' || w.p[i] > '9')
            return false;
        v = v * 10 + (uint64_t)(w.p[i] - '0');
    }
    if (v > max)
        return false;
    *out = (uint32_t)v;
    return true;
}

/* ---- address and port ---- */

static const uint8_t mapped_prefix[12] = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff };

/* IPv4-mapped addresses count as IPv4 everywhere in this file. */
static bool is_mapped(const uint8_t addr[16])
{
    return memcmp(addr, mapped_prefix, sizeof(mapped_prefix)) == 0;
}

static void clear_host_bits(uint8_t *addr, unsigned prefix)
{
    for (unsigned i = 0; i < 16; i++) {
        unsigned keep = prefix > i * 8 ? prefix - i * 8 : 0;
        if (keep < 8)
            addr[i] &= (uint8_t)(0xff00u >> keep);
    }
}

static int parse_port(struct parser *ps, struct word w, struct policy_rule *r)
{
    struct word whole = w, lo;
    uint32_t a, b;
    bool range;

    if (w.len == 0)
        return fail(ps, w.p, "missing port after ':'", w);
    if (is(w, "*"))
        return 0;
    lo = cut(&w, '-', &range);
    if (!number(lo, 65535, &a) || a == 0)
        return fail_word(ps, "bad port '%s'", whole);
    b = a;
    if (range && (!number(w, 65535, &b) || b == 0))
        return fail_word(ps, "bad port '%s'", whole);
    if (b < a)
        return fail_word(ps, "port range '%s' ends before it begins", whole);
    r->port_lo = (uint16_t)a;
    r->port_hi = (uint16_t)b;
    return 0;
}

static int parse_host(struct parser *ps, struct word w, struct policy_rule *r)
{
    char name[INET6_ADDRSTRLEN];
    struct word whole = w, host;
    uint32_t bits;
    bool have_prefix;

    host = cut(&w, '/', &have_prefix);
    if (host.len == 0 || host.len >= sizeof(name) || memchr(host.p, '\0', host.len))
        return fail_word(ps, "bad address '%s'", whole);
    memcpy(name, host.p, host.len);
    name[host.len] = '\0';
    if (inet_pton(AF_INET, name, r->addr) == 1) {
        r->family = AF_INET;
        bits = 32;
    } else if (inet_pton(AF_INET6, name, r->addr) == 1) {
        r->family = AF_INET6;
        bits = 128;
    } else {
        return fail_word(ps, "bad address '%s'", whole);
    }
    if (have_prefix && !number(w, bits, &bits))
        return fail(ps, w.p, "bad prefix length '%s'", w);
    if (r->family == AF_INET6 && is_mapped(r->addr) && bits >= 96) {
        r->family = AF_INET;
        memmove(r->addr, r->addr + 12, 4);
        memset(r->addr + 4, 0, 12);
        bits -= 96;
    }
    r->prefix = (uint8_t)bits;
    clear_host_bits(r->addr, bits);
    return 0;
}

/*
 * "*", "private", "10.0.0.0/8", "fe80::/10" and "*:80", "10.0.0.1:80", "[::1]:80". An IPv6 address has at
 * least two colons and no other address has more than one, so bare ones cannot be mistaken.
 */
static int parse_address(struct parser *ps, struct word w, struct policy_rule *r)
{
    struct word host = w, port = { w.p + w.len, 0 };
    const char *first = memchr(w.p, ':', w.len), *close;
    bool have_port = false;
    int rc;

    r->port_hi = 65535;
    if (w.p[0] == '[') {
        close = memchr(w.p, ']', w.len);
        if (!close)
            return fail_word(ps, "missing ']' in '%s'", w);
        host = (struct word){ w.p + 1, (size_t)(close - w.p) - 1 };
        port = (struct word){ close + 1, w.len - host.len - 2 };
        if (!memchr(host.p, ':', host.len))
            return fail_word(ps, "'%s': brackets are for IPv6", w);
        if (port.len > 0 && port.p[0] != ':')
            return fail(ps, port.p, "unexpected '%s' after ']'", port);
        have_port = port.len > 0;
        if (have_port) {
            port.p++;
            port.len--;
        }
    } else if (first && !memchr(first + 1, ':', (size_t)(w.p + w.len - first) - 1)) {
        port = w;
        host = cut(&port, ':', &have_port);
    }
    if (host.len == 0)
        return fail_word(ps, "missing address in '%s'", w);
    r->private = is(host, "private");
    if (!is(host, "*") && !r->private) {
        rc = parse_host(ps, host, r);
        if (rc < 0)
            return rc;
    }
    return have_port ? parse_port(ps, port, r) : 0;
}

/* ---- options ---- */

static int parse_switch(struct parser *ps, struct word v, bool *out, const char *yes, const char *no,
                        const char *complaint)
{
    if (!is(v, yes) && !is(v, no))
        return fail_word(ps, complaint, v);
    *out = is(v, yes);
    return 0;
}

static int opt_transport(struct parser *ps, struct word v, struct policy_opts *o)
{
    static const struct {
        const char *name;
        uint8_t bit;
    } known[] = {
        { "iwarp", HELLO_TRANSPORT_IWARP },
        { "verbs", HELLO_TRANSPORT_VERBS },
        { "shm", HELLO_TRANSPORT_SHM },
    };
    struct word whole = v;
    uint8_t set = 0;
    bool more = true;

    while (more) {
        struct word w = cut(&v, '+', &more);
        size_t i;

        for (i = 0; i < SW_ARRAY_LEN(known) && !is(w, known[i].name); i++)
            ;
        if (i == SW_ARRAY_LEN(known))
            return fail(ps, w.p, "unknown transport '%s' (iwarp, verbs or shm)", w);
        set |= known[i].bit;
    }
    if ((set & o->transports) == 0)
        return fail_word(ps, "this build does not have transport '%s'", whole);
    o->transports &= set;
    return 0;
}

static int opt_crc(struct parser *ps, struct word v, struct policy_opts *o)
{
    return parse_switch(ps, v, &o->crc, "on", "off", "crc is on or off, not '%s'");
}

static int opt_markers(struct parser *ps, struct word v, struct policy_opts *o)
{
    return parse_switch(ps, v, &o->markers, "on", "off", "markers is on or off, not '%s'");
}

static int opt_notify(struct parser *ps, struct word v, struct policy_opts *o)
{
    return parse_switch(ps, v, &o->notify_immediate, "immediate", "send", "notify is send or immediate, not '%s'");
}

static int opt_self(struct parser *ps, struct word v, struct policy_opts *o)
{
    return parse_switch(ps, v, &o->self, "on", "off", "self is on or off, not '%s'");
}

static int opt_ask(struct parser *ps, struct word v, struct policy_opts *o)
{
    return parse_switch(ps, v, &o->ask_always, "always", "marked", "ask is marked or always, not '%s'");
}

static int opt_mark(struct parser *ps, struct word v, struct policy_opts *o)
{
    return parse_switch(ps, v, &o->mark, "on", "off", "mark is on or off, not '%s'");
}

static int opt_startup(struct parser *ps, struct word v, struct policy_opts *o)
{
    o->immediate = is(v, "immediate");
    o->separate = is(v, "separate");
    return o->immediate || o->separate || is(v, "delayed")
               ? 0
               : fail_word(ps, "startup is delayed, separate or immediate, not '%s'", v);
}

static int opt_dialect(struct parser *ps, struct word v, struct policy_opts *o)
{
    return parse_switch(ps, v, &o->rtr_frame, "rtr-frame", "rfc", "dialect is rfc or rtr-frame, not '%s'");
}

static int opt_hello(struct parser *ps, struct word v, struct policy_opts *o)
{
    return parse_switch(ps, v, &o->hello_always, "always", "auto", "hello is auto or always, not '%s'");
}

static int opt_rtr(struct parser *ps, struct word v, struct policy_opts *o)
{
    bool more = true;
    size_t n = 0;

    o->rtr = 0;
    memset(o->rtr_pref, 0, sizeof(o->rtr_pref));
    while (more) {
        struct word w = cut(&v, '+', &more);
        uint8_t bit = is(w, "send") ? MPA_RTR_SEND : is(w, "write") ? MPA_RTR_WRITE : is(w, "read") ? MPA_RTR_READ : 0;
        if (bit == 0)
            return fail(ps, w.p, "unknown rtr '%s' (send, write, read, joined with +)", w);
        if (o->rtr & bit)
            return fail(ps, w.p, "rtr '%s' is named twice", w);
        o->rtr |= bit;
        o->rtr_pref[n++] = bit;
    }
    return 0;
}

static int opt_depth(struct parser *ps, struct word v, uint16_t *out, uint32_t most, const char *complaint)
{
    uint32_t n;

    if (!number(v, most, &n))
        return fail_word(ps, complaint, v);
    *out = (uint16_t)n;
    return 0;
}

static int opt_ird(struct parser *ps, struct word v, struct policy_opts *o)
{
    return opt_depth(ps, v, &o->ird, MPA_IRD_ORD_NONE, "'%s' is not a number from 0 to 16383");
}

static int opt_ord(struct parser *ps, struct word v, struct policy_opts *o)
{
    return opt_depth(ps, v, &o->ord, MPA_IRD_ORD_NONE, "'%s' is not a number from 0 to 16383");
}

static int opt_ord_min(struct parser *ps, struct word v, struct policy_opts *o)
{
    return opt_depth(ps, v, &o->ord_min, ORD_MIN_MAX, "'%s' is not a number from 0 to 16");
}

static int opt_model(struct parser *ps, struct word v, struct policy_opts *o)
{
    return parse_switch(ps, v, &o->client_server, "client-server", "peer-to-peer",
                        "model is peer-to-peer or client-server, not '%s'");
}

static int opt_fpdu(struct parser *ps, struct word v, struct policy_opts *o)
{
    uint32_t n;

    if (is(v, "emss")) {
        o->fpdu_len = 0;
        return 0;
    }
    if (!number(v, FPDU_LEN_MAX, &n) || n < FPDU_LEN_MIN)
        return fail_word(ps, "fpdu is emss or a number from 128 to 64768, not '%s'", v);
    o->fpdu_len = n;
    return 0;
}

static int opt_ring(struct parser *ps, struct word v, struct policy_opts *o)
{
    struct word w = v;
    unsigned shift = 0;
    uint32_t n;

    switch (w.len > 0 ? w.p[w.len - 1] : 0) {
    case 'K':
        shift = 10;
        break;
    case 'M':
        shift = 20;
        break;
    case 'G':
        shift = 30;
        break;
    }
    if (shift)
        w.len--;
    if (!number(w, RING_LEN_MAX >> shift, &n) || (n << shift) < RING_LEN_MIN)
        return fail_word(ps, "ring is 64K to 1G, not '%s'", v);
    o->ring_len = n << shift;
    return 0;
}

static int opt_meet(struct parser *ps, struct word v, struct policy_opts *o)
{
    return parse_switch(ps, v, &o->meet, "on", "off", "meet is on or off, not '%s'");
}

static const struct {
    const char *key;
    int (*parse)(struct parser *ps, struct word value, struct policy_opts *o);
} options[] = {
    { "transport", opt_transport },
    { "crc", opt_crc },
    { "markers", opt_markers },
    { "rtr", opt_rtr },
    { "ird", opt_ird },
    { "ord", opt_ord },
    { "ord-min", opt_ord_min },
    { "model", opt_model },
    { "fpdu", opt_fpdu },
    { "ring", opt_ring },
    { "notify", opt_notify },
    { "startup", opt_startup },
    { "dialect", opt_dialect },
    { "self", opt_self },
    { "hello", opt_hello },
    { "ask", opt_ask },
    { "mark", opt_mark },
    { "meet", opt_meet },
};

#define SEEN_TRANSPORT 1u /* its place in options[] */

static int parse_option(struct parser *ps, struct word w, struct policy_opts *o, uint32_t *seen)
{
    struct word v = w, key;
    bool found;

    key = cut(&v, '=', &found);
    for (size_t i = 0; i < SW_ARRAY_LEN(options); i++) {
        if (!is(key, options[i].key))
            continue;
        if (!found || v.len == 0)
            return fail(ps, w.p + w.len, "option '%s' needs a value", key);
        if (*seen & 1u << i)
            return fail_word(ps, "option '%s' is given twice", key);
        *seen |= 1u << i;
        return options[i].parse(ps, v, o);
    }
    return fail_word(ps, "unknown option '%s'", key);
}

/* ---- a rule, and all of them ---- */

/* 1 = a rule, 0 = nothing but blanks. */
static int parse_rule(struct parser *ps, const char *p, const char *end, struct policy_rule *r)
{
    uint32_t seen = 0;
    struct word w;
    int rc;

    w = next_word(&p, end);
    if (w.len == 0)
        return 0;
    r->column = (uint32_t)(w.p - ps->text) + 1;
    if (is(w, "connect"))
        r->role = POLICY_CONNECT;
    else if (is(w, "accept"))
        r->role = POLICY_ACCEPT;
    else if (is(w, "any"))
        r->role = POLICY_ANY;
    else
        return fail_word(ps, "unknown role '%s' (connect, accept or any)", w);

    w = next_word(&p, end);
    if (w.len == 0)
        return fail_word(ps, "missing address", w);
    rc = parse_address(ps, w, r);
    if (rc < 0)
        return rc;

    w = next_word(&p, end);
    if (w.len == 0)
        return fail_word(ps, "missing action (off, auto or require)", w);
    if (is(w, "off"))
        r->action = POLICY_OFF;
    else if (is(w, "auto"))
        r->action = POLICY_AUTO;
    else if (is(w, "require"))
        r->action = POLICY_REQUIRE;
    else
        return fail_word(ps, "unknown action '%s' (off, auto or require)", w);

    while ((w = next_word(&p, end)).len > 0) {
        rc = parse_option(ps, w, &r->opts, &seen);
        if (rc < 0)
            return rc;
    }
    if (!(seen & SEEN_TRANSPORT))
        r->opts.transports &= (uint8_t)~HELLO_TRANSPORT_VERBS;
    return 1;
}

static int append(struct policy *p, size_t *cap, const struct policy_rule *r)
{
    if (p->n == *cap) {
        size_t more = *cap ? *cap * 2 : 8;
        struct policy_rule *rules = reallocarray(p->rules, more, sizeof(*rules));
        if (!rules)
            return -ENOMEM;
        p->rules = rules;
        *cap = more;
    }
    p->rules[p->n++] = *r;
    return 0;
}

struct policy_opts policy_default_opts(uint8_t transports)
{
    return (struct policy_opts){
        .transports = transports,
        .crc = true, /* RFC 5044 4.4/3: "MUST be to use CRCs" */
        .rtr = MPA_RTR_SEND | MPA_RTR_WRITE | MPA_RTR_READ,
        .rtr_pref = { MPA_RTR_SEND, MPA_RTR_WRITE, MPA_RTR_READ },
        .ird = 8,
        .ord = 8,
        .fpdu_len = FPDU_LEN_MAX,
        .ring_len = 1u << 20,
        .mark = true,
        .meet = true,
    };
}

int policy_parse(const char *text, const struct policy_opts *defaults, struct policy *out, struct policy_error *err)
{
    struct parser ps = { text, err };
    const char *p = text;
    size_t cap = 0;
    int rc;

    *out = (struct policy){ NULL, 0, NULL };
    *err = (struct policy_error){ 0, "" };
    for (;;) {
        const char *end = strchrnul(p, ';');
        struct policy_rule r = { .family = AF_UNSPEC, .opts = *defaults };

        rc = parse_rule(&ps, p, end, &r);
        if (rc > 0)
            rc = append(out, &cap, &r);
        if (rc < 0) {
            policy_free(out);
            return rc;
        }
        if (*end == '\0')
            return 0;
        p = end + 1;
    }
}

void policy_free(struct policy *p)
{
    free(p->rules);
    *p = (struct policy){ NULL, 0, NULL };
}

/* ---- matching ---- */

/* An address as the rules see it. */
struct target {
    int family;
    uint8_t addr[16];
    uint16_t port;
};

static bool target_init(struct target *t, const struct sockaddr *sa, socklen_t len)
{
    struct sockaddr_in in;
    struct sockaddr_in6 in6;
    sa_family_t family;

    memset(t, 0, sizeof(*t));
    if (!sa || len < sizeof(family))
        return false;
    memcpy(&family, sa, sizeof(family)); /* first member of all; a program's sockaddr need not be aligned */
    if (family == AF_INET && len >= sizeof(in)) {
        memcpy(&in, sa, sizeof(in));
        t->family = AF_INET;
        t->port = ntohs(in.sin_port);
        memcpy(t->addr, &in.sin_addr, 4);
        return true;
    }
    /* The kernel also takes an IPv6 address without its scope id (RFC 2133's length). */
    if (family == AF_INET6 && len >= offsetof(struct sockaddr_in6, sin6_scope_id)) {
        memcpy(&in6, sa, offsetof(struct sockaddr_in6, sin6_scope_id));
        t->family = AF_INET6;
        t->port = ntohs(in6.sin6_port);
        memcpy(t->addr, &in6.sin6_addr, 16);
        if (is_mapped(t->addr)) {
            t->family = AF_INET;
            memmove(t->addr, t->addr + 12, 4);
        }
        return true;
    }
    return false;
}

static bool port_matches(const struct policy_rule *r, uint16_t port)
{
    return port >= r->port_lo && port <= r->port_hi;
}

static bool has_prefix(const uint8_t *addr, const uint8_t *prefix, unsigned bits)
{
    unsigned whole = bits / 8, rest = bits % 8;

    if (memcmp(prefix, addr, whole) != 0)
        return false;
    return rest == 0 || ((prefix[whole] ^ addr[whole]) & (0xff00u >> rest) & 0xff) == 0;
}

/* The wildcard as destination means this host. */
static bool is_private(const struct target *t)
{
    static const struct {
        int family;
        uint8_t bits, addr[16];
    } nets[] = {
        { AF_INET, 8, { 10 } },           /* RFC 1918 */
        { AF_INET, 12, { 172, 16 } },     /* RFC 1918 */
        { AF_INET, 16, { 192, 168 } },    /* RFC 1918 */
        { AF_INET, 10, { 100, 64 } },     /* RFC 6598, shared */
        { AF_INET, 16, { 169, 254 } },    /* RFC 3927, link-local */
        { AF_INET, 8, { 127 } },          /* loopback */
        { AF_INET, 32, { 0 } },           /* the wildcard */
        { AF_INET6, 7, { 0xfc } },        /* RFC 4193, unique-local */
        { AF_INET6, 10, { 0xfe, 0x80 } }, /* RFC 4291, link-local */
        { AF_INET6, 128, { [15] = 1 } },  /* loopback */
        { AF_INET6, 128, { 0 } },         /* the wildcard */
    };

    for (size_t i = 0; i < SW_ARRAY_LEN(nets); i++)
        if (nets[i].family == t->family && has_prefix(t->addr, nets[i].addr, nets[i].bits))
            return true;
    return false;
}

static bool addr_matches(const struct policy_rule *r, const struct target *t)
{
    if (r->private)
        return is_private(t);
    if (r->family == AF_UNSPEC)
        return true;
    return r->family == t->family && has_prefix(t->addr, r->addr, r->prefix);
}

const struct policy_rule *policy_match(const struct policy *p, enum policy_role role, const struct sockaddr *addr,
                                       socklen_t addr_len)
{
    struct target t;

    if (!target_init(&t, addr, addr_len))
        return NULL;
    for (size_t i = 0; i < p->n; i++) {
        const struct policy_rule *r = &p->rules[i];
        if (!(r->role & role) || !port_matches(r, t.port))
            continue;
        if (addr_matches(r, &t) || (r->private && role == POLICY_CONNECT && p->is_own && p->is_own(addr)))
            return r;
    }
    return NULL;
}

const struct policy_rule *policy_match_listener(const struct policy *p, const struct sockaddr *addr, socklen_t addr_len)
{
    enum { V4 = 1, V6 = 2 };
    static const uint8_t zero[16];
    const struct policy_rule *r;
    struct target t;
    unsigned open; /* families of which no earlier rule has taken all connections */

    if (!target_init(&t, addr, addr_len))
        return NULL;
    if (memcmp(t.addr, zero, t.family == AF_INET ? 4 : 16) != 0) {
        r = policy_match(p, POLICY_ACCEPT, addr, addr_len);
        return r && r->action != POLICY_OFF ? r : NULL;
    }

    /* Bound to a wildcard. A listener on [::] takes IPv4 too, unless IPV6_V6ONLY is set; both are reckoned with. */
    open = t.family == AF_INET ? V4 : V4 | V6;
    for (size_t i = 0; i < p->n && open; i++) {
        unsigned of;

        r = &p->rules[i];
        of = r->family == AF_INET ? V4 : r->family == AF_INET6 ? V6 : V4 | V6;
        if (!(r->role & POLICY_ACCEPT) || !port_matches(r, t.port) || !(of & open))
            continue;
        if (r->action != POLICY_OFF)
            return r;
        if (r->prefix == 0 && !r->private)
            open &= ~of;
    }
    return NULL;
}
