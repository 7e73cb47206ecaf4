/*
 * Configuration files: rules and variables by program, sockwarp.conf(5). The launcher reads them and puts what they say
 * into the program's environment; the library that programs load reads none.
 */
#ifndef SW_TOOLS_CONFIG_H
#define SW_TOOLS_CONFIG_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/must.h"

#define CONFIG_ENV "SOCKWARP_CONFIG" /* a file that is read instead of the two others */
#define CONFIG_SYSTEM "/etc/sockwarp.conf"

#define CONFIG_FILES_MAX 2u /* the system's and the user's */

struct config_entry {
    unsigned file;                    /* the number of files that came before */
    char *section, *variable, *value; /* variable: "SOCKWARP_..." or "profile" */
};

struct config {
    struct config_entry *entries;
    size_t count;
    unsigned files; /* that were read */
    char *names[CONFIG_FILES_MAX];
    unsigned bad; /* lines with mistakes that were reported */
};

/*
 * Adds what a file says, which overrides what earlier ones said. Prints a line on standard error, "sockwarp: FILE:LINE:
 * ...", for each mistake, counted in bad. A file that does not exist is a mistake if must_exist; one that other users
 * can write is one, too.
 */
void config_read(struct config *c, const char *path, bool must_exist);

/*
 * Reads the files that hold here: the one that SOCKWARP_CONFIG names; without it the system's, and the user's
 * ($XDG_CONFIG_HOME or ~/.config, sockwarp.conf). root: for a service of the system below that folder ("" is this one),
 * which never sees the caller's environment: only the system's file. NULL: for a program that the caller starts.
 */
void config_read_all(struct config *c, const char *root);

/*
 * What the files say of a variable for a program (the last part of its name), NULL if nothing. A later file overrides
 * an earlier one; in a file the section of that name overrides those of patterns that match it, and these override [*];
 * in a section the variable overrides the profile.
 */
const char *config_value(const struct config *c, const char *program, const char *variable) SW_MUST;

/* What a profile says of a variable, NULL if nothing. */
const char *config_profile(const char *profile, const char *variable) SW_MUST;
/* Exits when there is no profile of this name, --profile's. */
void config_check_profile(const char *name);

/* The variables that files may set, SOCKWARP_POLICY among them; the list ends with NULL. */
extern const char *const config_variables[];

void config_free(struct config *c);

#endif
