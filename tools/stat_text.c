/* Tables by libsmartcols, JSON (RFC 8259) and OpenMetrics by hand; see stat_text.h. */
#include "tools/stat_text.h"

#include <errno.h>
#include <inttypes.h>
#include <libsmartcols.h>
#include <stdio.h>

#include "core/base/reason.h"
#include "tools/totals.h"

static const char *state_name(const struct board_process *p, const struct board_conn *c)
{
    static const char *const names[] = {
        [BOARD_STARTING] = "starting", [BOARD_UPGRADED] = "upgraded", [BOARD_PLAIN] = "plain", [BOARD_DEAD] = "ended"
    };

    return p->killed ? "killed" : names[c->state];
}

/* ---- tables ---- */

struct column {
    const char *name;
    bool right;
};

static struct libscols_table *new_table(const struct column *columns, size_t count)
{
    struct libscols_table *t = scols_new_table();

    for (size_t i = 0; t && i < count; i++)
        if (!scols_table_new_column(t, columns[i].name, 0, columns[i].right ? SCOLS_FL_RIGHT : 0)) {
            scols_unref_table(t);
            return NULL;
        }
    return t;
}

/* 12345678 -> "11.8M" */
static void human(char buf[16], uint64_t bytes)
{
    static const char units[] = "KMGTPE";
    double value = (double)bytes;
    size_t unit = 0;

    if (bytes < 1024) {
        snprintf(buf, 16, "%" PRIu64, bytes);
        return;
    }
    for (value /= 1024; value >= 1024 && units[unit + 1] != '\0'; unit++)
        value /= 1024;
    snprintf(buf, 16, "%.1f%c", value, units[unit]);
}

static void age(char buf[16], uint64_t ns)
{
    uint64_t s = ns / 1000000000u;

    if (s < 60)
        snprintf(buf, 16, "%" PRIu64 "s", s);
    else if (s < 3600)
        snprintf(buf, 16, "%" PRIu64 "m%02" PRIu64 "s", s / 60, s % 60);
    else
        snprintf(buf, 16, "%" PRIu64 "h%02" PRIu64 "m", s / 3600, s / 60 % 60);
}

static int add_line(struct libscols_table *t, const struct board_process *p, const struct board_conn *c)
{
    struct libscols_line *line = scols_table_new_line(t, NULL);
    bool upgraded = c->state == BOARD_UPGRADED;
    char pid[16], since[16], tx[16], rx[16], messages[24], coalesced[24], retrans[24], errors[24];
    int bad = 0;

    if (!line)
        return -ENOMEM;
    snprintf(pid, sizeof(pid), "%d", (int)p->pid);
    age(since, c->age_ns);
    human(tx, c->tx_bytes);
    human(rx, c->rx_bytes);
    snprintf(messages, sizeof(messages), "%" PRIu64, c->sends + c->writes);
    snprintf(coalesced, sizeof(coalesced), "%" PRIu64, c->coalesced);
    snprintf(retrans, sizeof(retrans), "%" PRIu64, c->retrans);
    snprintf(errors, sizeof(errors), "%" PRIu64, c->errors);
    const char *const cells[] = {
        pid,
        p->program,
        c->accepted ? "accept" : "connect",
        c->local[0] ? c->local : "-",
        c->peer[0] ? c->peer : "-",
        c->device[0] ? c->device : c->transport,
        upgraded ? c->rtr : "-",
        upgraded ? c->crc ? "on" : "off" : "-",
        since,
        upgraded ? tx : "-",
        upgraded ? rx : "-",
        upgraded ? messages : "-",
        upgraded ? coalesced : "-",
        c->in_kernel ? retrans : "-",
        upgraded ? errors : "-",
        c->state == BOARD_STARTING ? "(starting)" : reason_name(c->reason),
    };
    for (size_t i = 0; i < SW_ARRAY_LEN(cells); i++)
        bad |= scols_line_set_data(line, i, cells[i]);
    return bad ? -ENOMEM : 0;
}

/* What stands below the table: what the table leaves out. */
static void print_rest(const struct boards *b)
{
    uint64_t unseen = 0, killed = 0, conns = 0;

    for (size_t i = 0; i < b->count; i++) {
        unseen += b->list[i].unseen;
        killed += b->list[i].killed;
        conns += b->list[i].killed ? b->list[i].count : 0;
    }
    if (unseen > 0)
        printf("connections that had no place in their process' file: %" PRIu64 "\n", unseen);
    if (killed > 0)
        printf("killed processes: %" PRIu64 ", connections of theirs: %" PRIu64
               " (in --totals and --json; --forget removes them)\n",
               killed, conns);
}

int stat_table(const struct boards *b)
{
    static const struct column columns[] = {
        { "PID", true },       { "PROGRAM", false }, { "ROLE", false },    { "LOCAL", false },
        { "PEER", false },     { "BY", false },      { "RTR", false },     { "CRC", false },
        { "AGE", true },       { "SENT", true },     { "RECEIVED", true }, { "MESSAGES", true },
        { "COALESCED", true }, { "RETRANS", true },  { "ERRORS", true },   { "REASON", false },
    };
    struct libscols_table *t = new_table(columns, SW_ARRAY_LEN(columns));
    int rc = t ? 0 : -ENOMEM;

    for (size_t i = 0; i < b->count && rc == 0; i++)
        for (size_t j = 0; j < b->list[i].count && rc == 0 && !b->list[i].killed; j++)
            rc = add_line(t, &b->list[i], &b->list[i].conns[j]);
    if (rc == 0)
        rc = scols_print_table(t);
    scols_unref_table(t);
    if (rc == 0)
        print_rest(b);
    return rc;
}

static int add_totals(struct libscols_table *t, const char *kind, const struct totals *totals)
{
    for (size_t i = 0; i < totals->count; i++) {
        const struct totals_row *r = &totals->rows[i];
        struct libscols_line *line = scols_table_new_line(t, NULL);
        uint64_t numbers[] = { r->upgraded, r->plain, r->starting, r->ended };
        char text[24];
        int bad = 0;

        if (!line)
            return -ENOMEM;
        bad |= scols_line_set_data(line, 0, kind);
        bad |= scols_line_set_data(line, 1, r->key);
        for (size_t j = 0; j < SW_ARRAY_LEN(numbers); j++) {
            snprintf(text, sizeof(text), "%" PRIu64, numbers[j]);
            bad |= scols_line_set_data(line, j + 2, text);
        }
        human(text, r->tx_bytes);
        bad |= scols_line_set_data(line, 6, text);
        human(text, r->rx_bytes);
        bad |= scols_line_set_data(line, 7, text);
        if (bad)
            return -ENOMEM;
    }
    return 0;
}

static const char *const kinds[] = { [TOTALS_PROGRAM] = "program", [TOTALS_PORT] = "port", [TOTALS_REASON] = "reason" };

int stat_totals(const struct boards *b)
{
    static const struct column columns[] = {
        { "BY", false },      { "KEY", false },  { "UPGRADED", true }, { "PLAIN", true },
        { "STARTING", true }, { "ENDED", true }, { "SENT", true },     { "RECEIVED", true },
    };
    struct libscols_table *t = new_table(columns, SW_ARRAY_LEN(columns));
    int rc = t ? 0 : -ENOMEM;

    for (unsigned key = 0; key < SW_ARRAY_LEN(kinds) && rc == 0; key++) {
        struct totals totals;

        rc = totals_of(b, (enum totals_key)key, &totals);
        if (rc < 0)
            break;
        rc = add_totals(t, kinds[key], &totals);
        totals_free(&totals);
    }
    if (rc == 0)
        rc = scols_print_table(t);
    scols_unref_table(t);
    return rc;
}

/* ---- JSON ---- */

/* A string of JSON and of OpenMetrics. (The text is printable ASCII by now.) */
static void print_quoted(const char *text)
{
    putchar('"');
    for (; *text != '\0'; text++)
        printf("%s%c", *text == '"' || *text == '\\' ? "\\" : "", *text);
    putchar('"');
}

static void json_conn(const struct board_process *p, const struct board_conn *c)
{
    const struct {
        const char *key, *value;
    } texts[] = {
        { "program", p->program },
        { "role", c->accepted ? "accept" : "connect" },
        { "local", c->local },
        { "peer", c->peer },
        { "transport", c->transport },
        { "device", c->device },
        { "state", state_name(p, c) },
        { "reason", reason_name(c->reason) },
        { "rtr", c->rtr },
    };
    const struct {
        const char *key;
        uint64_t value;
    } numbers[] = {
        { "age_ms", c->age_ns / 1000000u },
        { "tx_bytes", c->tx_bytes },
        { "rx_bytes", c->rx_bytes },
        { "tx_fpdus", c->tx_fpdus },
        { "rx_fpdus", c->rx_fpdus },
        { "sends", c->sends },
        { "writes", c->writes },
        { "coalesced", c->coalesced },
        { "errors", c->errors },
        { "direct", c->direct },
    };

    printf("{\"pid\":%d,\"uid\":%u", (int)p->pid, (unsigned)p->uid);
    for (size_t i = 0; i < SW_ARRAY_LEN(texts); i++) {
        printf(",\"%s\":", texts[i].key);
        print_quoted(texts[i].value);
    }
    printf(",\"crc\":%s", c->crc ? "true" : "false");
    for (size_t i = 0; i < SW_ARRAY_LEN(numbers); i++)
        printf(",\"%s\":%" PRIu64, numbers[i].key, numbers[i].value);
    if (c->in_kernel)
        printf(",\"retrans\":%" PRIu64, c->retrans);
    putchar('}');
}

static int json_totals(const struct boards *b, enum totals_key key)
{
    struct totals t;
    int rc = totals_of(b, key, &t);

    if (rc < 0)
        return rc;
    printf("\"%s\":[", kinds[key]);
    for (size_t i = 0; i < t.count; i++) {
        const struct totals_row *r = &t.rows[i];

        printf("%s\n  {\"key\":", i > 0 ? "," : "");
        print_quoted(r->key);
        printf(",\"upgraded\":%" PRIu64 ",\"plain\":%" PRIu64 ",\"starting\":%" PRIu64 ",\"ended\":%" PRIu64
               ",\"tx_bytes\":%" PRIu64 ",\"rx_bytes\":%" PRIu64 "}",
               r->upgraded, r->plain, r->starting, r->ended, r->tx_bytes, r->rx_bytes);
    }
    putchar(']');
    totals_free(&t);
    return 0;
}

int stat_json(const struct boards *b)
{
    const char *before = "\n ";
    int rc = 0;

    fputs("{\"connections\":[", stdout);
    for (size_t i = 0; i < b->count; i++)
        for (size_t j = 0; j < b->list[i].count; j++) {
            fputs(before, stdout);
            json_conn(&b->list[i], &b->list[i].conns[j]);
            before = ",\n ";
        }
    fputs("],\n \"totals\":{", stdout);
    for (unsigned key = 0; key < SW_ARRAY_LEN(kinds) && rc == 0; key++) {
        fputs(key > 0 ? ",\n " : "", stdout);
        rc = json_totals(b, (enum totals_key)key);
    }
    fputs("}}\n", stdout);
    return rc;
}

/* ---- OpenMetrics ---- */

/* name{program="…",extra} value */
static void metric(const char *name, const struct totals_row *r, const char *label, const char *more, uint64_t value)
{
    printf("%s{%s=", name, label);
    print_quoted(r->key);
    printf("%s} %" PRIu64 "\n", more, value);
}

static void metric_all(const char *name, const struct totals *t, const char *label)
{
    for (size_t i = 0; i < t->count; i++) {
        const struct totals_row *r = &t->rows[i];

        metric(name, r, label, "", r->upgraded + r->plain + r->starting + r->ended);
    }
}

static void describe(const char *name, const char *type, const char *help)
{
    printf("# TYPE %s %s\n# HELP %s %s\n", name, type, name, help);
}

int stat_openmetrics(const struct boards *b)
{
    struct totals programs = { 0 }, ports = { 0 }, reasons = { 0 };
    int rc = totals_of(b, TOTALS_PROGRAM, &programs);

    if (rc == 0)
        rc = totals_of(b, TOTALS_PORT, &ports);
    if (rc == 0)
        rc = totals_of(b, TOTALS_REASON, &reasons);
    if (rc < 0) {
        totals_free(&programs);
        totals_free(&ports);
        return rc;
    }
    describe("sockwarp_connections", "gauge", "Connections that are there, by program and state.");
    for (size_t i = 0; i < programs.count; i++) {
        const struct totals_row *r = &programs.rows[i];

        metric("sockwarp_connections", r, "program", ",state=\"upgraded\"", r->upgraded);
        metric("sockwarp_connections", r, "program", ",state=\"plain\"", r->plain);
        metric("sockwarp_connections", r, "program", ",state=\"starting\"", r->starting);
    }
    describe("sockwarp_connection_reasons", "gauge",
             "Connections that are there or are over in running processes, by reason.");
    metric_all("sockwarp_connection_reasons", &reasons, "reason");
    describe("sockwarp_connection_ports", "gauge",
             "Connections that are there or are over in running processes, by the server's port.");
    metric_all("sockwarp_connection_ports", &ports, "port");
    describe("sockwarp_sent_bytes", "counter", "Bytes that programs sent, by program.");
    for (size_t i = 0; i < programs.count; i++)
        metric("sockwarp_sent_bytes_total", &programs.rows[i], "program", "", programs.rows[i].tx_bytes);
    describe("sockwarp_received_bytes", "counter", "Bytes that programs received, by program.");
    for (size_t i = 0; i < programs.count; i++)
        metric("sockwarp_received_bytes_total", &programs.rows[i], "program", "", programs.rows[i].rx_bytes);
    puts("# EOF");
    totals_free(&programs);
    totals_free(&ports);
    totals_free(&reasons);
    return 0;
}
