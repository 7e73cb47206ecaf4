/*
 * The dynamic section of a loaded object.
 */
#ifndef SW_PRELOAD_DYNAMIC_H
#define SW_PRELOAD_DYNAMIC_H

#include <link.h>
#include <stdint.h>

/* The value, or the address, that d, an object's section, has for this tag; 0: none. Calls nothing. */
static inline uintptr_t dynamic_value(const ElfW(Dyn) * d, ElfW(Sxword) tag)
{
    for (; d->d_tag != DT_NULL; d++)
        if (d->d_tag == tag)
            return d->d_un.d_ptr;
    return 0;
}

#endif
