/* Rules as the launcher's options change them; see rules.h. */
#include "tools/rules.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "core/policy/settings.h"
#include "tools/usage.h"

void rules_check_transport(const char *name)
{
    struct policy_opts defaults = policy_default_opts(TRANSPORTS_BUILT_IN);
    struct policy_error err;
    struct policy policy;
    char rule[128];

    if (name[0] == '\0' || name[strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789+-")] != '\0' || strlen(name) > 64)
        die("-t: unknown transport '%s' (iwarp, verbs or shm)", name);
    snprintf(rule, sizeof(rule), "any * auto transport=%s", name);
    if (policy_parse(rule, &defaults, &policy, &err) < 0)
        die("-t: %s", err.text);
    policy_free(&policy);
}

/* Does the rule, which ends at end, choose its transport itself? */
static bool has_transport(const char *rule, const char *end)
{
    const char *at = memmem(rule, (size_t)(end - rule), "transport=", strlen("transport="));

    return at != NULL;
}

char *rules_add_transport(const char *rules, const char *name)
{
    size_t len = 0;
    char *text = NULL;
    FILE *f = open_memstream(&text, &len);

    if (!f)
        die("%s", strerror(errno));
    for (;;) {
        const char *end = strchrnul(rules, ';');
        bool any = strspn(rules, " \t\r\n") < (size_t)(end - rules);

        fprintf(f, "%.*s", (int)(end - rules), rules);
        if (any && !has_transport(rules, end))
            fprintf(f, " transport=%s", name);
        if (*end == '\0')
            break;
        fputc(';', f);
        rules = end + 1;
    }
    if (fclose(f) != 0)
        die("%s", strerror(errno));
    return text;
}
