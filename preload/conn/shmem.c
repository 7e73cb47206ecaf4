/*
 * The arena: the memory that a family of processes shares.
 *
 * Its file is a head of one page, then the pieces that were mapped, each at an offset of its own that is never used
 * again. A piece at offset `off` is mapped at base + off. Processes that share the file take offsets from the same
 * counter, so a piece made by one process never lies where another process has one.
 */
#include "preload/conn/shmem.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/rawsys.h"
#include "core/base/trace.h"
#include "preload/conn/conn.h"
#include "preload/process/hidden.h"
#include "preload/process/proc.h"
#include "preload/process/real.h"
#include "preload/process/signals.h"

#define ARENA_LEN (1ull << 43)
/* Between the addresses where programs and where libraries are loaded; each arena has its own range. */
#define ARENA_LOW 0x200000000000ull
#define ARENA_RANGES 5u
#define HEAD_LEN 65536u /* a multiple of any page size */
#define ARENAS_MAX 8u   /* our own, and those of programs that executed this one */

struct head {
    char magic[16];
    uint64_t conn_len; /* another layout of struct conn, or other code, means another library */
    uint64_t ops_off;
    uint64_t base;
    _Atomic uint64_t next;
};

static const char magic[16] = "sockwarp " SW_VERSION;

static struct arena {
    _Atomic int fd;
    ino_t ino;
    struct head *head;
} arenas[ARENAS_MAX]; /* the first is where new pieces are made */
static unsigned arenas_n;
static bool own;        /* may this process take pieces from arenas[0]? */
static bool impossible; /* no use trying */
static bool shared;     /* a fork has copied the mappings, or another program has made it */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* protects what is above; innermost but for sock.c's */

static uint64_t ops_off(void)
{
    struct endpoint ep;
    endpoint_init(&ep, &iwarp_endpoint_ops);
    return (uint64_t)ep.ops_off;
}

static size_t whole_pages(size_t len)
{
    return (len + HEAD_LEN - 1) & ~(size_t)(HEAD_LEN - 1);
}

static bool still_there(const struct arena *a)
{
    struct stat st;
    return fstat(a->fd, &st) == 0 && st.st_ino == a->ino;
}

static uint64_t free_range(void)
{
    for (unsigned i = 0; i < 16; i++) {
        uint64_t base = ARENA_LOW + proc_random32(NULL) % ARENA_RANGES * ARENA_LEN;
        bool used = false;
        for (unsigned j = 0; j < arenas_n; j++)
            used = used || arenas[j].head->base == base;
        if (!used)
            return base;
    }
    return 0;
}

static int file_make(void)
{
    struct rlimit lim;
    if (getrlimit(RLIMIT_FSIZE, &lim) == 0 && lim.rlim_cur != RLIM_INFINITY)
        return -1; /* a file larger than the limit is answered by SIGXFSZ */
    int fd = memfd_create("sockwarp", MFD_CLOEXEC | MFD_ALLOW_SEALING | 8u /* MFD_NOEXEC_SEAL, Linux 6.3 */);
    if (fd < 0)
        fd = memfd_create("sockwarp", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return -1;
    fd = hidden_move(fd);
    /* No process can make it shorter, which would be a SIGBUS for the others. */
    if (ftruncate(fd, (off_t)ARENA_LEN) == 0 &&
        REAL(fcntl)(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
        return fd;
    hidden_close(fd);
    return -1;
}

/* The lock is held. */
static void put(unsigned at, int fd, ino_t ino, struct head *head)
{
    struct arena *a = &arenas[at];
    atomic_store(&a->fd, fd);
    a->ino = ino;
    a->head = head;
    hidden_own(fd, &a->fd);
}

/* A file for the range at base, of which nothing from offset `next` on is used. False: none can be had. */
static bool arena_make(struct arena *a, uint64_t base, uint64_t next)
{
    int fd = file_make();
    if (fd < 0)
        return false;
    struct stat st;
    struct head *h = mmap(NULL, HEAD_LEN, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (h == MAP_FAILED || fstat(fd, &st) < 0) {
        if (h != MAP_FAILED)
            munmap(h, HEAD_LEN);
        hidden_close(fd);
        return false;
    }
    memcpy(h->magic, magic, sizeof(magic));
    h->conn_len = sizeof(struct conn);
    h->ops_off = ops_off();
    h->base = base;
    atomic_store(&h->next, next);
    atomic_store(&a->fd, fd);
    a->ino = st.st_ino;
    a->head = h;
    return true;
}

/* Makes this process's own arena. The caller holds the lock. */
static bool shmem_make(void)
{
    if (impossible || arenas_n == ARENAS_MAX)
        return false;
    impossible = true;
    uint64_t base = free_range();
    struct arena a;
    if (base == 0 || !arena_make(&a, base, HEAD_LEN))
        return false;
    if (arenas_n > 0)
        put(arenas_n, arenas[0].fd, arenas[0].ino, arenas[0].head);
    arenas_n++;
    put(0, a.fd, a.ino, a.head);
    own = true;
    impossible = false;
    return true;
}

void *shmem_map(size_t len)
{
    len = whole_pages(len);
    void *p = MAP_FAILED;
    lock_take(&lock);
    if (own && !still_there(&arenas[0]))
        own = false; /* the program closed the descriptor: what is mapped stays */
    if (own || shmem_make()) {
        uint64_t off = atomic_fetch_add(&arenas[0].head->next, len);
        if (off + len <= ARENA_LEN) {
            void *at = (void *)(uintptr_t)(arenas[0].head->base + off);
            p = mmap(at, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE, arenas[0].fd, (off_t)off);
            if (p != MAP_FAILED && p != at) { /* a kernel that does not know the flag */
                munmap(p, len);
                p = MAP_FAILED;
            }
        }
    }
    lock_give(&lock);
    if (p == MAP_FAILED)
        p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

void shmem_unmap(void *p, size_t len, bool all)
{
    len = whole_pages(len);
    if (all)
        madvise(p, len, MADV_REMOVE);
    munmap(p, len);
}

/* The lock is held. */
static struct arena *shmem_of(const void *p)
{
    for (unsigned i = 0; i < arenas_n; i++)
        if ((uintptr_t)p - arenas[i].head->base < ARENA_LEN)
            return &arenas[i];
    return NULL;
}

void shmem_discard(void *p, size_t len)
{
    lock_take(&lock);
    const struct arena *a = shmem_of(p);
    if (a != NULL && still_there(a) &&
        fallocate(a->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)((uintptr_t)p - a->head->base),
                  (off_t)whole_pages(len)) < 0)
        trace_debug("arena: what a killed process held stays: errno %d", errno);
    lock_give(&lock);
}

bool shmem_is_own(const void *p)
{
    lock_take(&lock);
    bool yes = own && shmem_of(p) == &arenas[0];
    lock_give(&lock);
    return yes;
}

int shmem_fd(const void *p)
{
    lock_take(&lock);
    const struct arena *a = shmem_of(p);
    int fd = a != NULL && still_there(a) ? a->fd : -1;
    lock_give(&lock);
    return fd;
}

/* Finds the arena of a descriptor that another program handed over. The caller holds the lock. */
static struct arena *shmem_given(int fd)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return NULL;
    for (unsigned i = 0; i < arenas_n; i++)
        if (arenas[i].ino == st.st_ino && still_there(&arenas[i]))
            return &arenas[i];
    if (arenas_n == ARENAS_MAX || st.st_size != (off_t)ARENA_LEN)
        return NULL;
    struct head *h = mmap(NULL, HEAD_LEN, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (h == MAP_FAILED)
        return NULL;
    int high =
        memcmp(h->magic, magic, sizeof(magic)) == 0 && h->conn_len == sizeof(struct conn) && h->ops_off == ops_off()
            ? REAL(fcntl)(fd, F_DUPFD_CLOEXEC, 3)
            : -1;
    if (high < 0) {
        munmap(h, HEAD_LEN);
        return NULL;
    }
    shared = true;
    /* Never the first: another process takes pieces from it; so could this one, but the range is its makers'. */
    put(arenas_n, hidden_move(high), st.st_ino, h);
    return &arenas[arenas_n++];
}

void shmem_learn(int fd)
{
    lock_take(&lock);
    if (shmem_given(fd) == NULL)
        trace_error("fd %d: not an arena of a library like this one", fd);
    lock_give(&lock);
}

int shmem_attach(int fd, void *p, size_t len)
{
    len = whole_pages(len);
    int r = -EINVAL;
    lock_take(&lock);
    const struct arena *a = shmem_given(fd);
    if (a != NULL && (uintptr_t)p - a->head->base < ARENA_LEN - len) {
        void *at = mmap(p, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE, a->fd,
                        (off_t)((uintptr_t)p - a->head->base));
        r = at == p ? 0 : at == MAP_FAILED ? -errno : -EEXIST;
        if (at != MAP_FAILED && at != p)
            munmap(at, len);
    }
    lock_give(&lock);
    return r;
}

/* ---- parting ---- */

/* What takes the place of a piece. */
struct anew {
    void *p, *at;
    size_t len;
};

/* (Not malloc's: a thread that stands still may be in malloc.) */
#define CHUNK_LEN 65536u
struct chunk {
    struct chunk *next;
    unsigned n;
    struct anew anew[];
};
#define CHUNK_N ((CHUNK_LEN - sizeof(struct chunk)) / sizeof(struct anew))

static struct {
    struct arena arenas[ARENAS_MAX]; /* at the addresses of those that they replace */
    unsigned n;
    struct chunk *chunks;
} part;

bool shmem_is_shared(void)
{
    return shared;
}

static void anew_free(void)
{
    for (struct chunk *k = part.chunks, *next; k != NULL; k = next) {
        next = k->next;
        munmap(k, CHUNK_LEN);
    }
    part.chunks = NULL;
    part.n = 0;
}

static void anew_each(void (*fn)(const struct anew *a))
{
    for (const struct chunk *k = part.chunks; k != NULL; k = k->next)
        for (unsigned i = 0; i < k->n; i++)
            fn(&k->anew[i]);
}

static struct anew *anew_take(void)
{
    struct chunk *k = part.chunks;
    if (k == NULL || k->n == CHUNK_N) {
        k = mmap(NULL, CHUNK_LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (k == MAP_FAILED)
            return NULL;
        k->next = part.chunks;
        part.chunks = k;
    }
    return &k->anew[k->n];
}

static void anew_undo(const struct anew *a)
{
    munmap(a->at, a->len);
}

static void anew_put(const struct anew *a)
{
    if (mremap(a->at, a->len, a->len, MREMAP_MAYMOVE | MREMAP_FIXED, a->p) == MAP_FAILED)
        abort(); /* what it held is gone, and was its own */
}

void shmem_part_undo(void)
{
    for (unsigned i = 0; i < part.n; i++) {
        munmap(part.arenas[i].head, HEAD_LEN);
        hidden_close(part.arenas[i].fd);
    }
    anew_each(anew_undo);
    anew_free();
    lock_give(&lock);
}

int shmem_part_begin(void)
{
    lock_take(&lock);
    for (part.n = 0; part.n < arenas_n; part.n++) {
        const struct head *h = arenas[part.n].head;
        if (!arena_make(&part.arenas[part.n], h->base, atomic_load(&h->next))) {
            shmem_part_undo();
            return -ENOMEM;
        }
    }
    return 0;
}

void *shmem_part_anew(void *p, size_t len)
{
    const struct arena *a = shmem_of(p);
    struct anew *new = anew_take();
    if (new == NULL)
        return NULL;
    new->p = p;
    new->len = whole_pages(len);
    if (a != NULL) {
        new->at = mmap(NULL, new->len, PROT_READ | PROT_WRITE, MAP_SHARED, part.arenas[a - arenas].fd,
                       (off_t)((uintptr_t)p - a->head->base));
    } else {
        new->at = mmap(NULL, new->len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    }
    if (new->at == MAP_FAILED)
        return NULL;
    part.chunks->n++;
    return new->at;
}

void shmem_part_copy(void *to, const void *from, size_t len)
{
    const struct arena *a = shmem_of(from);
    if (a == NULL || !still_there(a)) {
        memcpy(to, from, len);
        return;
    }
    off_t begin = (off_t)((uintptr_t)from - a->head->base), end = begin + (off_t)len, hole;
    for (off_t at = begin; at < end; at = hole) {
        at = lseek(a->fd, at, SEEK_DATA); /* (mincore does not see what is swapped out) */
        if (at < 0 || at >= end)
            return;
        hole = lseek(a->fd, at, SEEK_HOLE);
        hole = hole < 0 || hole > end ? end : hole;
        memcpy((uint8_t *)to + (at - begin), (const uint8_t *)from + (at - begin), (size_t)(hole - at));
    }
}

void shmem_part_drop(void *p, size_t len)
{
    if (madvise(p, whole_pages(len), MADV_REMOVE) < 0)
        trace_debug("arena: what this process held stays: errno %d", errno);
}

/* Unmaps what a line of /proc/self/maps tells of, if that is a piece of the arena. */
static void piece_unmap(const char *line, const struct arena *a)
{
    uintptr_t begin, end;
    uintmax_t ino;
    if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %*s %*x %*x:%*x %ju", &begin, &end, &ino) == 3 &&
        begin - a->head->base < ARENA_LEN && ino == a->ino && strstr(line, " /memfd:sockwarp") != NULL)
        munmap((void *)begin, end - begin); /* NOLINT: an address */
}

/*
 * Unmaps all pieces of the arena, of connections of others, too. Between them may be mappings of the program's: V8 and others
 * take addresses at random. (Threads that stand still may have stdio's and malloc's locks.)
 */
static void pieces_unmap(const struct arena *a)
{
    char text[4096];
    size_t n = 0;
    ssize_t got;
    int fd = rawsys_open("/proc/self/maps", O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) { /* nothing tells where they are: their range, as far as it was ever used */
        munmap((void *)(uintptr_t)a->head->base, atomic_load(&a->head->next)); /* NOLINT: an address */
        return;
    }
    while ((got = rawsys_read(fd, text + n, sizeof(text) - 1 - n)) > 0) {
        char *line = text, *end;
        n += (size_t)got;
        text[n] = '\0';
        for (; (end = strchr(line, '\n')) != NULL; line = end + 1) {
            *end = '\0';
            piece_unmap(line, a);
        }
        n = (size_t)(text + n - line);
        memmove(text, line, n);
        if (n == sizeof(text) - 1) /* a long name of another file; what follows of it begins no line of ours */
            n = 0;
    }
    rawsys_close(fd);
}

void shmem_part_end(void)
{
    for (unsigned i = 0; i < part.n; i++) {
        struct head *old = arenas[i].head;
        pieces_unmap(&arenas[i]);
        munmap(old, HEAD_LEN);
        if (still_there(&arenas[i]))
            hidden_close(arenas[i].fd);
        put(i, part.arenas[i].fd, part.arenas[i].ino, part.arenas[i].head);
    }
    anew_each(anew_put);
    anew_free();
    shared = false;
    lock_give(&lock);
}

void shmem_before_fork(void)
{
    lock_take(&lock);
}

void shmem_after_fork(bool child)
{
    shared = true;
    if (child)
        pthread_mutex_init(&lock, NULL);
    else
        lock_give(&lock);
}
