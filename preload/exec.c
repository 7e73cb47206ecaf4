/*
 * fork and exec.
 *
 * fork: a connection's state is shared memory, so the child only has to be counted in. Sends under way by the parent's ring
 * are stopped first: the ring is the parent's alone.
 *
 * exec: an accepted connection nobody has read from (inetd style) is handed to the next program by number and inode in
 * SOCKWARP_INHERIT, which takes it up as if it had just accepted it. An accelerated connection cannot be carried over yet.
 */
#include "preload/exec.h"

#include <alloca.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/reason.h"
#include "core/base/trace.h"
#include "preload/conn.h"
#include "preload/proc.h"
#include "preload/real.h"

#define INHERIT "SOCKWARP_INHERIT"

extern char **environ;

static void stop_job(int fd, struct sock *s, void *arg)
{
    (void)arg;
    struct conn *c = s->conn;
    if (c == NULL || atomic_load(&s->fd) != fd)
        return;
    if (conn_state(c) == CONN_FULL && c->job_runs && turn_take_brief(&c->tx) == 0) {
        if (c->job_runs) {
            conn_tx_stop(c);
            c->tx_rest = true;
        }
        turn_give(&c->tx);
    }
    conn_count_child(c, 1);
}

static void uncount(int fd, struct sock *s, void *arg)
{
    (void)arg;
    if (s->conn != NULL && atomic_load(&s->fd) == fd)
        conn_count_child(s->conn, -1);
}

void exec_before_fork(void)
{
    sock_each(stop_job, NULL);
}

/* What was stopped goes on with whatever the program does next. */
pid_t fork(void)
{
    if (!proc_on() || proc_is_borrowed())
        return REAL(fork)();
    pid_t pid = REAL(fork)();
    if (pid < 0) {
        int err = errno;
        sock_each(uncount, NULL);
        errno = err;
    }
    return pid;
}

/* ---- exec ---- */

struct inherit {
    char text[2048];
    size_t len;
};

/* Untouched accepted connections that stay open across exec; others in use are named in the log. */
static void collect(int fd, struct sock *s, void *arg)
{
    struct inherit *in = arg;
    struct stat st;
    if (s->conn == NULL || !atomic_load(&s->active))
        return;
    int flags = REAL(fcntl)(fd, F_GETFD);
    if (flags < 0 || (flags & FD_CLOEXEC) || fstat(fd, &st) < 0)
        return;
    if (!conn_undecided(s->conn)) {
        if (conn_state(s->conn) == CONN_FULL)
            trace_error("fd %d: an accelerated connection cannot be carried over exec yet", fd);
        return;
    }
    int n = snprintf(in->text + in->len, sizeof(in->text) - in->len, "%s%d:%llu:%llu", in->len ? "," : "", fd,
                     (unsigned long long)st.st_ino, (unsigned long long)s->conn->neg.streamed);
    if (n > 0 && in->len + (size_t)n < sizeof(in->text))
        in->len += (size_t)n;
    else
        in->text[in->len] = '\0';
}

/*
 * The environment for the next program: envp with INHERIT put in or taken out. Returns envp itself if nothing is to
 * change, else an array in mem (which must be freed). text must stay.
 */
static char *const *next_env(char *const envp[], struct inherit *in, char text[2100], void **mem)
{
    *mem = NULL;
    in->len = 0;
    in->text[0] = '\0';
    sock_each(collect, in);
    size_t n = 0, old = 0;
    for (; envp != NULL && envp[n] != NULL; n++)
        old += strncmp(envp[n], INHERIT "=", sizeof(INHERIT)) == 0;
    if (in->len == 0 && old == 0)
        return envp;
    char **out = malloc((n + 2) * sizeof(*out));
    if (out == NULL)
        return envp;
    size_t at = 0;
    for (size_t i = 0; i < n; i++)
        if (strncmp(envp[i], INHERIT "=", sizeof(INHERIT)) != 0)
            out[at++] = envp[i];
    if (in->len > 0) {
        snprintf(text, 2100, INHERIT "=%s", in->text);
        out[at++] = text;
    }
    out[at] = NULL;
    *mem = out;
    return out;
}

/*
 * This image's connections end here, for this process. One that is accelerated and stays open would hand the next program
 * frames instead of its octets: if nobody else uses it, it is ended rather than misread.
 */
static void leave_one(int fd, struct sock *s, void *arg)
{
    (void)arg;
    struct conn *c = s->conn;
    int flags = c != NULL && atomic_load(&s->fd) == fd ? REAL(fcntl)(fd, F_GETFD) : -1;
    if (flags < 0)
        return;
    if (atomic_load(&c->procs) == 1) {
        conn_record(s, c);
        if (!(flags & FD_CLOEXEC) && conn_state(c) == CONN_FULL)
            REAL(shutdown)(fd, SHUT_RDWR);
    }
    conn_count_child(c, -1);
}

/* The exec failed: they go on. */
static void return_one(int fd, struct sock *s, void *arg)
{
    (void)arg;
    if (s->conn != NULL && atomic_load(&s->fd) == fd)
        conn_count_child(s->conn, 1);
}

/* An exec under way: begin, the real call, and, since it came back, failed. */
struct leaving {
    struct inherit in;
    char text[2100];
    void *mem;
    bool ours;
};

static char *const *leave_begin(struct leaving *l, char *const envp[])
{
    l->mem = NULL;
    l->ours = proc_on() && !proc_is_borrowed();
    if (!l->ours)
        return envp;
    char *const *env = next_env(envp, &l->in, l->text, &l->mem);
    sock_each(leave_one, NULL);
    return env;
}

static void leave_failed(struct leaving *l)
{
    int err = errno;
    if (l->ours)
        sock_each(return_one, NULL);
    free(l->mem);
    errno = err;
}

static int do_exec(const char *path, char *const argv[], char *const envp[], bool search)
{
    struct leaving l;
    char *const *env = leave_begin(&l, envp);
    int r = search ? REAL(execvpe)(path, argv, env) : REAL(execve)(path, argv, env);
    leave_failed(&l);
    return r;
}

int execve(const char *path, char *const argv[], char *const envp[])
{
    return do_exec(path, argv, envp, false);
}

int execv(const char *path, char *const argv[])
{
    return do_exec(path, argv, environ, false);
}

int execvp(const char *file, char *const argv[])
{
    return do_exec(file, argv, environ, true);
}

int execvpe(const char *file, char *const argv[], char *const envp[])
{
    return do_exec(file, argv, envp, true);
}

/* The list forms: their arguments as an array on the stack, as long as it is. */
#define LIST_TO_ARGV(first, ap)                             \
    size_t n_args = 1;                                      \
    va_list count_args;                                     \
    va_copy(count_args, ap);                                \
    while (va_arg(count_args, char *) != NULL)              \
        n_args++;                                           \
    va_end(count_args);                                     \
    char **argv = alloca((n_args + 1) * sizeof(*argv));     \
    argv[0] = (char *)(uintptr_t)(first);                   \
    for (size_t i = 1; i <= n_args; i++)                    \
        argv[i] = va_arg(ap, char *)

int execl(const char *path, const char *arg, ...)
{
    va_list ap;
    va_start(ap, arg);
    LIST_TO_ARGV(arg, ap);
    va_end(ap);
    return do_exec(path, argv, environ, false);
}

int execlp(const char *file, const char *arg, ...)
{
    va_list ap;
    va_start(ap, arg);
    LIST_TO_ARGV(arg, ap);
    va_end(ap);
    return do_exec(file, argv, environ, true);
}

int execle(const char *path, const char *arg, ...)
{
    va_list ap;
    va_start(ap, arg);
    LIST_TO_ARGV(arg, ap);
    char *const *env = va_arg(ap, char *const *);
    va_end(ap);
    return do_exec(path, argv, env, false);
}

int fexecve(int fd, char *const argv[], char *const envp[])
{
    struct leaving l;
    char *const *env = leave_begin(&l, envp);
    int r = REAL(fexecve)(fd, argv, env);
    leave_failed(&l);
    return r;
}

int execveat(int dirfd, const char *path, char *const argv[], char *const envp[], int flags)
{
    struct leaving l;
    char *const *env = leave_begin(&l, envp);
    int r = REAL(execveat)(dirfd, path, argv, env, flags);
    leave_failed(&l);
    return r;
}

/* The child's descriptors may be moved about by file actions: nothing is handed on by number. */
int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *fa, const posix_spawnattr_t *attr,
                char *const argv[], char *const envp[])
{
    return REAL(posix_spawn)(pid, path, fa, attr, argv, envp);
}

int posix_spawnp(pid_t *pid, const char *file, const posix_spawn_file_actions_t *fa, const posix_spawnattr_t *attr,
                 char *const argv[], char *const envp[])
{
    return REAL(posix_spawnp)(pid, file, fa, attr, argv, envp);
}

/* Not added to the connections that every wait drives: the parent may use it as well, we only if the program does. */
static void take_up(int fd, unsigned long long ino, unsigned long long streamed)
{
    struct stat st;
    struct sockaddr_storage local, peer;
    socklen_t len = sizeof(local), peer_len = sizeof(peer);
    if (fstat(fd, &st) < 0 || !S_ISSOCK(st.st_mode) || st.st_ino != ino ||
        REAL(getsockname)(fd, (struct sockaddr *)&local, &len) < 0 ||
        REAL(getpeername)(fd, (struct sockaddr *)&peer, &peer_len) < 0)
        return;
    const struct policy_rule *rule =
        policy_match(&proc.set.policy, POLICY_ACCEPT, (struct sockaddr *)&local, len);
    struct sock *s = rule ? sock_new(fd, local.ss_family) : NULL;
    if (s == NULL)
        return;
    struct conn *c = conn_new(true, CONN_NEGOTIATING, rule);
    if (c != NULL && conn_begin(c) == 0) {
        c->local = local;
        c->peer = peer;
        c->neg.streamed = streamed;
        atomic_store(&c->plain_tx, streamed);
        if (rule->action == POLICY_OFF)
            negotiate_decline(&c->neg, REASON_POLICY);
        int fl = REAL(fcntl)(fd, F_GETFL);
        atomic_store(&s->nonblock, fl >= 0 && (fl & O_NONBLOCK));
        s->conn = c;
        s->kind = SOCK_CONN;
        atomic_store(&s->active, true);
    } else if (c != NULL) {
        conn_release(c);
    }
    sock_put(s);
}

void exec_inherit(void)
{
    struct {
        int fd;
        unsigned long long ino;
    } seen[64];
    unsigned n = 0;
    const char *text = secure_getenv(INHERIT);
    for (const char *p = text; p != NULL && *p != '\0';) {
        int fd, used = 0;
        unsigned long long ino, streamed;
        if (sscanf(p, "%d:%llu:%llu%n", &fd, &ino, &streamed, &used) != 3 || used == 0)
            break;
        unsigned i = 0;
        while (i < n && seen[i].ino != ino)
            i++;
        struct sock *s = i < n ? sock_get(seen[i].fd) : NULL;
        if (s != NULL) { /* another name of the same one: inetd gives 0, 1 and 2 */
            sock_dup(s, fd);
            sock_put(s);
        } else {
            take_up(fd, ino, streamed);
            if (n < SW_ARRAY_LEN(seen)) {
                seen[n].fd = fd;
                seen[n++].ino = ino;
            }
        }
        p += used;
        p += *p == ',';
    }
    if (text != NULL)
        unsetenv(INHERIT);
}
