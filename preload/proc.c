/*
 * The process: start, settings, fork, exit.
 */
#include "preload/proc.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "core/base/append.h"
#include "core/base/crc32c.h"
#include "core/base/fault.h"
#include "core/base/foreign.h"
#include "core/base/rawsys.h"
#include "core/base/reason.h"
#include "core/base/trace.h"
#include "core/negotiate/hello.h"
#include "preload/arena.h"
#include "preload/cancel.h"
#include "preload/conn.h"
#include "preload/connect.h"
#include "preload/drive.h"
#include "preload/epoll.h"
#include "preload/exec.h"
#include "preload/gather.h"
#include "preload/hidden.h"
#include "preload/proc.h"
#include "preload/ready.h"
#include "preload/real.h"
#include "preload/ring.h"
#include "preload/segv.h"
#include "preload/stats.h"
#include "preload/stdio.h"
#include "preload/transports.h"
#include "preload/verbs.h"

struct proc proc;

static pthread_mutex_t transport_lock = PTHREAD_MUTEX_INITIALIZER; /* protects the choice of the transport */
_Atomic int proc_ready;

__thread pid_t proc_my_tid;
__thread bool proc_making_ring;

/* ---- small services ---- */

uint64_t proc_now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

void proc_random(void *buf, size_t len)
{
    uint8_t *p = buf;
    while (len > 0) {
        ssize_t n = getrandom(p, len, 0);
        SW_CHECK(n > 0 || errno == EINTR, "getrandom: errno %d", errno);
        if (n > 0) {
            p += n;
            len -= (size_t)n;
        }
    }
}

uint32_t proc_random32(void *unused)
{
    (void)unused;
    uint32_t v;
    proc_random(&v, sizeof(v));
    return v;
}

bool proc_on_signal_stack(void)
{
    stack_t now;
    return sigaltstack(NULL, &now) == 0 && (now.ss_flags & SS_ONSTACK);
}

bool proc_is_borrowed(void)
{
    return proc_ready == 2 && rawsys4(__NR_getpid, 0, 0, 0, 0) != proc.pid;
}

void proc_stats_write(const char *line, size_t len)
{
    int r = append_line(proc.set.stats_file, line, len);
    if (r < 0)
        trace_error("%s: a statistics line could not be written: errno %d", proc.set.stats_file, -r);
}

/* Of no use where standard error is an accelerated connection: its frames would be damaged. */
static void to_stderr(const char *line, size_t len)
{
    struct sock *s = sock_get_active(STDERR_FILENO);
    if (s == NULL)
        rawsys_write(STDERR_FILENO, line, len);
    else
        sock_put(s);
}

void proc_explain(const struct sock *s, const char *role, const struct sockaddr_storage *peer,
                  const char *decision, unsigned reason)
{
    if (!proc.set.explain && !trace_on(TRACE_INFO))
        return;
    int err = errno;
    char addr[80], site[256] = "?", line[512];
    stats_addr(peer, addr, sizeof(addr));
    foreign_enter(); /* libunwind reads from a pipe of its own, through our read() */
    fault_call_site(site, sizeof(site));
    foreign_leave();
    int head = snprintf(line, sizeof(line), "sockwarp[%d]: ", (int)proc.pid);
    int n = head + snprintf(line + head, sizeof(line) - (size_t)head, "fd %d %s %s: %s (%s: %s) at %s\n",
                            atomic_load(&s->fd), role, addr, decision, reason_name(reason), reason_text(reason), site);
    if (n > (int)sizeof(line) - 1)
        n = (int)sizeof(line) - 1;
    if (proc.set.explain)
        to_stderr(line, (size_t)n);
    else
        trace_info("%.*s", n - 1 - head, line + head);
    errno = err;
}

/* ---- settings and log ---- */

static void log_to_file(void *arg, const char *line, size_t len)
{
    int r = append_line(arg, line, len);
    (void)r; /* there is nowhere to tell it */
}

static void log_to_stderr(void *arg, const char *line, size_t len)
{
    (void)arg;
    to_stderr(line, len);
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

static __thread bool one_of_many; /* other threads run while this one forks */

void proc_before_fork(void)
{
    one_of_many = !__libc_single_threaded;
    gather_stop();
    exec_before_fork();
    epoll_before_fork();
    conn_mem_before_fork();
    drive_before_fork();
    sock_before_fork();
    exec_count_child();
}

void proc_after_fork_parent(void)
{
    sock_after_fork(false);
    drive_after_fork();
    conn_mem_after_fork(false);
    epoll_after_fork(false);
    gather_go_on();
}

/* A signal handler that has interrupted one of our calls may fork: the references of that call are its own. */
static bool in_our_call(void)
{
    return cancel_program != -1;
}

void proc_after_fork_child(void)
{
    proc.pid = (pid_t)rawsys4(__NR_getpid, 0, 0, 0, 0);
    proc_my_tid = 0;
    gather_after_fork();
    exec_am_child();
    segv_after_fork();
    stdio_after_fork();
    sock_after_fork(true);
    drive_after_fork();
    conn_mem_after_fork(true);
    epoll_after_fork(true);
    ready_after_fork();
    conn_tx_after_fork();
    connect_after_fork();
    ring_after_fork_child();
    verbs_forked();
    pthread_mutex_init(&transport_lock, NULL);
    const struct transport_ops *t = transport_if_any();
    if (t != NULL)
        t->after_fork();
    if (!one_of_many || in_our_call())
        return;
    sock_count_begin();
    epoll_count();
    sock_count_end();
}

static void init_once(void)
{
    fault_setup();
    proc.pid = (pid_t)rawsys4(__NR_getpid, 0, 0, 0, 0);
    proc.transports = TRANSPORTS_BUILT_IN;
    name_program();
    char err[256];
    int r = settings_read(&proc.set, env_get, NULL, proc.transports, err, sizeof(err));
    if (r < 0) {
        /* The launcher has refused to start by now; under bare LD_PRELOAD everything stays plain. */
        char line[320];
        int n = snprintf(line, sizeof(line), "sockwarp[%d]: %s; nothing is accelerated\n", (int)proc.pid, err);
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
        proc.on = proc.set.have_policy && !getauxval(AT_SECURE);
    }
    if (proc.on) {
        if (proc.set.spin_us > 0 && sysconf(_SC_NPROCESSORS_ONLN) > 1)
            proc.spin_ns = proc.set.spin_us * (uint64_t)1000;
        exec_save_env();
        pthread_atfork(proc_before_fork, proc_after_fork_parent, proc_after_fork_child);
    }
    crc32c_setup(proc.set.crc);
    atomic_store(&proc_ready, 2);
    if (proc.on) {
        inherit_start();
        stdio_start();
        trace_info("crc32c: %s", crc32c_name());
    }
}

void proc_init(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    static __thread bool inside;
    if (inside) /* what the initialisation itself calls goes to the kernel */
        return;
    inside = true;
    pthread_once(&once, init_once);
    inside = false;
}

__attribute__((constructor)) static void start(void)
{
    real_get();
    proc_init();
}

void proc_finish(void)
{
    static _Atomic bool finished;
    if (proc.on && !proc_is_borrowed() && !atomic_exchange(&finished, true)) {
        gather_stop(); /* what is written from here on nobody would send later */
        conn_settle_all();
        trace_debug("waits have looked at %lu negotiations", (unsigned long)drive_looked());
    }
}

__attribute__((destructor)) static void finish(void)
{
    stdio_finish();
    proc_finish();
}

/* ---- transport ---- */

static _Atomic(const struct transport_ops *) transport;

static int close_hidden(int fd)
{
    hidden_close(fd);
    return 0;
}

const struct transport_ops *transport_if_any(void)
{
    return atomic_load_explicit(&transport, memory_order_acquire);
}

const struct transport_ops *transport_now(void)
{
    const struct transport_ops *t = transport_if_any();
    if (t != NULL)
        return t;
    static const struct transport_env env = { .hide_fd = hidden_move, .close_fd = close_hidden };
    pthread_mutex_lock(&transport_lock);
    t = transport_if_any();
    if (t == NULL) {
        const char *why = "";
        int want = proc.set.io == SETTINGS_IO_URING ? 1 : proc.set.io == SETTINGS_IO_SYSCALL ? 0 : -1;
        proc_making_ring = true;
        t = transport_choose(want, &env, &why);
        proc_making_ring = false;
        trace_info("transport %s: %s", t->name, why);
        atomic_store(&transport, t);
    }
    pthread_mutex_unlock(&transport_lock);
    return t;
}
