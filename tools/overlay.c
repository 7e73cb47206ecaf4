/* What decides the value of a variable; see overlay.h. */
#include "tools/overlay.h"

#include <stdlib.h>
#include <string.h>

#include "core/policy/settings.h"
#include "include/sockwarp.h"
#include "tools/rules.h"
#include "tools/usage.h"

/* NULL: it is not set anywhere. */
static const char *decided(const struct overlay *o, const char *variable)
{
    const char *value = NULL;

    if (strcmp(variable, SOCKWARP_ENV_POLICY) == 0)
        value = o->policy;
    else if (strcmp(variable, SOCKWARP_ENV_STATS) == 0)
        value = o->stats;
    if (!value && o->profile)
        value = config_profile(o->profile, variable);
    if (!value && o->environment) {
        value = getenv(variable);
        if (value && value[0] == '\0') /* an empty variable counts as absent */
            value = NULL;
    }
    if (!value && o->config)
        value = config_value(o->config, o->program, variable);
    return value;
}

bool overlay_has_default_rule(const struct overlay *o)
{
    return decided(o, SOCKWARP_ENV_POLICY) == NULL;
}

const char *overlay_get(void *overlay, const char *variable)
{
    const char *value = decided(overlay, variable);

    return !value && strcmp(variable, SOCKWARP_ENV_POLICY) == 0 ? DEFAULT_POLICY : value;
}

void overlay_read(struct overlay *o, struct settings *s)
{
    static const char variable[] = SOCKWARP_ENV_POLICY ":";
    char err[320];

    if (settings_read(s, overlay_get, o, TRANSPORTS_BUILT_IN, err, sizeof(err)) == 0)
        return;
    if (o->policy && strncmp(err, variable, strlen(variable)) == 0)
        die("-p:%s", err + strlen(variable));
    die("%s", err);
}

void overlay_start(struct overlay *o, struct config *config, const char *root)
{
    struct settings s;

    config_read_all(config, root);
    if (config->bad > 0)
        exit(EXIT_USAGE);
    o->config = config;
    if (o->profile)
        config_check_profile(o->profile);
    if (o->transport)
        rules_check_transport(o->transport);
    overlay_read(o, &s);
    settings_free(&s);
}

char *overlay_add_transport(struct overlay *o)
{
    char *rules = o->transport ? rules_add(overlay_get(o, SOCKWARP_ENV_POLICY), "transport", o->transport) : NULL;

    if (rules)
        o->policy = rules;
    return rules;
}

void overlay_each(struct overlay *o, void (*use)(void *arg, const char *variable, const char *value), void *arg)
{
    for (const char *const *v = config_variables; *v; v++) {
        const char *value = overlay_get(o, *v);

        if (value)
            use(arg, *v, value);
    }
}
