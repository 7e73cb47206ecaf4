/*
 * Rules of single sockets (sockwarp_policy_once): texts that were parsed once, by number. Number 0 are the process'
 * rules, SOCKWARP_POLICY.
 */
#ifndef SW_PRELOAD_RULES_H
#define SW_PRELOAD_RULES_H

#include <stdint.h>

#include "core/base/must.h"
#include "core/policy/policy.h"

/*
 * The number of a text's rules, 1 to 255, for as long as the process lives; -EINVAL: it is wrong, -ENOSPC, -ENOMEM. The
 * text is copied. Any thread; allocates.
 */
int rules_number(const char *text) SW_MUST;

/* The rules of that number, from rules_number in this process or its parent. Any thread, in signal handlers, too. */
const struct policy *rules_of(uint8_t number);

#endif
