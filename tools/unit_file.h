/*
 * A service of systemd as its files describe it: systemd.unit(5), systemd.syntax(7), systemd.exec(5). They are read and
 * never written.
 */
#ifndef SW_TOOLS_UNIT_FILE_H
#define SW_TOOLS_UNIT_FILE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include "core/base/must.h"

#define UNIT_NAME_MAX 255 /* systemd.unit(5) */
/* Where an administrator's drop-ins belong, and what ours is called. */
#define UNIT_ADMIN_FOLDER "/etc/systemd/system"
#define UNIT_DROP_IN "sockwarp.conf"

/* One assignment of the section [Service], in the order in which systemd reads them. */
struct unit_setting {
    char *key, *value;
};

struct unit {
    char name[UNIT_NAME_MAX + 1]; /* with ".service"; an alias is resolved */
    char fragment[PATH_MAX];      /* its file, below root */
    struct unit_setting *settings;
    size_t count;
};

/*
 * Reads the service name (".service" may be left out) of the system below root ("" is this one): its file, and all
 * drop-ins but ours. 0, or with a line for the user in err: -ENOENT there is none, -EINVAL no name of a service,
 * -ENOEXEC masked, -EIO and the like it cannot be read. On error nothing is to be freed, and but for -EINVAL u->name is
 * there.
 */
int unit_read(const char *root, const char *name, struct unit *u, char *err, size_t cap) SW_MUST;
void unit_free(struct unit *u);

/* The last value of a setting, NULL if it is not set or set to nothing. */
const char *unit_value(const struct unit *u, const char *key) SW_MUST;
/* Is it one of systemd's words for yes? */
bool unit_is_on(const struct unit *u, const char *key) SW_MUST;

/*
 * The values of a setting that adds up, such as Environment=: those behind the last empty one. *at begins with 0. NULL:
 * no more.
 */
const char *unit_next(const struct unit *u, const char *key, size_t *at) SW_MUST;

/*
 * The next word of a value: quotes and backslashes are taken off. *text moves on. false: there is no more, or none that
 * fits.
 */
bool unit_word(const char **text, char *word, size_t cap) SW_MUST;

/* Where our drop-in for a unit of the system below root is. The caller frees it. */
char *unit_drop_in(const char *root, const char *name) SW_MUST;

#endif
