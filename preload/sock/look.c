#include "preload/sock/look.h"

#include <stdatomic.h>

#include "core/base/must.h"
#include "preload/process/proc.h"

#define COUNT_BITS 40 /* the process above them */

__thread struct look look_now;
static _Atomic uint64_t count;

uint64_t look_found_empty(void)
{
    if (look_now.id == 0) {
        uint64_t n = atomic_fetch_add_explicit(&count, 1, memory_order_relaxed) + 1;
        look_now.id = (uint64_t)proc.pid << COUNT_BITS | (n & ((UINT64_C(1) << COUNT_BITS) - 1));
        look_now.tick_ns = proc_tick_ns();
    }
    return look_now.id;
}

bool look_holds(uint64_t id)
{
    return id != 0 && id == look_now.id && proc_tick_ns() == look_now.tick_ns;
}
