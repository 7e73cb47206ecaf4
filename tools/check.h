/* sockwarp check [ADDRESS[:PORT]]: what works on this host, and what would be chosen for an address, and why. */
#ifndef SW_TOOLS_CHECK_H
#define SW_TOOLS_CHECK_H

#include <stdbool.h>

#include "core/policy/settings.h"

/*
 * Prints the report. lib: the library that programs would get. rules: the text that s->policy was read from,
 * by_default: neither -p nor the variable gave it. target: "ADDRESS" or "ADDRESS:PORT", IPv6 in brackets if there is a
 * port; NULL: none. ask: the server there is asked. 0; -EINVAL with a line for the user in err: target is none;
 * -ECONNREFUSED: a connection to it would not be upgraded.
 */
int check_print(const char *lib, const struct settings *s, const char *rules, bool by_default, const char *target,
                bool ask, char *err, size_t cap) SW_MUST;

#endif
