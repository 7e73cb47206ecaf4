/* What the kernel says of a TCP connection of this network namespace, by sock_diag(7), as ss(8) asks. */
#ifndef SW_TOOLS_DIAG_H
#define SW_TOOLS_DIAG_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/must.h"
#include "preload/process/board_format.h"

/* Segments that this end has sent again. False: there is no such connection here, or the kernel may not be asked. */
bool diag_retrans(const struct board_addr *local, const struct board_addr *peer, uint64_t *retrans) SW_MUST;

#endif
