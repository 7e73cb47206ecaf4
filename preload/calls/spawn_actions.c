/*
 * posix_spawn's file actions, as far as they say what a child will have.
 *
 * glibc has no call that tells them. They are an array of struct __spawn_action (posix/spawn_int.h), of which only the
 * first members of three kinds matter here. Whether it is so is tried once.
 */
#include <errno.h>
#include <pthread.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

#include "preload/calls/exec.h"
#include "preload/process/real.h"

struct spawn_action {
    int kind;
    union {
        struct {
            int fd, to;
        } dup2;
        struct {
            int fd;
        } close;
        struct {
            int fd;
            char *path;
            int flags;
            mode_t mode;
        } open;
    };
};

static struct {
    bool known; /* the layout is as above */
    int dup2, close, open;
} kind;
static pthread_once_t tried = PTHREAD_ONCE_INIT;

static void try_layout(void)
{
    posix_spawn_file_actions_t fa;
    if (posix_spawn_file_actions_init(&fa) != 0)
        return;
    if (posix_spawn_file_actions_adddup2(&fa, 71, 72) == 0 && posix_spawn_file_actions_addclose(&fa, 73) == 0 &&
        posix_spawn_file_actions_addopen(&fa, 74, "/", 0, 0) == 0 &&
        posix_spawn_file_actions_adddup2(&fa, 75, 76) == 0 && fa.__used == 4 && fa.__allocated >= 4) {
        const struct spawn_action *a = (const struct spawn_action *)fa.__actions;
        kind.dup2 = a[0].kind;
        kind.close = a[1].kind;
        kind.open = a[2].kind;
        kind.known = a[0].dup2.fd == 71 && a[0].dup2.to == 72 && a[1].close.fd == 73 && a[2].open.fd == 74 &&
                     a[3].kind == kind.dup2 && a[3].dup2.fd == 75 && a[3].dup2.to == 76 && kind.dup2 != kind.close &&
                     kind.dup2 != kind.open && kind.close != kind.open;
    }
    posix_spawn_file_actions_destroy(&fa);
}

/* The actions and their number; *n 0: there are none, or they cannot be read. */
static const struct spawn_action *actions_of(const posix_spawn_file_actions_t *fa, size_t *n)
{
    *n = 0;
    if (fa == NULL || fa->__used <= 0)
        return NULL;
    pthread_once(&tried, try_layout);
    if (kind.known)
        *n = (size_t)fa->__used;
    return (const struct spawn_action *)fa->__actions;
}

bool spawn_gives(const posix_spawn_file_actions_t *fa, int fd)
{
    size_t n;
    const struct spawn_action *a = actions_of(fa, &n);
    for (size_t i = 0; i < n; i++)
        if (a[i].kind == kind.dup2 && a[i].dup2.fd == fd)
            return true;
    return a != NULL && !kind.known;
}

/* ---- a child that must not read what it is given ---- */

/* What the child has under a number after the actions that were looked at. */
struct has {
    int fd;
    bool unread;
};

struct child {
    struct has *has;
    size_t n;
    const struct inherit *in;
};

static bool has_unread(const struct child *c, int fd)
{
    for (size_t i = c->n; i > 0; i--)
        if (c->has[i - 1].fd == fd)
            return c->has[i - 1].unread;
    return inherit_is_unread(c->in, fd);
}

static void now_has(struct child *c, int fd, bool unread)
{
    for (size_t i = 0; i < c->n; i++)
        if (c->has[i].fd == fd) {
            c->has[i].unread = unread;
            return;
        }
    c->has[c->n++] = (struct has){ fd, unread };
}

/* Returns how many unread ones it has at the end. */
static size_t follow(struct child *c, const struct spawn_action *a, size_t n)
{
    size_t unread = 0;
    for (size_t i = 0; i < n; i++) {
        if (a[i].kind == kind.dup2)
            now_has(c, a[i].dup2.to, has_unread(c, a[i].dup2.fd));
        else if (a[i].kind == kind.close || a[i].kind == kind.open)
            now_has(c, a[i].close.fd, false);
    }
    for (size_t i = 0; i < c->n; i++)
        unread += c->has[i].unread;
    return unread;
}

/* The program's actions, and then one for each unread one: a socket whose other end is closed, or nothing. */
static struct spawn_action *with_ends(const struct child *c, const struct spawn_action *a, size_t n, size_t more,
                                      int dead)
{
    struct spawn_action *all = calloc(n + more, sizeof(*all));
    if (all == NULL)
        return NULL;
    memcpy(all, a, n * sizeof(*all));
    for (size_t i = 0; i < c->n; i++) {
        if (!c->has[i].unread)
            continue;
        all[n].kind = dead >= 0 ? kind.dup2 : kind.close;
        if (dead >= 0) {
            all[n].dup2.fd = dead;
            all[n].dup2.to = c->has[i].fd;
        } else {
            all[n].close.fd = c->has[i].fd;
        }
        n++;
    }
    return all;
}

int spawn_own_begin(struct spawn_own *own, const posix_spawn_file_actions_t *fa, const struct inherit *in)
{
    size_t n;
    const struct spawn_action *a = actions_of(fa, &n);
    *own = (struct spawn_own){ .use = fa, .dead = -1 };
    if (n == 0)
        return 0;
    struct child c = { .has = calloc(n, sizeof(*c.has)), .in = in };
    if (c.has == NULL)
        return ENOMEM;
    size_t more = follow(&c, a, n);
    if (more > 0) {
        own->dead = inherit_dead_end();
        own->actions = with_ends(&c, a, n, more, own->dead);
        own->fa = *fa;
        own->fa.__actions = (struct __spawn_action *)own->actions;
        own->fa.__used = own->fa.__allocated = (int)(n + more);
        own->use = &own->fa;
    }
    free(c.has);
    if (more == 0 || own->actions != NULL)
        return 0;
    spawn_own_end(own);
    return ENOMEM;
}

void spawn_own_end(struct spawn_own *own)
{
    if (own->dead >= 0)
        REAL(close)(own->dead);
    free(own->actions);
}
