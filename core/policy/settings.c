/*
 * The environment, read once; names, defaults and ranges in settings.h. Only preload/ is above it. `sockwarp` checks
 * the same settings before it starts a program.
 */
#include "core/policy/settings.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "core/base/crc32c.h"
#include "core/base/trace.h"

#define TEXT_MAX_SHOWN 60 /* octets of a bad value that an error message repeats */

/* As getenv; an empty variable counts as absent. */
static const char *value_of(const char *(*get)(void *arg, const char *name), void *arg, const char *name)
{
    const char *v = get(arg, name);
    return v && v[0] != '\0' ? v : NULL;
}

/* The value as errors show it: truncated, and without control characters. */
static const char *shown(const char *v, char buf[TEXT_MAX_SHOWN + 4])
{
    size_t i;

    for (i = 0; i < TEXT_MAX_SHOWN && v[i] != '\0'; i++)
        buf[i] = v[i] >= 0x20 && v[i] < 0x7f ? v[i] : '?';
    strcpy(buf + i, v[i] ? "..." : "");
    return buf;
}

static int bad(char *err, size_t cap, const char *name, const char *v, const char *want)
{
    char buf[TEXT_MAX_SHOWN + 4];

    snprintf(err, cap, "%s: '%s' is not %s", name, shown(v, buf), want);
    return -EINVAL;
}

static int read_number(const char *name, const char *v, uint32_t lo, uint32_t hi, uint32_t *out, char *err, size_t cap)
{
    char want[64];
    uint64_t n = 0;
    size_t i;

    for (i = 0; i < 10 && v[i] >= '0' && v[i] <= '9'; i++)
        n = n * 10 + (uint64_t)(v[i] - '0');
    if (v[i] != '\0' || n < lo || n > hi) {
        snprintf(want, sizeof(want), "a number from %u to %u", lo, hi);
        return bad(err, cap, name, v, want);
    }
    *out = (uint32_t)n;
    return 0;
}

static int read_path(const char *name, const char *v, char *out, size_t out_cap, char *err, size_t cap)
{
    char buf[TEXT_MAX_SHOWN + 4];

    if (strlen(v) >= out_cap) {
        snprintf(err, cap, "%s: file name '%s' is longer than %zu octets", name, shown(v, buf), out_cap - 1);
        return -EINVAL;
    }
    strcpy(out, v);
    return 0;
}

static int read_log(struct settings *s, const char *v, char *err, size_t cap)
{
    static const char name[] = "SOCKWARP_LOG";
    const char *comma = strchrnul(v, ',');
    int level = trace_level_parse(v, (size_t)(comma - v));

    if (level < 0 || (*comma == ',' && comma[1] == '\0'))
        return bad(err, cap, name, v, "a level (off, error, info, debug or 0 to 3), or level,file");
    s->log_level = level;
    return *comma == ',' ? read_path(name, comma + 1, s->log_file, sizeof(s->log_file), err, cap) : 0;
}

static int read_io(struct settings *s, const char *v, char *err, size_t cap)
{
    if (strcmp(v, "auto") == 0)
        s->io = SETTINGS_IO_AUTO;
    else if (strcmp(v, "uring") == 0)
        s->io = SETTINGS_IO_URING;
    else if (strcmp(v, "syscall") == 0)
        s->io = SETTINGS_IO_SYSCALL;
    else
        return bad(err, cap, "SOCKWARP_IO", v, "auto, uring or syscall");
    return 0;
}

/* The name of an implementation of CRC32C, or of one that needs less of the CPU. */
static int read_crc(struct settings *s, const char *v, char *err, size_t cap)
{
    char want[128] = "auto";
    size_t n = strlen(want);

    if (strcmp(v, want) == 0)
        return 0;
    const struct crc32c_impl *named = crc32c_named(v);
    if (named) {
        s->crc = named->needs;
        return 0;
    }
    for (const struct crc32c_impl *i = crc32c_impls; i->name; i++)
        if (i->update)
            n += (size_t)snprintf(want + n, sizeof(want) - n, "%s%s", i[1].name ? ", " : " or ", i->name);
    return bad(err, cap, "SOCKWARP_CRC", v, want);
}

/* A name in /sys/class/infiniband. */
static int read_device(struct settings *s, const char *v, char *err, size_t cap)
{
    if (strlen(v) >= sizeof(s->device) || strchr(v, '/') != NULL || v[0] == '.')
        return bad(err, cap, "SOCKWARP_DEVICE", v, "the name of an RDMA device");
    strcpy(s->device, v);
    return 0;
}

static int read_policy(struct settings *s, const char *v, uint8_t transports, char *err, size_t cap)
{
    struct policy_opts defaults = policy_default_opts(transports);
    struct policy_error pe;
    int rc = policy_parse(v, &defaults, &s->policy, &pe);

    if (rc == -EINVAL)
        snprintf(err, cap, "SOCKWARP_POLICY: column %zu: %s", pe.column, pe.text);
    else if (rc < 0)
        snprintf(err, cap, "SOCKWARP_POLICY: %s", "out of memory");
    s->have_policy = rc == 0;
    return rc;
}

static void set_defaults(struct settings *s)
{
    *s = (struct settings){ .io = SETTINGS_IO_AUTO, .crc = CRC32C_ANY, .log_level = TRACE_OFF };
#define X(field, name, def, lo, hi) s->field = (def);
    SETTINGS_NUMBERS(X)
#undef X
}

#define X(field, name, def, lo, hi) { (name), (lo), (hi), offsetof(struct settings, field) },
static const struct number {
    const char *name;
    uint32_t lo, hi;
    size_t at;
} numbers[] = { SETTINGS_NUMBERS(X) };
#undef X

static int read_numbers(struct settings *s, const char *(*get)(void *arg, const char *name), void *arg, char *err,
                        size_t cap)
{
    for (const struct number *n = numbers; n < numbers + sizeof(numbers) / sizeof(numbers[0]); n++) {
        const char *v = value_of(get, arg, n->name);
        int rc = v ? read_number(n->name, v, n->lo, n->hi, (uint32_t *)((char *)s + n->at), err, cap) : 0;
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int read_switch(const char *name, const char *v, bool *on, char *err, size_t cap)
{
    *on = strcmp(v, "1") == 0;
    return *on || strcmp(v, "0") == 0 ? 0 : bad(err, cap, name, v, "0 or 1");
}

int settings_read(struct settings *s, const char *(*get)(void *arg, const char *name), void *arg, uint8_t transports,
                  char *err, size_t cap)
{
    const char *v;
    int rc;

    set_defaults(s);
    if (cap > 0)
        err[0] = '\0';

    rc = read_numbers(s, get, arg, err, cap);
    if (rc == 0 && (v = value_of(get, arg, "SOCKWARP_IO")) != NULL)
        rc = read_io(s, v, err, cap);
    if (rc == 0 && (v = value_of(get, arg, "SOCKWARP_CRC")) != NULL)
        rc = read_crc(s, v, err, cap);
    if (rc == 0 && (v = value_of(get, arg, "SOCKWARP_LOG")) != NULL)
        rc = read_log(s, v, err, cap);
    if (rc == 0 && (v = value_of(get, arg, "SOCKWARP_STATS")) != NULL)
        rc = read_path("SOCKWARP_STATS", v, s->stats_file, sizeof(s->stats_file), err, cap);
    if (rc == 0 && (v = value_of(get, arg, "SOCKWARP_DEVICE")) != NULL)
        rc = read_device(s, v, err, cap);
    if (rc == 0 && (v = value_of(get, arg, "SOCKWARP_EXPLAIN")) != NULL)
        rc = read_switch("SOCKWARP_EXPLAIN", v, &s->explain, err, cap);
    if (rc == 0 && (v = value_of(get, arg, "SOCKWARP_STAT")) != NULL)
        rc = read_switch("SOCKWARP_STAT", v, &s->stat, err, cap);
    if (rc == 0 && (v = value_of(get, arg, "SOCKWARP_SUMMARY")) != NULL)
        rc = read_switch("SOCKWARP_SUMMARY", v, &s->summary, err, cap);
    if (rc == 0 && (v = value_of(get, arg, "SOCKWARP_POLICY")) != NULL)
        rc = read_policy(s, v, transports, err, cap);

    if (rc < 0)
        set_defaults(s); /* no half-read settings; policy_parse has left nothing to free */
    return rc;
}
