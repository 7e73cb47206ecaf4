/*
 * Making the board, and its slots; see board.h. It uses system calls without libc, because the program may have
 * replaced libc's functions and because errno is the program's.
 */
#include "preload/process/board.h"

#include <linux/falloc.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "core/base/rawsys.h"
#include "core/base/reason.h"
#include "preload/process/folder.h"
#include "preload/process/proc.h"
#include "preload/process/sandbox.h"

#define BOARDS_MAX 4u /* a process's own, and those of its parents */
#define FILE_LEN (sizeof(struct board_head) + BOARD_SLOTS_MAX * sizeof(struct board_slot))
#define NAME_LEN 64u
#define INDEX_BITS 16u

/* The boards that a process has mapped; the first is its own, if it has one. They are never unmapped. */
static struct board {
    uint64_t id; /* 0: none */
    struct board_head *head;
} boards[BOARDS_MAX];
static struct board_head counts; /* where there is no file */
static _Atomic int making;       /* 0: not tried, 1: a thread is making it, 2: done */
static _Atomic bool growing;
static _Atomic uint32_t next; /* where the search for a free slot begins */
static uint64_t inode;

bool board_wanted(void)
{
    return proc.set.stat || proc.set.summary;
}

static struct board_head *head(void)
{
    return boards[0].head != NULL ? boards[0].head : &counts;
}

static struct board_slot *slots_of(struct board_head *h)
{
    return (struct board_slot *)(h + 1);
}

/* ---- the file ---- */

static void name_file(char name[NAME_LEN])
{
    snprintf(name, NAME_LEN, BOARD_FOLDER "/%u", rawsys_geteuid(), (unsigned)proc.pid);
}

static bool folder_ok(void)
{
    int fd = folder_open();
    if (fd >= 0)
        rawsys_close(fd);
    return fd >= 0;
}

/* Memory for a number of slots in all. */
static bool reserve(int fd, uint32_t slots)
{
    return rawsys4(__NR_fallocate, fd, 0, 0, (long)(sizeof(struct board_head) + slots * sizeof(struct board_slot))) ==
           0;
}

static struct board_head *map_file(int fd)
{
    struct stat st = { 0 };
    if (rawsys4(__NR_ftruncate, fd, (long)FILE_LEN, 0, 0) != 0 || !reserve(fd, BOARD_CHUNK) ||
        rawsys4(__NR_fstat, fd, (long)&st, 0, 0) != 0)
        return NULL;
    long at = rawsys6(__NR_mmap, 0, FILE_LEN, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    inode = st.st_ino;
    return at > -4096 && at < 0 ? NULL : (struct board_head *)at;
}

static void fill_head(struct board_head *h)
{
    h->pid = (uint32_t)proc.pid;
    h->slot_len = sizeof(struct board_slot);
    h->born_ns = proc_now_ns();
    memcpy(h->program, proc.program, sizeof(h->program));
    snprintf(h->version, sizeof(h->version), "%s", SW_VERSION);
    atomic_store(&h->slots, BOARD_CHUNK);
    h->magic = BOARD_MAGIC;
}

static void add_sum(struct board_sum *to, uint64_t count, uint64_t tx_bytes, uint64_t rx_bytes)
{
    atomic_fetch_add(&to->count, count);
    atomic_fetch_add(&to->tx_bytes, tx_bytes);
    atomic_fetch_add(&to->rx_bytes, rx_bytes);
}

static void copy_sum(struct board_sum *to, const struct board_sum *from)
{
    add_sum(to, atomic_load(&from->count), atomic_load(&from->tx_bytes), atomic_load(&from->rx_bytes));
}

/* What was counted before there was a file. */
static void copy_counts(struct board_head *h)
{
    for (unsigned i = 0; i < BOARD_REASONS; i++)
        copy_sum(&h->ended[i], &counts.ended[i]);
    for (unsigned i = 0; i < BOARD_PORTS; i++) {
        atomic_store(&h->ports[i].used, atomic_load(&counts.ports[i].used));
        copy_sum(&h->ports[i].ended, &counts.ports[i].ended);
    }
    copy_sum(&h->other_ports, &counts.other_ports);
}

static void make(void)
{
    char name[NAME_LEN];
    struct rlimit lim = { 0 };
    /* A file larger than RLIMIT_FSIZE would raise SIGXFSZ; a seccomp filter of the program's may allow none of this. */
    if (sandbox_on() || rawsys4(__NR_prlimit64, 0, RLIMIT_FSIZE, 0, (long)&lim) != 0 ||
        (lim.rlim_cur != RLIM_INFINITY && lim.rlim_cur < FILE_LEN) || !folder_ok())
        return;
    name_file(name);
    /* left by a former process with this number, or by a former program of this process */
    (void)rawsys4(__NR_unlinkat, AT_FDCWD, (long)name, 0, 0);
    int fd = rawsys_open(name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return;
    struct board_head *h = map_file(fd);
    rawsys_close(fd);
    if (h == NULL) {
        (void)rawsys4(__NR_unlinkat, AT_FDCWD, (long)name, 0, 0);
        return;
    }
    fill_head(h);
    copy_counts(h);
    boards[0].id = ((uint64_t)proc_random32(NULL) << 16 | 1) << INDEX_BITS;
    boards[0].head = h;
}

/* Adds another chunk, unless another thread is adding one. */
static bool grow(struct board_head *h, uint32_t slots)
{
    char name[NAME_LEN];
    struct stat st = { 0 };
    if (slots >= BOARD_SLOTS_MAX || sandbox_on() || atomic_exchange(&growing, true))
        return false;
    name_file(name);
    int fd = rawsys_open(name, O_RDWR | O_NOFOLLOW | O_CLOEXEC, 0);
    bool grown = fd >= 0 && rawsys4(__NR_fstat, fd, (long)&st, 0, 0) == 0 && st.st_ino == inode &&
                 reserve(fd, slots + BOARD_CHUNK);
    if (grown)
        atomic_store(&h->slots, slots + BOARD_CHUNK);
    if (fd >= 0)
        rawsys_close(fd);
    atomic_store(&growing, false);
    return grown;
}

/* ---- slots ---- */

/* Looks once around for a free slot. Returns its index, or -1. */
static int claim(struct board_head *h, uint32_t slots)
{
    uint32_t from = atomic_load(&next);
    for (uint32_t i = 0; i < slots; i++) {
        uint32_t at = (from + i) % slots, expected = BOARD_FREE;
        if (atomic_compare_exchange_strong(&slots_of(h)[at].state, &expected, BOARD_STARTING)) {
            atomic_store(&next, at + 1);
            return (int)at;
        }
    }
    return -1;
}

uint64_t board_take(void)
{
    int expected = 0;
    if (!proc.set.stat)
        return 0;
    if (SW_UNLIKELY(atomic_load(&making) != 2)) {
        if (!atomic_compare_exchange_strong(&making, &expected, 1))
            return 0;
        make();
        atomic_store(&making, 2);
    }
    struct board_head *h = boards[0].head;
    if (h == NULL)
        return 0;
    uint32_t slots = atomic_load(&h->slots);
    int at = slots <= BOARD_SLOTS_MAX ? claim(h, slots) : -1;
    if (at < 0 && grow(h, slots))
        at = claim(h, slots + BOARD_CHUNK);
    if (at < 0) {
        atomic_fetch_add(&h->unseen, 1);
        return BOARD_UNSEEN;
    }
    struct board_slot *slot = &slots_of(h)[at];
    memset((char *)slot + sizeof(slot->state), 0, sizeof(*slot) - sizeof(slot->state));
    return boards[0].id | (uint64_t)at;
}

struct board_slot *board_slot(uint64_t ref)
{
    if (SW_LIKELY(ref == 0))
        return NULL;
    uint64_t index = ref & ((1u << INDEX_BITS) - 1);
    for (unsigned i = 0; i < BOARDS_MAX; i++)
        if (boards[i].head != NULL && boards[i].id == ref - index && index < BOARD_SLOTS_MAX)
            return &slots_of(boards[i].head)[index];
    return NULL;
}

void board_give(uint64_t ref)
{
    struct board_slot *slot = board_slot(ref);
    if (slot != NULL)
        atomic_store(&slot->state, BOARD_FREE);
}

/* The sums of a port, which gets a place if there is one left. */
static struct board_sum *sum_of_port(struct board_head *h, uint16_t port)
{
    uint32_t wanted = port + 1u;
    for (unsigned i = 0; i < BOARD_PORTS; i++) {
        uint32_t used = 0;
        if (atomic_compare_exchange_strong(&h->ports[i].used, &used, wanted) || used == wanted)
            return &h->ports[i].ended;
    }
    return &h->other_ports;
}

void board_ended(unsigned reason, uint16_t port, uint64_t tx_bytes, uint64_t rx_bytes)
{
    struct board_head *h = head();
    add_sum(&h->ended[reason < BOARD_REASONS ? reason : 0], 1, tx_bytes, rx_bytes);
    add_sum(sum_of_port(h, port), 1, tx_bytes, rx_bytes);
}

void board_after_fork(void)
{
    for (unsigned i = BOARDS_MAX - 1; i > 0 && boards[0].head != NULL; i--)
        boards[i] = boards[i - 1];
    boards[0] = (struct board){ 0 };
    memset(&counts, 0, sizeof(counts));
    atomic_store(&making, 0);
    atomic_store(&growing, false);
    atomic_store(&next, 0);
}

/* ---- the end ---- */

/* ", 3 policy-off": what fits on a line. */
static size_t add_reasons(const struct board_head *h, char *line, size_t len, size_t cap)
{
    const char *before = " (";
    for (unsigned reason = 0; reason < BOARD_REASONS; reason++) {
        unsigned long long n = atomic_load(&h->ended[reason].count);
        if (n == 0 || reason == REASON_UPGRADED || len + 64 > cap)
            continue;
        len += (size_t)snprintf(line + len, cap - len, "%s%llu %s", before, n, reason_name(reason));
        before = ", ";
    }
    return before[0] == ',' ? len + (size_t)snprintf(line + len, cap - len, ")") : len;
}

static void summarize(const struct board_head *h)
{
    char line[1024];
    unsigned long long plain = 0, upgraded = 0, tx_bytes = 0, rx_bytes = 0;
    for (unsigned reason = 0; reason < BOARD_REASONS; reason++) {
        const struct board_sum *sum = &h->ended[reason];
        *(reason == REASON_UPGRADED ? &upgraded : &plain) += atomic_load(&sum->count);
        tx_bytes += atomic_load(&sum->tx_bytes);
        rx_bytes += atomic_load(&sum->rx_bytes);
    }
    size_t len = (size_t)snprintf(line, sizeof(line), "sockwarp[%d]: %llu connection%s upgraded, %llu plain",
                                  (int)proc.pid, upgraded, upgraded == 1 ? "" : "s", plain);
    len = add_reasons(h, line, len, sizeof(line) - 80);
    len += (size_t)snprintf(line + len, sizeof(line) - len, "; %llu bytes sent, %llu received\n", tx_bytes, rx_bytes);
    rawsys_write_all(2, line, len);
}

void board_finish(void)
{
    char name[NAME_LEN];
    struct stat st = { 0 };
    if (!board_wanted() || sandbox_on())
        return;
    if (proc.set.summary)
        summarize(head());
    if (boards[0].head == NULL)
        return;
    name_file(name);
    if (rawsys4(__NR_newfstatat, AT_FDCWD, (long)name, (long)&st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_ino == inode)
        (void)rawsys4(__NR_unlinkat, AT_FDCWD, (long)name, 0, 0);
}
