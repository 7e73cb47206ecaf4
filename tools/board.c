/* Finding and checking the files; see board.h. */
#include "tools/board.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/diag.h"
#include "tools/usage.h"

/* Makes sure that a text ends within its array and holds nothing that controls a terminal. */
static void take_text(char *to, const char *from, size_t cap)
{
    size_t i;

    for (i = 0; i + 1 < cap && from[i] != '\0'; i++)
        to[i] = from[i] >= ' ' && from[i] <= '~' ? from[i] : '?'; /* (UTF-8 too: a piece of it may be cut) */
    to[i] = '\0';
}

static void take_addr(char *to, size_t cap, const struct board_addr *a)
{
    char host[INET6_ADDRSTRLEN];

    to[0] = '\0';
    if (a->family == 4 && inet_ntop(AF_INET, a->ip, host, sizeof(host)))
        snprintf(to, cap, "%s:%u", host, a->port);
    else if (a->family == 6 && inet_ntop(AF_INET6, a->ip, host, sizeof(host)))
        snprintf(to, cap, "[%s]:%u", host, a->port);
}

/* false: the slot is free. */
static bool take_conn(struct board_conn *c, const struct board_slot *s, uint64_t now)
{
    c->state = s->state;
    if (c->state == BOARD_FREE || c->state > BOARD_DEAD)
        return false;
    c->accepted = s->role == BOARD_ROLE_ACCEPT;
    c->crc = s->crc != 0;
    c->reason = s->reason;
    take_text(c->transport, s->transport, sizeof(c->transport));
    take_text(c->rtr, s->rtr, sizeof(c->rtr));
    take_text(c->device, s->device, sizeof(c->device));
    take_addr(c->local, sizeof(c->local), &s->local);
    take_addr(c->peer, sizeof(c->peer), &s->peer);
    c->port = c->accepted ? s->local.port : s->peer.port;
    c->age_ns = s->born_ns > 0 && s->born_ns < now ? now - s->born_ns : 0;
    c->tx_bytes = s->tx_bytes;
    c->rx_bytes = s->rx_bytes;
    c->tx_fpdus = s->tx_fpdus;
    c->rx_fpdus = s->rx_fpdus;
    c->sends = s->sends;
    c->writes = s->writes;
    c->coalesced = s->coalesced;
    c->errors = s->errors;
    c->direct = s->direct;
    return true;
}

/* Does the process still have the file? If that cannot be seen: does the process live? */
static bool is_alive(pid_t pid, ino_t inode)
{
    char path[64], *line = NULL;
    size_t cap = 0;
    bool found = false;
    FILE *f;

    snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
    f = fopen(path, "re");
    if (!f)
        return errno != ENOENT && errno != ESRCH;
    while (!found && getline(&line, &cap, f) >= 0) {
        unsigned long long ino;

        found =
            sscanf(line, "%*s %*s %*s %*s %llu", &ino) == 1 && ino == inode && strstr(line, BOARD_TOP "/" BOARD_PREFIX);
    }
    free(line);
    fclose(f);
    return found;
}

/* Are its connections of this network namespace? */
static bool is_here(pid_t pid)
{
    struct stat its, own;
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/ns/net", (int)pid);
    return stat(path, &its) == 0 && stat("/proc/self/ns/net", &own) == 0 && its.st_ino == own.st_ino;
}

static int take_slots(int fd, struct board_process *p, uint32_t slots)
{
    bool here = !p->killed && is_here(p->pid);
    struct board_slot *all = calloc(slots, sizeof(*all));
    uint64_t now = now_ns();
    ssize_t n;

    p->conns = calloc(slots, sizeof(*p->conns));
    if (!all || !p->conns) {
        free(all);
        free(p->conns);
        return -ENOMEM;
    }
    n = pread(fd, all, slots * sizeof(*all), sizeof(struct board_head));
    for (size_t i = 0; n > 0 && i < (size_t)n / sizeof(*all); i++) {
        struct board_conn *c = &p->conns[p->count];

        if (!take_conn(c, &all[i], now))
            continue;
        c->in_kernel = here && diag_retrans(&all[i].local, &all[i].peer, &c->retrans);
        p->count++;
    }
    free(all);
    return 0;
}

static bool is_wanted(const struct board_process *p, const char *only)
{
    char *end;
    long pid;

    if (!only)
        return true;
    pid = strtol(only, &end, 10);
    return only[0] != '\0' && *end == '\0' ? p->pid == pid : strcmp(p->program, only) == 0;
}

/* Is it a file that a process of this user has made? */
static bool is_board(int fd, uid_t uid, struct stat *st, struct board_head *h)
{
    return fstat(fd, st) == 0 && S_ISREG(st->st_mode) && st->st_uid == uid &&
           pread(fd, h, sizeof(*h), 0) == (ssize_t)sizeof(*h) && h->magic == BOARD_MAGIC &&
           h->slot_len == sizeof(struct board_slot) && h->slots <= BOARD_SLOTS_MAX;
}

static struct board_past past(const struct board_sum *s)
{
    return (struct board_past){ s->count, s->tx_bytes, s->rx_bytes };
}

static void take_head(struct board_process *p, const struct board_head *h)
{
    take_text(p->program, h->program, sizeof(p->program));
    for (unsigned i = 0; i < BOARD_REASONS; i++)
        p->ended[i] = past(&h->ended[i]);
    for (unsigned i = 0; i < BOARD_PORTS; i++) {
        p->port_of[i] = (h->ports[i].used - 1) & 0xffff;
        p->ports[i] = past(&h->ports[i].ended);
    }
    p->ports[BOARD_PORTS] = past(&h->other_ports);
    p->unseen = h->unseen;
}

/* 1: taken; 0: it is not a board, or not wanted; -ENOMEM. */
static int take_file(int folder, const char *name, uid_t uid, const char *only, struct board_process *p)
{
    int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC), rc = 0;
    struct board_head h;
    struct stat st;
    char *end;

    memset(p, 0, sizeof(*p));
    p->uid = uid;
    p->pid = (pid_t)strtol(name, &end, 10);
    if (fd < 0)
        return 0;
    if (*end == '\0' && p->pid > 0 && is_board(fd, uid, &st, &h)) {
        take_head(p, &h);
        if (is_wanted(p, only)) {
            p->killed = !is_alive(p->pid, st.st_ino);
            rc = take_slots(fd, p, h.slots) < 0 ? -ENOMEM : 1;
        }
    }
    close(fd);
    return rc;
}

static int take_folder(struct boards *b, int folder, uid_t uid, const char *only, bool forget)
{
    DIR *dir = fdopendir(folder);
    int rc = 0;

    for (struct dirent *e; dir && rc >= 0 && (e = readdir(dir)) != NULL;) {
        struct board_process p, *more;

        rc = take_file(folder, e->d_name, uid, only, &p);
        if (rc <= 0)
            continue;
        more = realloc(b->list, (b->count + 1) * sizeof(*more));
        if (!more) {
            free(p.conns);
            rc = -ENOMEM;
            continue;
        }
        b->list = more;
        b->list[b->count++] = p;
        if (forget && p.killed)
            (void)unlinkat(folder, e->d_name, 0);
    }
    if (dir)
        closedir(dir);
    else
        close(folder);
    return rc < 0 ? rc : 0;
}

static int by_pid(const void *a, const void *b)
{
    const struct board_process *p = a, *q = b;

    return p->pid < q->pid ? -1 : p->pid > q->pid;
}

int boards_read(struct boards *b, const char *only, bool forget)
{
    DIR *top = opendir(BOARD_TOP);
    int rc = 0;

    *b = (struct boards){ 0 };
    for (struct dirent *e; top && rc == 0 && (e = readdir(top)) != NULL;) {
        char *end;
        unsigned long uid;
        struct stat st;
        int folder;

        if (strncmp(e->d_name, BOARD_PREFIX, strlen(BOARD_PREFIX)) != 0)
            continue;
        uid = strtoul(e->d_name + strlen(BOARD_PREFIX), &end, 10);
        if (*end != '\0' || (geteuid() != 0 && uid != geteuid()))
            continue;
        folder = openat(dirfd(top), e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (folder < 0)
            continue;
        if (fstat(folder, &st) < 0 || st.st_uid != uid || (st.st_mode & 077))
            close(folder); /* another user made it */
        else
            rc = take_folder(b, folder, (uid_t)uid, only, forget);
    }
    if (top)
        closedir(top);
    if (b->count > 0)
        qsort(b->list, b->count, sizeof(*b->list), by_pid);
    if (rc < 0)
        boards_free(b);
    return rc;
}

void boards_free(struct boards *b)
{
    for (size_t i = 0; i < b->count; i++)
        free(b->list[i].conns);
    free(b->list);
    *b = (struct boards){ 0 };
}
