/*
 * Backtraces; see fault.h. This is no part of the receive path: only --explain and failed checks come here.
 *
 * libunwind finds the frames (UNW_LOCAL_ONLY: this process, no ptrace), dladdr finds the object.
 *
 * libunwind tests whether memory can be read by writing an octet of it into a pipe of its own, and never checks its two
 * descriptors again. In a program that closes "all" descriptors and goes on, that octet would be written into a file or
 * connection of the program's. So the pipe's identity is remembered here and checked before each use.
 */
#define UNW_LOCAL_ONLY
#include "core/base/fault.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <libunwind.h>
#include <link.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/rawsys.h"

#define FAULT_FRAMES_MAX 64
#define FAULT_NAME_MAX 128
#define FAULT_LINE_MAX 512
#define FAULT_HIGH_FD 512 /* the descriptor number that libunwind's pipe should get */

#define STR_(x) #x
#define STR(x) STR_(x)

/*
 * The load range of the object that holds this file; lo == hi before fault_setup. Read-only
 * afterwards.
 */
static uintptr_t own_lo, own_hi;

/* libunwind's entry points; ready is set last. */
static struct {
    bool ready;
#ifdef __x86_64__
    int (*getcontext)(unw_tdep_context_t *);
#endif
    int (*init_local)(unw_cursor_t *, unw_context_t *);
    int (*step)(unw_cursor_t *);
    int (*get_reg)(unw_cursor_t *, int, unw_word_t *);
    int (*get_proc_name)(unw_cursor_t *, char *, size_t, unw_word_t *);
    int (*get_proc_info)(unw_cursor_t *, unw_proc_info_t *);
    int (*is_signal_frame)(unw_cursor_t *);
    int (*set_caching_policy)(unw_addr_space_t, unw_caching_policy_t);
    unw_addr_space_t *local;
} lib;

/* libunwind's pipe as fault_prepare saw it; fd -1: not known. */
static struct {
    int fd;
    dev_t dev;
    ino_t ino;
} pipe_end[2] = { { .fd = -1 }, { .fd = -1 } };

/* The thread that is failing, so that a check that fails inside fault_fail cannot recurse. */
static volatile pid_t failing_tid;

#ifdef __x86_64__
#define here(ctx) lib.getcontext(ctx)
#else
#define here(ctx) unw_getcontext(ctx) /* assembler in the header */
#endif

static int find_own_range(struct dl_phdr_info *info, size_t size, void *arg)
{
    uintptr_t addr = (uintptr_t)arg;
    uintptr_t lo = UINTPTR_MAX, hi = 0;

    (void)size;
    for (size_t i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *ph = &info->dlpi_phdr[i];
        uintptr_t start = info->dlpi_addr + ph->p_vaddr;

        if (ph->p_type != PT_LOAD)
            continue;
        if (start < lo)
            lo = start;
        if (start + ph->p_memsz > hi)
            hi = start + ph->p_memsz;
    }
    if (addr < lo || addr >= hi)
        return 0;
    own_lo = lo;
    own_hi = hi;
    return 1;
}

void fault_setup(void)
{
    dl_iterate_phdr(find_own_range, (void *)(uintptr_t)fault_setup);
}

static bool resolve(void *so, const char *name, void **out)
{
    *out = dlsym(so, name);
    return *out != NULL;
}

static int load(void)
{
    void *so;

    if (lib.ready)
        return 0;
    so = dlopen("libunwind.so.8", RTLD_NOW | RTLD_LOCAL);
    if (!so)
        return -ENOENT;
    bool all = resolve(so, STR(unw_init_local), (void **)&lib.init_local) &&
               resolve(so, STR(unw_step), (void **)&lib.step) && resolve(so, STR(unw_get_reg), (void **)&lib.get_reg) &&
               resolve(so, STR(unw_get_proc_name), (void **)&lib.get_proc_name) &&
               resolve(so, STR(unw_get_proc_info), (void **)&lib.get_proc_info) &&
               resolve(so, STR(unw_is_signal_frame), (void **)&lib.is_signal_frame) &&
               resolve(so, STR(unw_set_caching_policy), (void **)&lib.set_caching_policy) &&
               resolve(so, STR(unw_local_addr_space), (void **)&lib.local);
#ifdef __x86_64__
    all = all && resolve(so, STR(unw_tdep_getcontext), (void **)&lib.getcontext);
#endif
    if (!all)
        return -ENOENT;
    lib.ready = true;
    return 0;
}

/* Makes libunwind set itself up, with its tables and its pipe. */
static void first_use(void)
{
    char name[FAULT_NAME_MAX];
    unw_context_t ctx;
    unw_cursor_t cur;
    unw_word_t off;

    if (here(&ctx) == 0 && lib.init_local(&cur, &ctx) == 0 && lib.step(&cur) > 0)
        (void)lib.get_proc_name(&cur, name, sizeof(name), &off);
}

int fault_prepare(void)
{
    int filler[FAULT_HIGH_FD];
    int n = 0, rc;

    if (lib.ready)
        return 0;
    rc = load();
    if (rc < 0)
        return rc;

    /*
     * The kernel hands out the lowest free descriptor. So all below the wanted ones are filled, and the last two are
     * closed just before libunwind takes its two. (A low RLIMIT_NOFILE only ends this earlier.)
     */
    while (n < FAULT_HIGH_FD) {
        int fd = rawsys_open("/", O_PATH | O_CLOEXEC, 0);
        if (fd < 0)
            break;
        filler[n++] = fd;
        if (fd >= FAULT_HIGH_FD)
            break;
    }
    for (int i = 0; i < 2 && n > 0; i++) {
        pipe_end[1 - i].fd = filler[--n];
        rawsys_close(filler[n]);
    }
    first_use();
    while (n > 0)
        rawsys_close(filler[--n]);

    for (int i = 0; i < 2; i++) {
        struct stat st;
        if (pipe_end[i].fd >= 0 && fstat(pipe_end[i].fd, &st) == 0 && S_ISFIFO(st.st_mode)) {
            pipe_end[i].dev = st.st_dev;
            pipe_end[i].ino = st.st_ino;
        } else {
            pipe_end[i].fd = -1; /* a libunwind that needs no pipe, or could not get one */
        }
    }
    return 0;
}

/* May libunwind be called: does it work here, and is its pipe still its own? */
static bool usable(void)
{
    if (load() < 0)
        return false;
    for (int i = 0; i < 2; i++) {
        struct stat st;
        if (pipe_end[i].fd < 0)
            continue;
        if (fstat(pipe_end[i].fd, &st) < 0 || !S_ISFIFO(st.st_mode) || st.st_dev != pipe_end[i].dev ||
            st.st_ino != pipe_end[i].ino)
            return false;
    }
    return true;
}

/* Turns printf's result into the number of octets that are in a buffer with cap octets. */
static size_t held(int n, size_t cap)
{
    if (n < 0 || cap == 0)
        return 0;
    return (size_t)n < cap ? (size_t)n : cap - 1;
}

/*
 * The object that holds an address: its file name and load address. The dynamic linker knows the program itself only by
 * argv[0], which its parent chose; the kernel has the real name. path has room for cap octets.
 */
static const char *object_of(uintptr_t addr, uintptr_t *base, char *path, size_t cap)
{
    const ElfW(Ehdr) * eh;
    Dl_info dli;
    ssize_t n;

    if (dladdr((void *)addr, &dli) == 0 || !dli.dli_fname || !dli.dli_fbase)
        return NULL;
    *base = (uintptr_t)dli.dli_fbase;
    eh = dli.dli_fbase;
    if (*base + eh->e_phoff != getauxval(AT_PHDR))
        return dli.dli_fname;
    n = readlink("/proc/self/exe", path, cap - 1);
    if (n <= 0)
        return dli.dli_fname;
    path[n] = '\0';
    return path;
}

/* "symbol+0x1f (object)" of the frame under the cursor; NUL-terminated, returns the length. */
static size_t frame_text(unw_cursor_t *cur, unw_word_t ip, char *buf, size_t cap)
{
    char name[FAULT_NAME_MAX], path[256];
    unw_word_t off = 0;
    unw_proc_info_t pi;
    uintptr_t base = 0;
    const char *object;
    int rc;

    /* ip is a return address: behind a call that does not return it may belong to the next function. */
    object = object_of((uintptr_t)ip - 1, &base, path, sizeof(path));

    /*
     * In a stripped object the nearest symbol can be that of another function. The unwind table has this function's
     * first address: only a symbol at that address is its name (a truncated name still is).
     */
    rc = lib.get_proc_name(cur, name, sizeof(name), &off);
    if (rc == 0 || rc == -UNW_ENOMEM) {
        name[sizeof(name) - 1] = '\0';
        if (name[0] != '\0' && lib.get_proc_info(cur, &pi) == 0 && pi.start_ip == ip - off)
            return held(snprintf(buf, cap, "%s+0x%lx (%s)", name, (unsigned long)off, object ? object : "?"), cap);
    }
    if (object)
        return held(snprintf(buf, cap, "?+0x%lx (%s)", (unsigned long)(ip - base), object), cap);
    return held(snprintf(buf, cap, "?"), cap);
}

size_t fault_call_site(char *buf, size_t cap)
{
    int keep = errno;
    size_t len = 0;
    unw_context_t ctx;
    unw_cursor_t cur;
    unw_word_t ip;

    if (cap == 0)
        return 0;
    if (usable() && here(&ctx) == 0 && lib.init_local(&cur, &ctx) == 0) {
        for (int i = 0; len == 0 && i < FAULT_FRAMES_MAX && lib.step(&cur) > 0; i++) {
            if (lib.get_reg(&cur, UNW_REG_IP, &ip) != 0 || ip == 0)
                break;
            if (ip - 1 < own_lo || ip - 1 >= own_hi) {
                len = frame_text(&cur, ip, buf, cap);
                break;
            }
        }
    }
    if (len == 0)
        len = held(snprintf(buf, cap, "?"), cap);
    errno = keep;
    return len;
}

int fault_in_handler(uintptr_t frame)
{
    unw_context_t ctx;
    unw_cursor_t cur;
    unw_word_t sp;

    if (!usable() || here(&ctx) != 0 || lib.init_local(&cur, &ctx) != 0)
        return -ENOENT;
    while (lib.step(&cur) > 0 && lib.get_reg(&cur, UNW_REG_SP, &sp) == 0 && sp <= frame)
        if (lib.is_signal_frame(&cur) > 0)
            return 1;
    return 0;
}

static __attribute__((noinline)) void print_backtrace(void)
{
    static const char none[] = "  (no backtrace: libunwind cannot be used in this process)\n";
    char line[FAULT_LINE_MAX];
    const size_t cap = sizeof(line) - 1; /* the last octet is kept for '\n' */
    unw_context_t ctx;
    unw_cursor_t cur;
    unw_word_t ip;

    if (!usable() || here(&ctx) != 0 || lib.init_local(&cur, &ctx) != 0) {
        rawsys_write_all(2, none, sizeof(none) - 1);
        return;
    }
    /* No cache, so no lock that a thread which did not survive fork() might hold. */
    (void)lib.set_caching_policy(*lib.local, UNW_CACHE_NONE);
    for (int i = 0; i < FAULT_FRAMES_MAX && lib.step(&cur) > 0; i++) {
        size_t len;

        if (lib.get_reg(&cur, UNW_REG_IP, &ip) != 0 || ip == 0)
            break;
        len = held(snprintf(line, cap, "  #%d ", i), cap);
        len += frame_text(&cur, ip, line + len, cap - len);
        line[len++] = '\n';
        rawsys_write_all(2, line, len);
    }
}

/* Not even the program's own SIGABRT handler runs, which may have brought us here. */
static void die_now(void) __attribute__((noreturn));
static void die_now(void)
{
    sigset_t set;

    signal(SIGABRT, SIG_DFL);
    sigemptyset(&set);
    sigaddset(&set, SIGABRT);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    raise(SIGABRT);
    abort();
}

void fault_fail(const char *expr, const char *file, int line, const char *fmt, ...)
{
    char text[FAULT_LINE_MAX];
    const size_t cap = sizeof(text) - 1; /* the last octet is kept for '\n' */
    size_t len;
    va_list ap;

    if (failing_tid == rawsys_gettid())
        die_now();
    failing_tid = rawsys_gettid();

    len = held(snprintf(text, cap, "sockwarp: check failed: %s at %s:%d: ", expr, file, line), cap);
    va_start(ap, fmt);
    len += held(vsnprintf(text + len, cap - len, fmt, ap), cap - len);
    va_end(ap);
    text[len++] = '\n';
    rawsys_write_all(2, text, len);

    print_backtrace();
    abort();
}
