/* Rules of single sockets; see rules.h. */
#include "preload/process/rules.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/trace.h"
#include "preload/process/proc.h"

#define RULES_MAX 255u

/*
 * Entries are made and never changed or freed, so readers need no lock: a socket may be closed in a signal handler, where
 * nothing can be freed.
 */
struct entry {
    struct policy policy;
    char text[];
};

static _Atomic(struct entry *) entries[RULES_MAX];

static struct entry *entry_new(const char *text, int *error)
{
    size_t len = strlen(text) + 1;
    struct entry *e = malloc(sizeof(*e) + len);
    struct policy_opts defaults = policy_default_opts(proc.transports);
    struct policy_error why;
    *error = -ENOMEM;
    if (e == NULL)
        return NULL;
    memcpy(e->text, text, len);
    *error = policy_parse(text, &defaults, &e->policy, &why);
    if (*error == 0)
        return e;
    if (*error == -EINVAL)
        trace_error("sockwarp_policy_once: column %zu: %s", why.column, why.text);
    free(e);
    return NULL;
}

static void entry_free(struct entry *e)
{
    policy_free(&e->policy);
    free(e);
}

int rules_number(const char *text)
{
    struct entry *mine = NULL;
    int error = 0;
    for (unsigned i = 0; i < RULES_MAX; i++) {
        struct entry *there = atomic_load(&entries[i]);
        if (there == NULL) {
            if (mine == NULL && (mine = entry_new(text, &error)) == NULL)
                return error;
            if (atomic_compare_exchange_strong(&entries[i], &there, mine))
                return (int)i + 1;
        }
        if (strcmp(there->text, text) == 0) {
            if (mine != NULL)
                entry_free(mine);
            return (int)i + 1;
        }
    }
    if (mine != NULL)
        entry_free(mine);
    return -ENOSPC;
}

const struct policy *rules_of(uint8_t number)
{
    struct entry *e = number > 0 ? atomic_load_explicit(&entries[number - 1], memory_order_acquire) : NULL;
    return e != NULL ? &e->policy : &proc.set.policy;
}
