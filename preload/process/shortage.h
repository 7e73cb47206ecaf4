/*
 * A shortage of the kernel's memory says nothing of the descriptor that was asked about. Where the answer decides whether
 * a program reads octets of ours, the question is asked again.
 */
#ifndef SW_PRELOAD_SHORTAGE_H
#define SW_PRELOAD_SHORTAGE_H

#include <errno.h>
#include <stdbool.h>

#define SHORTAGE_TRIES 100u

static inline bool is_shortage(int err)
{
    return err == ENOMEM || err == ENOBUFS;
}

/* The call's result, which is negative only for other reasons, or for lasting ones. */
#define DESPITE_SHORTAGE(call)                                            \
    __extension__({                                                       \
        unsigned tries_ = 0;                                              \
        __auto_type r_ = (call);                                          \
        while (r_ < 0 && is_shortage(errno) && tries_++ < SHORTAGE_TRIES) \
            r_ = (call);                                                  \
        r_;                                                               \
    })

#endif
