/* The library's start, the order of its fork handlers, and its end: the one place that knows all the rooms. */
#include "preload/process/start.h"
#include "preload/conn/conn_end.h"
#include "preload/conn/conn_mem.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/single_threaded.h>
#include <unistd.h>

#include "core/base/append.h"
#include "core/base/crc32c.h"
#include "core/base/fault.h"
#include "core/base/rawsys.h"
#include "core/base/trace.h"
#include "core/negotiate/hello.h"
#include "preload/calls/bridge.h"
#include "preload/calls/exec.h"
#include "preload/calls/ring.h"
#include "preload/calls/stdio.h"
#include "preload/conn/coalesce.h"
#include "preload/conn/conn.h"
#include "preload/conn/conn_apart.h"
#include "preload/conn/conn_report.h"
#include "preload/conn/explain.h"
#include "preload/conn/shmem.h"
#include "preload/device/device.h"
#include "preload/process/board.h"
#include "preload/process/cancel.h"
#include "preload/process/others.h"
#include "preload/process/proc.h"
#include "preload/process/real.h"
#include "preload/process/sandbox.h"
#include "preload/process/signals.h"
#include "preload/process/transports.h"
#include "preload/ready/epoll.h"
#include "preload/sock/hooks.h"
#include "preload/sock/pending.h"
#include "preload/sock/poller.h"
#include "preload/sock/sock.h"
#include "preload/sock/wait.h"
#include "preload/startup/dispatch.h"
#include "preload/startup/learned.h"
#include "preload/startup/local.h"
#include "preload/startup/meet.h"
#include "preload/startup/startup.h"

/* ---- what sockets and waits ask of the rooms above them ---- */

const struct sock_hooks sock_hooks = {
    .ino = conn_ino,
    .last_close = dispatch_last_close,
    .last_bridged = bridge_closed,
    .release = startup_released,
    .unname = local_names_close,
    .let_out = conn_let_out,
    .expel = epoll_expel,
    .forget = epoll_forget_fd,
    .silent = startup_is_silent,
    .watched = epoll_watches,
    .awaited = epoll_awaits,
    .waits_unseen = epoll_waits_unseen,
    .look = startup_look,
    .due = startup_due,
    .step = startup_step_pending,
    .step_due = startup_step_due,
    .before_sleep = coalesce_before_sleep,
    .deadline = startup_deadline,
    .extra_fd = device_setup_fd,
    .extra_step = startup_step_devices,
};

/* ---- what connections ask of the room that carries their streams ---- */

const struct conn_ops *const conn_carriers[CONN_CARRIERS] = {
    [CONN_CARRIER_SOFT] = &conn_soft,
#if HAVE_VERBS
    [CONN_CARRIER_DEVICE] = &device_ops,
#endif
};

/* ---- fork ---- */

static __thread bool one_of_many; /* other threads run while this one forks */

/*
 * A handler that signals.c cannot put off, and that uses a connection, would wait for the locks that are taken here and that
 * its own thread has. (The program's handlers of pthread_atfork run with its own mask: those before ours, and behind.)
 */
static __thread uint64_t fork_mask;

static void block_signals(void)
{
    static const uint64_t all = ~UINT64_C(0);
    if (!sandbox_on())
        rawsys4(__NR_rt_sigprocmask, SIG_SETMASK, (long)&all, (long)&fork_mask, sizeof(all));
}

static void unblock_signals(void)
{
    if (!sandbox_on())
        rawsys4(__NR_rt_sigprocmask, SIG_SETMASK, (long)&fork_mask, 0, sizeof(fork_mask));
}

void start_before_fork(void)
{
    block_signals();
    one_of_many = !__libc_single_threaded;
    bridge_before_fork();
    coalesce_stop();
    fork_before();
    epoll_before_fork();
    conn_mem_before_fork();
    pending_before_fork();
    wait_before_fork();
    sock_before_fork();
    fork_count_child();
}

void start_after_fork_parent(void)
{
    sock_after_fork(false);
    wait_after_fork();
    pending_after_fork(false);
    conn_mem_after_fork(false);
    epoll_after_fork(false);
    coalesce_go_on();
    bridge_after_fork(false);
    conn_tx_finished(0); /* (what a thread that has ended left goes on: the process may close nothing more) */
    unblock_signals();
}

/* A signal handler that has interrupted one of our calls may fork: that call's references are the child's own too. */
static bool in_our_call(void)
{
    return cancel_program != -1;
}

void start_after_fork_child(void)
{
    proc_begin();
    proc_my_tid = 0;
    atomic_store(&proc_ends, 0); /* (the child does not have that thread) */
    coalesce_after_fork();
    conn_apart_after_fork();
    fork_am_child();
    stdio_after_fork();
    sock_after_fork(true);
    wait_after_fork();
    pending_after_fork(true);
    conn_mem_after_fork(true);
    epoll_after_fork(true);
    poller_after_fork();
    conn_tx_after_fork();
    learned_after_fork();
    local_after_fork();
    meet_after_fork();
    ring_after_fork_child();
    device_forked();
    transports_after_fork();
    board_after_fork();
    if (one_of_many && !in_our_call()) {
        sock_count_begin();
        epoll_count();
        sock_count_end();
    }
    bridge_after_fork(true);
    signals_after_fork();
    others_after_fork();
    unblock_signals();
}

static void log_to_file(void *arg, const char *line, size_t len)
{
    int r = append_line(arg, line, len);
    (void)r; /* there is nowhere to report it */
}

static void log_to_stderr(void *arg, const char *line, size_t len)
{
    (void)arg;
    explain_to_stderr(line, len);
}

static const char *env_get(void *arg, const char *name)
{
    (void)arg;
    return secure_getenv(name);
}

/* As the program was called: redis-server may be a link to a file of another name. */
static void name_program(void)
{
    snprintf(proc.program, sizeof(proc.program), "%s", program_invocation_short_name);
}

static void init_once(void)
{
    static const struct fault_hooks hooks = { .write = explain_to_stderr, .describe = conn_report };
    fault_setup();
    fault_hook(&hooks);
    proc_begin();
    proc.transports = TRANSPORTS_BUILT_IN;
    name_program();
    char err[256];
    int r = settings_read(&proc.set, env_get, NULL, proc.transports, err, sizeof(err));
    if (r < 0) {
        /* The launcher has refused to start by now; with LD_PRELOAD alone everything stays plain. */
        char line[320];
        int n = snprintf(line, sizeof(line), "sockwarp[%d]: %s; nothing is upgraded\n", (int)proc.pid, err);
        rawsys_write(STDERR_FILENO, line, (size_t)n);
    } else {
        if (proc.set.log_file[0] != '\0')
            trace_setup(proc.set.log_level, log_to_file, proc.set.log_file);
        else
            trace_setup(proc.set.log_level, log_to_stderr, NULL);
        if (proc.set.explain) {
            int f = fault_prepare();
            (void)f; /* call sites are then printed as "?" */
        }
        proc.set.policy.is_own = local_is_own;
        proc.on = proc.set.have_policy && !getauxval(AT_SECURE);
    }
    conn_apart_start();
    if (proc.on) {
        if (proc.set.spin_us > 0 && sysconf(_SC_NPROCESSORS_ONLN) > 1)
            proc.spin_ns = proc.set.spin_us * (uint64_t)1000;
        exec_save_env();
        pthread_atfork(start_before_fork, start_after_fork_parent, start_after_fork_child);
    }
    crc32c_setup(proc.set.crc);
    atomic_store(&proc_ready, 2);
    if (proc.on) {
        inherit_start();
        stdio_start();
        trace_info("crc32c: %s", crc32c_name());
    }
}

void start_once(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    static __thread bool inside;
    if (inside) /* what the initialisation itself calls goes to the kernel */
        return;
    inside = true;
    pthread_once(&once, init_once);
    inside = false;
}

__attribute__((constructor)) static void library_loaded(void)
{
    real_get();
    start_once();
}

void start_finish(void)
{
    static _Atomic bool finished;
    if (proc.on && !proc_is_borrowed() && !atomic_exchange(&finished, true)) {
        atomic_store(&proc_ends, (pid_t)rawsys_gettid());
        bridge_settle(true);
        coalesce_stop(); /* from here on no thread would send later what is gathered */
        dispatch_settle_all();
        board_finish();
        trace_debug("waits have looked at %lu negotiations", (unsigned long)pending_looked());
    }
}

__attribute__((destructor)) static void library_unloaded(void)
{
    stdio_finish();
    start_finish();
}
