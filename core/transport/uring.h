/*
 * The io_uring variant's set-up: see transport.h for what it does.
 */
#ifndef SW_TRANSPORT_URING_H
#define SW_TRANSPORT_URING_H

#include "core/base/must.h"
#include "core/transport/transport.h"

/*
 * Tries whether a ring can be made here and remembers env for later. 0 or -errno. The test ring is
 * gone afterwards: rings are made per thread at first use.
 */
int transport_uring_setup(const struct transport_env *env) SW_MUST;

#endif
