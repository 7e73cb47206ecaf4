/* The rules that programs get from the launcher: its default, and what its options add. */
#ifndef SW_TOOLS_RULES_H
#define SW_TOOLS_RULES_H

#include "core/base/must.h"

/* What sockwarp(1) uses where neither an option nor a variable gives rules. */
#define DEFAULT_POLICY "connect private auto; connect * off; accept * auto"

/* -t: exits with a message unless name is one of the policy's transports, or several joined with '+'. */
void rules_check_transport(const char *name);

/*
 * The rules, with " KEY=VALUE" added to each that says nothing about the key. The caller frees the text. Exits when
 * memory is out.
 */
char *rules_add(const char *rules, const char *key, const char *value) SW_MUST;

#endif
