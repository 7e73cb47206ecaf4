/* Adding up what boards contain; see totals.h. */
#include "tools/totals.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/reason.h"

static struct totals_row *row(struct totals *t, const char *key)
{
    struct totals_row *more;

    for (size_t i = 0; i < t->count; i++)
        if (strcmp(t->rows[i].key, key) == 0)
            return &t->rows[i];
    more = realloc(t->rows, (t->count + 1) * sizeof(*more));
    if (!more)
        return NULL;
    t->rows = more;
    memset(&more[t->count], 0, sizeof(*more));
    snprintf(more[t->count].key, sizeof(more->key), "%s", key);
    return &more[t->count++];
}

static const char *key_of(const struct board_process *p, const struct board_conn *c, enum totals_key key, char buf[16])
{
    if (key == TOTALS_PROGRAM)
        return p->program;
    if (key == TOTALS_REASON)
        return reason_name(c->reason);
    snprintf(buf, 16, "%u", c->port);
    return buf;
}

static int add_conn(struct totals *t, const struct board_process *p, const struct board_conn *c, enum totals_key key)
{
    char buf[16];
    struct totals_row *r = row(t, key_of(p, c, key, buf));

    if (!r)
        return -ENOMEM;
    if (p->killed || c->state == BOARD_DEAD)
        r->ended++;
    else if (c->state == BOARD_UPGRADED)
        r->upgraded++;
    else if (c->state == BOARD_PLAIN)
        r->plain++;
    else
        r->starting++;
    r->tx_bytes += c->tx_bytes;
    r->rx_bytes += c->rx_bytes;
    return 0;
}

static int add_past(struct totals *t, const char *key, const struct board_past *past)
{
    struct totals_row *r;

    if (past->count == 0)
        return 0;
    r = row(t, key);
    if (!r)
        return -ENOMEM;
    r->ended += past->count;
    r->tx_bytes += past->tx_bytes;
    r->rx_bytes += past->rx_bytes;
    return 0;
}

static int add_past_ports(struct totals *t, const struct board_process *p)
{
    char port[16];
    int rc = add_past(t, "others", &p->ports[BOARD_PORTS]);

    for (size_t i = 0; i < BOARD_PORTS && rc == 0; i++) {
        snprintf(port, sizeof(port), "%u", p->port_of[i]);
        rc = add_past(t, port, &p->ports[i]);
    }
    return rc;
}

static int add_ended(struct totals *t, const struct board_process *p, enum totals_key key)
{
    int rc = 0;

    if (key == TOTALS_PORT)
        return add_past_ports(t, p);
    for (unsigned reason = 0; reason < BOARD_REASONS && rc == 0; reason++)
        rc = add_past(t, key == TOTALS_PROGRAM ? p->program : reason_name(reason), &p->ended[reason]);
    return rc;
}

int totals_of(const struct boards *b, enum totals_key key, struct totals *t)
{
    int rc = 0;

    *t = (struct totals){ 0 };
    for (size_t i = 0; i < b->count && rc == 0; i++) {
        const struct board_process *p = &b->list[i];

        for (size_t j = 0; j < p->count && rc == 0; j++)
            rc = add_conn(t, p, &p->conns[j], key);
        if (rc == 0)
            rc = add_ended(t, p, key);
    }
    if (rc < 0)
        totals_free(t);
    return rc;
}

void totals_free(struct totals *t)
{
    free(t->rows);
    *t = (struct totals){ 0 };
}
