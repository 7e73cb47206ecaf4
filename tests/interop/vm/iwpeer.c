/*
 * One end of an iWARP connection, in a process of its own:
 *
 *   iwpeer ours|verbs connect|listen ADDRESS PORT SCENARIO [KEY=VALUE...]
 *
 * Ends with 0 if everything was as it has to be; else a line on stderr says what was not.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/mpa/startup.h"
#include "tests/interop/vm/scenario.h"

#define LIMIT_S 100 /* in all */

int peer_fail(struct peer *p, int err, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(p->why, sizeof(p->why), format, args);
    va_end(args);
    return -err;
}

void peer_tell_ready(const struct peer_cfg *cfg)
{
    int fd;

    if (!cfg->ready)
        return;
    fd = open(cfg->ready, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, "ready\n", 6) != 6)
        fprintf(stderr, "%s: %s\n", cfg->ready, strerror(errno));
    close(fd);
}

/* "write,read" */
static int rtr_kinds(const char *value)
{
    static const uint8_t kinds[] = { MPA_RTR_SEND, MPA_RTR_WRITE, MPA_RTR_READ };
    int rtr = 0;

    for (unsigned i = 0; i < SW_ARRAY_LEN(kinds); i++)
        if (strstr(value, mpa_rtr_name(kinds[i])))
            rtr |= kinds[i];
    return rtr;
}

static int set(struct peer_cfg *cfg, struct options *opt, const char *key, const char *value)
{
    unsigned long number = strtoul(value, NULL, 10);

    if (strcmp(key, "ready") == 0)
        cfg->ready = value;
    else if (strcmp(key, "priv") == 0)
        cfg->priv = value;
    else if (strcmp(key, "refuse") == 0)
        cfg->refuse = number;
    else if (strcmp(key, "retry") == 0)
        cfg->retry = number;
    else if (strcmp(key, "rev") == 0)
        cfg->rev = (uint8_t)number;
    else if (strcmp(key, "crc") == 0)
        cfg->crc = number;
    else if (strcmp(key, "markers") == 0)
        cfg->markers = number;
    else if (strcmp(key, "ird") == 0)
        cfg->ird = (uint16_t)number;
    else if (strcmp(key, "ord") == 0)
        cfg->ord = (uint16_t)number;
    else if (strcmp(key, "message") == 0)
        cfg->message_max = number;
    else if (strcmp(key, "rtr") == 0)
        cfg->rtr = (uint8_t)rtr_kinds(value);
    else if (strcmp(key, "expect-rtr") == 0)
        opt->expect_rtr = rtr_kinds(value);
    else if (strcmp(key, "expect-rev") == 0)
        opt->expect_rev = (int)number;
    else if (strcmp(key, "expect-crc") == 0)
        opt->expect_crc = number;
    else if (strcmp(key, "expect-ird") == 0)
        opt->expect_ird = (int)number;
    else if (strcmp(key, "expect-ord") == 0)
        opt->expect_ord = (int)number;
    else if (strcmp(key, "se") == 0)
        opt->solicited = number;
    else if (strcmp(key, "expect-priv") == 0)
        opt->expect_priv = value;
    else if (strcmp(key, "fault") == 0)
        opt->fault = value;
    else if (strcmp(key, "bytes") == 0)
        opt->bytes = number;
    else if (strcmp(key, "count") == 0)
        opt->count = (unsigned)number;
    else
        return say_wrong("no setting '%s'", key);
    return 0;
}

static const struct scenario *find(const char *name)
{
    for (const struct scenario *s = scenarios; s->name; s++)
        if (strcmp(s->name, name) == 0)
            return s;
    return NULL;
}

int main(int argc, char **argv)
{
    struct peer peer = { .ops = &peer_ours };
    struct options opt = { .expect_rtr = -1, .expect_rev = -1, .expect_ird = -1, .expect_ord = -1 };
    struct peer_cfg cfg = {
        .rev = 2,
        .crc = true,
        .ird = PEER_READS,
        .ord = PEER_READS,
        .message_max = PEER_MESSAGE_MAX,
    };
    const struct scenario *s = argc > 5 ? find(argv[5]) : NULL;
    int bad;

    if (!s) {
        fprintf(stderr, "usage: iwpeer ours|verbs connect|listen ADDRESS PORT SCENARIO [KEY=VALUE...]\n");
        return 2;
    }
    if (strcmp(argv[1], "verbs") == 0)
        peer.ops = &peer_verbs;
    cfg.responder = opt.responder = strcmp(argv[2], "listen") == 0;
    cfg.address = argv[3];
    cfg.port = argv[4];
    if (cfg.responder)
        cfg.rtr = MPA_RTR_SEND | MPA_RTR_WRITE | MPA_RTR_READ;
    for (int i = 6; i < argc; i++) {
        char *value = strchr(argv[i], '=');

        if (!value)
            return say_wrong("'%s' is not KEY=VALUE", argv[i]), 2;
        *value++ = '\0';
        if (set(&cfg, &opt, argv[i], value) < 0)
            return 2;
    }

    alarm(LIMIT_S);
    bad = must(&peer, peer.ops->open(&peer, &cfg), cfg.responder ? "accepts" : "connects");
    if (bad == 0 && peer.met.refused && s != find("refused"))
        bad = say_wrong("%s: refused", peer.ops->name);
    /* RFC 5044 7.1.1: CRCs if either wants them. */
    if (bad == 0 && peer.ops == &peer_ours && !peer.met.refused && peer.met.crc != (cfg.crc || opt.expect_crc))
        bad = say_wrong("ours: CRC %s", peer.met.crc ? "on" : "off");
    if (bad == 0)
        bad = cfg.responder ? s->responder(&peer, &opt) : s->initiator(&peer, &opt);
    peer.ops->close(&peer);
    return bad ? 1 : 0;
}
