/* What a program asks of the library: include/sockwarp.h. */
#ifndef SW_PRELOAD_INFO_H
#define SW_PRELOAD_INFO_H

#include "preload/sock/sock.h"

/* s was just made by socket(): it takes the rules that the program has chosen for it. */
void info_take_rules(struct sock *s);

#endif
