/*
 * system and popen: libc starts their child by its own posix_spawn, which tells the child nothing
 * of the upgraded connections that it inherits, nor has a listener's name end where that goes to a program without
 * us. They are made again of ours while there are any, and else are libc's.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "preload/calls/stdio.h"
#include "preload/conn/conn.h"
#include "preload/process/proc.h"
#include "preload/process/real.h"
#include "preload/process/signals.h"
#include "preload/sock/sock.h"
#include "preload/startup/local.h"

extern char **environ;

static void is_handed_on(int fd, struct sock *s, void *arg)
{
    bool *any = arg;
    bool is = s->kind == SOCK_LISTENER ? local_names() > 0 : s->conn != NULL && atomic_load(&s->active);
    if (!*any && is)
        *any = !(REAL(fcntl)(fd, F_GETFD) & FD_CLOEXEC);
}

static bool hands_on(void)
{
    bool any = false;
    if (proc_on() && !proc_is_borrowed() && sock_fd_limit() > 0)
        sock_each(is_handed_on, &any);
    return any;
}

/* ---- system ---- */

/* SIGINT and SIGQUIT are ignored while any thread is in system(): POSIX. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* protects users, old_int, old_quit */
static unsigned users;
static struct sigaction old_int, old_quit;

struct running {
    pid_t pid;
    sigset_t mask;
};

static void ignore_begin(struct running *r, sigset_t *reset)
{
    struct sigaction ignore = { .sa_handler = SIG_IGN };
    sigset_t block;
    sigemptyset(reset);
    sigemptyset(&block);
    sigaddset(&block, SIGCHLD);
    lock_take(&lock);
    if (users++ == 0) {
        sigaction(SIGINT, &ignore, &old_int);
        sigaction(SIGQUIT, &ignore, &old_quit);
    }
    if (old_int.sa_handler != SIG_IGN)
        sigaddset(reset, SIGINT);
    if (old_quit.sa_handler != SIG_IGN)
        sigaddset(reset, SIGQUIT);
    lock_give(&lock);
    pthread_sigmask(SIG_BLOCK, &block, &r->mask);
}

static void ignore_end(const struct running *r)
{
    lock_take(&lock);
    if (--users == 0) {
        sigaction(SIGINT, &old_int, NULL);
        sigaction(SIGQUIT, &old_quit, NULL);
    }
    lock_give(&lock);
    pthread_sigmask(SIG_SETMASK, &r->mask, NULL);
}

static int spawn_shell(pid_t *pid, const char *command, const posix_spawn_file_actions_t *fa,
                       const posix_spawnattr_t *attr)
{
    char *argv[] = { (char *)(uintptr_t) "sh", (char *)(uintptr_t) "-c", (char *)(uintptr_t)command, NULL };
    return posix_spawn(pid, "/bin/sh", fa, attr, argv, environ);
}

/* The thread is cancelled while it waits. */
static void give_up(void *arg)
{
    struct running *r = arg;
    kill(r->pid, SIGKILL);
    while (waitpid(r->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    ignore_end(r);
}

/* The shell's status as from wait(2); -1 with errno. */
static int shell_status(struct running *r)
{
    int status = -1;
    pid_t got;
    pthread_cleanup_push(give_up, r);
    do
        got = waitpid(r->pid, &status, 0);
    while (got < 0 && errno == EINTR);
    pthread_cleanup_pop(0);
    return got == r->pid ? status : -1;
}

int system(const char *command)
{
    if (command == NULL || !hands_on())
        return REAL(system)(command);
    struct running r;
    sigset_t reset;
    posix_spawnattr_t attr;
    int status = 127 << 8;
    ignore_begin(&r, &reset);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setsigmask(&attr, &r.mask);
    posix_spawnattr_setsigdefault(&attr, &reset);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
    int err = spawn_shell(&r.pid, command, NULL, &attr);
    posix_spawnattr_destroy(&attr);
    if (err == 0)
        status = shell_status(&r);
    int wait_err = errno;
    ignore_end(&r);
    errno = err != 0 ? err : wait_err;
    return status;
}

/* ---- popen ---- */

FILE *popen(const char *command, const char *mode)
{
    bool reads = strchr(mode, 'r') != NULL, writes = strchr(mode, 'w') != NULL;
    bool cloexec = strchr(mode, 'e') != NULL;
    if (reads == writes || strspn(mode, "rwe") != strlen(mode) || !hands_on())
        return REAL(popen)(command, mode);
    int p[2];
    if (pipe2(p, O_CLOEXEC) < 0)
        return NULL;
    int ours = reads ? p[0] : p[1], its = reads ? p[1] : p[0];
    pid_t pid = 0;
    posix_spawn_file_actions_t fa;
    posix_spawn_file_actions_init(&fa);
    int err = stdio_close_pipes(&fa);
    if (err == 0)
        err = posix_spawn_file_actions_adddup2(&fa, its, reads ? 1 : 0);
    FILE *file = err == 0 ? stdio_pipe(ours, reads ? "r" : "w") : NULL;
    if (err == 0 && file == NULL)
        err = ENOMEM;
    if (err == 0)
        err = spawn_shell(&pid, command, &fa, NULL);
    posix_spawn_file_actions_destroy(&fa);
    REAL(close)(its);
    if (err == 0) {
        stdio_pipe_to(file, pid);
        if (!cloexec)
            REAL(fcntl)(ours, F_SETFD, 0);
        return file;
    }
    if (file != NULL)
        fclose(file);
    else
        REAL(close)(ours);
    errno = err;
    return NULL;
}
