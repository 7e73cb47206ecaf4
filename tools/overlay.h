/* The environment as a program will see it: options, then variables, then configuration files, then defaults. */
#ifndef SW_TOOLS_OVERLAY_H
#define SW_TOOLS_OVERLAY_H

#include <stdbool.h>

#include "core/base/must.h"
#include "tools/config.h"

/* All borrowed; NULL = not given. */
struct overlay {
    const char *policy, *stats, *profile; /* options */
    const struct config *config;
    const char *program; /* the last part of its name, for config; "" = no certain one */
    bool environment;    /* do this process's variables count? */
};

/* settings_read's get. For SOCKWARP_POLICY never NULL: the default rule if nobody gives one. */
const char *overlay_get(void *overlay, const char *variable) SW_MUST;
/* Is it the default rule, since nobody gives one? */
bool overlay_has_default_rule(const struct overlay *o) SW_MUST;

/*
 * Exits with a line that names the option or variable, and in rules the column, if a value is bad. (What comes from
 * files was checked when they were read.)
 */
struct settings;
void overlay_read(struct overlay *o, struct settings *s);

/* Calls use for each variable that is to be set, SOCKWARP_POLICY and those of files and profiles among them. */
void overlay_each(struct overlay *o, void (*use)(void *arg, const char *variable, const char *value), void *arg);

#endif
