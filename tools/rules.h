/* The rules that programs get from the launcher: its default, and -t. */
#ifndef SW_TOOLS_RULES_H
#define SW_TOOLS_RULES_H

#include "core/base/must.h"

/* What sockwarp(1) uses where neither an option nor a variable gives rules. */
#define DEFAULT_POLICY "connect private auto; connect * off; accept * auto"

/* -t: exits with a message unless name is one of the policy's transports, or several joined with '+'. */
void rules_check_transport(const char *name);

/*
 * The rules, with " transport=NAME" added to each that has none. The caller frees the text. Exits when memory is out.
 */
char *rules_add_transport(const char *rules, const char *name) SW_MUST;

#endif
