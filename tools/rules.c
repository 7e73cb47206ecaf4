/* Rules as the launcher's options change them; see rules.h. */
#include "tools/rules.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
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

char *rules_add(const char *rules, const char *key, const char *value)
{
    char *begin = text_of("%s=", key), *text = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&text, &len);

    if (!f)
        die("%s", strerror(errno));
    for (;;) {
        const char *end = strchrnul(rules, ';');
        bool any = strspn(rules, " \t\r\n") < (size_t)(end - rules);

        fprintf(f, "%.*s", (int)(end - rules), rules);
        if (any && memmem(rules, (size_t)(end - rules), begin, strlen(begin)) == NULL)
            fprintf(f, " %s%s", begin, value);
        if (*end == '\0')
            break;
        fputc(';', f);
        rules = end + 1;
    }
    free(begin);
    if (fclose(f) != 0)
        die("%s", strerror(errno));
    return text;
}
