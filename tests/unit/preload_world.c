/*
 * The rest of the library, as far as one file of preload/ needs it.
 */
#include "tests/unit/preload_world.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "preload/conn/conn_ops.h"
#include "preload/process/proc.h"
#include "preload/process/real.h"
#include "preload/process/sandbox.h"
#include "preload/process/signals.h"

struct proc proc;
_Atomic int proc_ready = 2;
__thread pid_t proc_my_tid;
_Atomic bool sandbox_entered;
struct real_calls real_calls;
bool real_is_ready;

/* In software, as far as anybody asks. */
static const struct conn_ops on_socket = { .on_socket = true };
const struct conn_ops *const conn_carriers[CONN_CARRIERS] = { &on_socket };

void real_init(void)
{
    real_calls.close = close;
    real_calls.epoll_ctl = epoll_ctl;
    real_calls.fcntl = fcntl;
    real_calls.poll = poll;
    real_calls.read = read;
    real_calls.write = write;
    real_is_ready = true;
}

void world_init(void)
{
    real_init();
    proc.pid = getpid();
    proc_my_tid = 0;
}

void *world_shared(unsigned len)
{
    void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        abort();
    return p;
}

__thread struct signals_held signals_held;

/* (No signal is put off where there is no handler of ours.) */
void signals_deliver(void)
{
    abort();
}

bool world_on_signal_stack;

bool proc_on_signal_stack(void)
{
    return world_on_signal_stack;
}

bool proc_is_borrowed(void)
{
    return getpid() != proc.pid;
}

uint64_t proc_now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

uint32_t proc_random32(void *unused)
{
    static uint64_t state = 1;
    (void)unused;
    return world_random(&state, UINT32_MAX);
}
