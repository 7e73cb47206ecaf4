/* The environment as a program will see it: options, then variables, then configuration files, then defaults. */
#ifndef SW_TOOLS_OVERLAY_H
#define SW_TOOLS_OVERLAY_H

#include <stdbool.h>

#include "core/base/must.h"
#include "tools/config.h"

/* All borrowed; NULL = not given. */
struct overlay {
    const char *policy, *transport, *stats, *profile; /* options */
    const char *program;         /* the last part of the program's name, for config; "" = not certain */
    bool environment;            /* do this process's variables count? */
    const struct config *config; /* overlay_start sets it */
};

/*
 * Reads the configuration files into config (root as for config_read_all), and checks what they, options and variables
 * say. Exits with the mistakes.
 */
void overlay_start(struct overlay *o, struct config *config, const char *root);

/* Gives the rules the option's transport, if there is one. Returns the text of the rules then, to be freed. */
char *overlay_add_transport(struct overlay *o) SW_MUST;

/* settings_read's get. For SOCKWARP_POLICY never NULL: the default rule where none is given. */
const char *overlay_get(void *overlay, const char *variable) SW_MUST;
/* Is it the default rule, since none is given? */
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
