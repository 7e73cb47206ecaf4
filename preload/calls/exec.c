/* Exec. The next program learns from its environment which connections it inherits; see inherit.c. */
#include "preload/calls/exec.h"

#include <alloca.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "include/sockwarp.h"
#include "preload/calls/bridge.h"
#include "preload/conn/coalesce.h"
#include "preload/process/proc.h"
#include "preload/process/program.h"
#include "preload/process/real.h"
#include "preload/process/usermem.h"

extern char **environ;

/* ---- its environment ---- */

static bool is_var(const char *entry, const char *name)
{
    size_t n = strlen(name);
    return strncmp(entry, name, n) == 0 && entry[n] == '=';
}

static bool has_var(char *const envp[], const char *entry)
{
    size_t n = strcspn(entry, "=") + 1;
    for (size_t i = 0; envp != NULL && envp[i] != NULL; i++)
        if (strncmp(envp[i], entry, n) == 0)
            return true;
    return false;
}

static const char *preload_of(char *const envp[])
{
    for (size_t i = 0; envp != NULL && envp[i] != NULL; i++)
        if (is_var(envp[i], "LD_PRELOAD") && strstr(envp[i], "libsockwarp") != NULL)
            return envp[i];
    return NULL;
}

/* "LD_PRELOAD=" without us. In place. */
static void preload_strip(char *entry)
{
    char *out = strchr(entry, '=') + 1;
    for (char *p = out; *p != '\0';) {
        size_t sep = strspn(p, ": "), len = strcspn(p + sep, ": ");
        char save = p[sep + len];
        p[sep + len] = '\0';
        bool us = strstr(p + sep, "libsockwarp") != NULL;
        p[sep + len] = save;
        if (!us) {
            memmove(out, p, sep + len);
            out += sep + len;
        }
        p += sep + len;
    }
    *out = '\0';
}

/* ---- a program that is given a socket but not our environment ---- */

static struct {
    char **var; /* LD_PRELOAD, with us in it, and SOCKWARP_*, as they were at the start */
    size_t n;
} ours;

void exec_save_env(void)
{
    program_start();
    size_t n = 0;
    for (char **e = environ; e != NULL && *e != NULL; e++)
        n++;
    const char *preload = preload_of(environ);
    ours.var = preload != NULL ? calloc(n + 1, sizeof(*ours.var)) : NULL;
    for (size_t i = 0; ours.var != NULL && i < n; i++)
        if ((environ[i] == preload || strncmp(environ[i], "SOCKWARP_", 9) == 0) && !is_var(environ[i], INHERIT_VAR) &&
            (ours.var[ours.n] = strdup(environ[i])) != NULL)
            ours.n++;
}

/*
 * Supervisors clean the environment of the servers that they start: inetd's kind, which gives an accepted connection as
 * standard input, and socket activation, which gives listeners. Without the library such a program would read a Hello,
 * or frames, in place of its client's bytes.
 */
static bool needs_ours(char *const envp[])
{
    if (ours.n == 0 || has_var(envp, "LD_PRELOAD="))
        return false;
    if (has_var(envp, "LISTEN_FDS="))
        return true;
    for (int fd = 0; fd <= 2; fd++)
        if (inherit_is_ours(fd))
            return true;
    return false;
}

/* An exec under way: begin, the real call, and, since it came back, failed. */
struct leaving {
    struct inherit in;
    struct names names;
    char **env;
    char *preload;
    bool ours;
    bool stopped; /* gathering */
};

/*
 * A vfork child's memory is its parent's: memory that the child takes is still there after its exec. The parent's
 * thread gives it back at its own next exec or spawn.
 */
static __thread struct leaving borrowed;

static void give_back(struct leaving *l)
{
    free(l->env);
    free(l->preload);
    l->env = NULL;
    l->preload = NULL;
}

/*
 * LD_PRELOAD loses our entry for a program that could not even start with this library, since its C library is musl;
 * and where the library is not found, as in a jail: the dynamic linker would write about it to standard error, which
 * may be the program's connection.
 */
static bool must_strip(const char *preload, enum loads loads)
{
    return preload != NULL && (loads == LOADS_MUSL || (loads == LOADS_US && !program_finds(preload)));
}

/* The environment for the next program: envp with SOCKWARP_INHERIT put in or taken out. */
static char *const *next_env(struct leaving *l, char *const envp[], const char *preload, enum loads loads, bool give)
{
    size_t n = 0, old = 0;
    for (; envp != NULL && envp[n] != NULL; n++)
        old += is_var(envp[n], INHERIT_VAR);
    bool strip = must_strip(preload, loads);
    if (l->in.n == 0 && old == 0 && !strip && !give)
        return envp;
    l->env = malloc((n + 2 + (give ? ours.n : 0)) * sizeof(*l->env));
    l->preload = strip ? strdup(preload) : NULL;
    if (l->env == NULL || (strip && l->preload == NULL)) {
        give_back(l);
        return envp;
    }
    size_t at = 0;
    for (size_t i = 0; i < n; i++)
        if (envp[i] == preload && strip)
            l->env[at++] = l->preload;
        else if (!is_var(envp[i], INHERIT_VAR))
            l->env[at++] = envp[i];
    if (strip)
        preload_strip(l->preload);
    for (size_t i = 0; give && i < ours.n; i++)
        if (!has_var(envp, ours.var[i]))
            l->env[at++] = ours.var[i];
    if (l->in.n > 0)
        l->env[at++] = l->in.text;
    l->env[at] = NULL;
    return l->env;
}

static bool has_rules(char *const envp[])
{
    for (size_t i = 0; envp != NULL && envp[i] != NULL; i++)
        if (is_var(envp[i], SOCKWARP_ENV_POLICY))
            return envp[i][sizeof(SOCKWARP_ENV_POLICY)] != '\0';
    return false;
}

/* Will the program load us, and have rules? Without rules it would leave all connections alone. */
static bool will_load(char *const envp[], const char *preload, bool give)
{
    for (size_t i = 0; give && i < ours.n; i++)
        if (is_var(ours.var[i], "LD_PRELOAD"))
            return program_finds(ours.var[i]);
    return preload != NULL && has_rules(envp) && program_finds(preload);
}

/* errno stays: where the program is executed by a vfork child, its parent has the same one, and goes on. */
static char *const *leave_begin(struct leaving *l, int dirfd, const char *path, char *const envp[], bool spawn,
                                const posix_spawn_file_actions_t *fa)
{
    int err = errno;
    memset(l, 0, sizeof(*l));
    l->ours = proc_on();
    if (!l->ours)
        return envp;
    bool vforked = proc_is_borrowed();
    if (borrowed.ours) {
        inherit_forget(&borrowed.in);
        give_back(&borrowed);
        borrowed.ours = false;
    }
    const char *preload = preload_of(envp);
    enum loads loads = program_loads(dirfd, path);
    l->in.spawn = spawn || vforked;
    l->in.fa = fa;
    l->stopped = !vforked;
    if (!l->in.spawn)
        bridge_settle(false);
    if (l->stopped)
        coalesce_stop();
    bool give = preload == NULL && loads == LOADS_US && needs_ours(envp);
    bool can = loads == LOADS_US && will_load(envp, preload, give);
    names_leave(&l->names, can, fa);
    inherit_begin(&l->in, can);
    char *const *env = next_env(l, envp, preload, loads, give);
    if (vforked)
        borrowed = *l;
    errno = err;
    return env;
}

static void leave_failed(struct leaving *l)
{
    int err = errno;
    if (l->ours) {
        inherit_failed(&l->in);
        names_stayed(&l->names);
        if (l->stopped)
            coalesce_go_on();
        if (!l->in.spawn)
            bridge_go_on();
        give_back(l);
        borrowed.ours = false;
    }
    errno = err;
}

/* (The kernel says what there is to say of others.) */
static bool strings_readable(char *const v[])
{
    for (size_t i = 0; v != NULL; i++) {
        if (!usermem_readable(&v[i], sizeof(v[i])))
            return false;
        if (v[i] == NULL)
            break;
        if (!usermem_readable(v[i], 1))
            return false;
    }
    return true;
}

static int do_exec(const char *path, char *const argv[], char *const envp[], bool search)
{
    struct leaving l;
    char found[4096];
    if (!search && !strings_readable(envp))
        return REAL(execve)(path, argv, envp);
    char *const *env =
        leave_begin(&l, AT_FDCWD, search ? program_search(path, found, sizeof(found)) : path, envp, false, NULL);
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
#define LIST_TO_ARGV(first, ap)                         \
    size_t n_args = 1;                                  \
    va_list count_args;                                 \
    va_copy(count_args, ap);                            \
    while (va_arg(count_args, char *) != NULL)          \
        n_args++;                                       \
    va_end(count_args);                                 \
    char **argv = alloca((n_args + 1) * sizeof(*argv)); \
    argv[0] = (char *)(uintptr_t)(first);               \
    for (size_t i = 1; i <= n_args; i++)                \
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
    char path[32];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    char *const *env = leave_begin(&l, AT_FDCWD, path, envp, false, NULL);
    int r = REAL(fexecve)(fd, argv, env);
    leave_failed(&l);
    return r;
}

int execveat(int dirfd, const char *path, char *const argv[], char *const envp[], int flags)
{
    struct leaving l;
    char self[32];
    const char *file = path;
    if (path[0] == '\0' && (flags & AT_EMPTY_PATH)) {
        snprintf(self, sizeof(self), "/proc/self/fd/%d", dirfd);
        file = self;
    }
    char *const *env = leave_begin(&l, dirfd, file, envp, false, NULL);
    int r = REAL(execveat)(dirfd, path, argv, env, flags);
    leave_failed(&l);
    return r;
}

static int do_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *fa, const posix_spawnattr_t *attr,
                    char *const argv[], char *const envp[], bool search)
{
    struct leaving l;
    char found[4096];
    pid_t child = 0;
    proc_lend(); /* (the child has sockets of ours) */
    char *const *env =
        leave_begin(&l, AT_FDCWD, search ? program_search(path, found, sizeof(found)) : path, envp, true, fa);
    struct spawn_own own = { .use = fa, .dead = -1 };
    int r = l.ours ? spawn_own_begin(&own, fa, &l.in) : 0;
    if (r == 0) {
        r = search ? REAL(posix_spawnp)(&child, path, own.use, attr, argv, env)
                   : REAL(posix_spawn)(&child, path, own.use, attr, argv, env);
        spawn_own_end(&own);
    }
    int err = errno;
    if (l.ours) {
        inherit_spawned(&l.in, r == 0 ? child : 0);
        names_stayed(&l.names);
        if (l.stopped)
            coalesce_go_on();
        give_back(&l);
    }
    if (r == 0 && pid != NULL)
        *pid = child;
    errno = err;
    return r;
}

int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *fa, const posix_spawnattr_t *attr,
                char *const argv[], char *const envp[])
{
    return do_spawn(pid, path, fa, attr, argv, envp, false);
}

int posix_spawnp(pid_t *pid, const char *file, const posix_spawn_file_actions_t *fa, const posix_spawnattr_t *attr,
                 char *const argv[], char *const envp[])
{
    return do_spawn(pid, file, fa, attr, argv, envp, true);
}
