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
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "core/base/rawsys.h"

#define FAULT_FRAMES_MAX 64
#define FAULT_NAME_MAX 128
#define FAULT_LINE_MAX 512
#define FAULT_MOVES 8u          /* of state machines, that are kept */
#define FAULT_WAIT_MS 1000u     /* for another thread's block */
#define FAULT_STACK_LEN 65536u  /* for a block */
#define FAULT_STACK_NEAR 65536u /* a fault so near to the stack pointer is that of a stack which is used up */
#define FAULT_HIGH_FD 512       /* the descriptor number that libunwind's pipe should get */

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
    int (*init_signal)(unw_cursor_t *, unw_context_t *, int);
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
               resolve(so, STR(unw_init_local2), (void **)&lib.init_signal) &&
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
    unw_proc_info_t pi;
    unw_word_t sp;

    if (!usable() || here(&ctx) != 0 || lib.init_local(&cur, &ctx) != 0)
        return -ENOENT;
    while (lib.step(&cur) > 0 && lib.get_reg(&cur, UNW_REG_SP, &sp) == 0 && sp <= frame) {
        if (lib.is_signal_frame(&cur) > 0)
            return 1;
        if (lib.get_proc_info(&cur, &pi) == -UNW_EINVAL)
            return -ENOENT; /* aarch64, a return address that is signed, and libunwind before 1.7 */
    }
    return 0;
}

/* ---- the block ---- */

static void write_stderr(const char *text, size_t len)
{
    rawsys_write_all(2, text, len);
}

static struct fault_hooks hooks = { .write = write_stderr };

void fault_hook(const struct fault_hooks *h)
{
    hooks = *h;
}

static void print(const char *fmt, ...) SW_PRINTF(1, 2);
static void print(const char *fmt, ...)
{
    char line[FAULT_LINE_MAX];
    const size_t cap = sizeof(line) - 1; /* the last octet is kept for '\n' */
    va_list ap;

    va_start(ap, fmt);
    size_t len = held(vsnprintf(line, cap, fmt, ap), cap);
    va_end(ap);
    line[len++] = '\n';
    hooks.write(line, len);
}

/* Moves of state machines; a slot may be overwritten while it is read: then the line is of both. */
static struct {
    const char *_Atomic machine, *_Atomic from, *_Atomic to;
    const void *_Atomic who;
} moves[FAULT_MOVES];
static _Atomic unsigned moves_n;

void fault_note_move(const char *machine, const void *who, const char *from, const char *to)
{
    unsigned i = atomic_fetch_add_explicit(&moves_n, 1, memory_order_relaxed) % FAULT_MOVES;
    atomic_store_explicit(&moves[i].machine, machine, memory_order_relaxed);
    atomic_store_explicit(&moves[i].who, who, memory_order_relaxed);
    atomic_store_explicit(&moves[i].from, from, memory_order_relaxed);
    atomic_store_explicit(&moves[i].to, to, memory_order_relaxed);
}

static void print_moves(void)
{
    unsigned n = atomic_load(&moves_n);
    for (unsigned i = n > FAULT_MOVES ? n - FAULT_MOVES : 0; i != n; i++) {
        unsigned k = i % FAULT_MOVES;
        const char *machine = atomic_load(&moves[k].machine), *to = atomic_load(&moves[k].to);
        if (machine != NULL && to != NULL)
            print("  moved: %s %p: %s -> %s", machine, atomic_load(&moves[k].who), atomic_load(&moves[k].from), to);
    }
}

/* context: a handler's, where to begin; NULL: here, and the frames are those that called this one. */
static __attribute__((noinline)) void print_backtrace(void *context)
{
    char text[FAULT_LINE_MAX - 16];
    unw_context_t ctx;
    unw_cursor_t cur;
    unw_word_t ip;
    int i = 0;

    if (!usable() || (context == NULL && here(&ctx) != 0) ||
        (context == NULL ? lib.init_local(&cur, &ctx) : lib.init_signal(&cur, context, UNW_INIT_SIGNAL_FRAME)) != 0) {
        print("  (no backtrace: libunwind cannot be used in this process)");
        return;
    }
    /* No cache, so no lock that a thread which did not survive fork() might hold. */
    (void)lib.set_caching_policy(*lib.local, UNW_CACHE_NONE);
    if (context == NULL && lib.step(&cur) <= 0)
        return;
    do {
        if (lib.get_reg(&cur, UNW_REG_IP, &ip) != 0 || ip == 0)
            break;
        frame_text(&cur, ip, text, sizeof(text));
        print("  #%d %s", i, text);
    } while (++i < FAULT_FRAMES_MAX && lib.step(&cur) > 0);
}

/* The block's rest, behind the line that says what has happened. */
static void print_rest(void *context)
{
    print_backtrace(context);
    print("  version " SW_VERSION ", process %d, thread %d", (int)rawsys_getpid(), (int)rawsys_gettid());
    if (hooks.describe != NULL)
        hooks.describe(hooks.write);
    print_moves();
}

/* One block at a time. */
static _Atomic pid_t printing_tid;
static _Atomic unsigned blocks_n;

/* False: this thread prints one already, another takes too long, or there were enough. */
static bool block_begin(void)
{
    pid_t me = rawsys_gettid(), other = 0;
    for (unsigned ms = 0; !atomic_compare_exchange_strong(&printing_tid, &other, me); ms++, other = 0) {
        struct timespec nap = { .tv_nsec = 1000000 };
        if (other == me || ms >= FAULT_WAIT_MS)
            return false;
        rawsys4(__NR_nanosleep, (long)&nap, 0, 0, 0);
    }
    if (atomic_fetch_add(&blocks_n, 1) < FAULT_BLOCKS_MAX)
        return true;
    atomic_store(&printing_tid, 0);
    return false;
}

static void block_end(void)
{
    atomic_store(&printing_tid, 0);
}

/* ---- fatal signals ---- */

static uintptr_t context_pc(const ucontext_t *uc)
{
#ifdef __x86_64__
    return (uintptr_t)uc->uc_mcontext.gregs[REG_RIP];
#else
    return (uintptr_t)uc->uc_mcontext.pc;
#endif
}

static uintptr_t context_sp(const ucontext_t *uc)
{
#ifdef __x86_64__
    return (uintptr_t)uc->uc_mcontext.gregs[REG_RSP];
#else
    return (uintptr_t)uc->uc_mcontext.sp;
#endif
}

bool fault_is_ours(const siginfo_t *info, const void *context)
{
    uintptr_t pc = context_pc(context), sp = context_sp(context), at = (uintptr_t)info->si_addr;
    if (info->si_code <= 0 || pc < own_lo || pc >= own_hi)
        return false;
    return info->si_signo == SIGILL || info->si_signo == SIGFPE || at + FAULT_STACK_NEAR < sp ||
           at >= sp + FAULT_STACK_NEAR;
}

struct fault {
    int number;
    const siginfo_t *info;
    void *context;
};

static void print_signal(void *arg)
{
    const struct fault *f = arg;
    const char *name = f->number == SIGSEGV  ? "SIGSEGV"
                       : f->number == SIGBUS ? "SIGBUS"
                       : f->number == SIGILL ? "SIGILL"
                                             : "SIGFPE";
    print("sockwarp: %s in the library, address %p, code %d", name, f->info->si_addr, f->info->si_code);
    print_rest(f->context);
}

/*
 * On a stack of ours. A signal that comes meanwhile would be put on the alternate stack from its top on, over the frames of the
 * handler that waits there, because the kernel goes by the stack pointer. So there is none meanwhile.
 */
static void print_apart(void *arg)
{
    stack_t none = { .ss_flags = SS_DISABLE }, before = { 0 };
    long r = rawsys4(__NR_sigaltstack, (long)&none, (long)&before, 0, 0);
    print_signal(arg);
    before.ss_flags &= ~SS_ONSTACK;
    if (r == 0)
        rawsys4(__NR_sigaltstack, (long)&before, 0, 0, 0);
}

/* fn(arg) on the stack that ends at top. */
static void call_on(void *top, void (*fn)(void *), void *arg)
{
#ifdef __x86_64__
    __asm__ volatile("mov %%rsp, %%rbx\n\tmov %1, %%rsp\n\tcall *%2\n\tmov %%rbx, %%rsp"
                     : "+D"(arg)
                     : "r"(top), "r"(fn)
                     : "rax", "rbx", "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11", "xmm0", "xmm1", "xmm2", "xmm3",
                       "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14",
                       "xmm15", "cc", "memory");
#else
    register void *x0 __asm__("x0") = arg;
    __asm__ volatile("mov x19, sp\n\tmov sp, %1\n\tblr %2\n\tmov sp, x19"
                     : "+r"(x0)
                     : "r"(top), "r"(fn)
                     : "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15",
                       "x16", "x17", "x18", "x19", "x30", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9",
                       "v10", "v11", "v12", "v13", "v14", "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23",
                       "v24", "v25", "v26", "v27", "v28", "v29", "v30", "v31", "cc", "memory");
#endif
}

void fault_signal(int number, const siginfo_t *info, void *context)
{
    struct fault f = { number, info, context };
    int keep = errno;

    if (!block_begin())
        return;
    /* (Kept for the next one: a thread that has jumped out of its handler would leave it behind.) */
    static uint8_t *stack;
    if (stack == NULL) {
        long p = rawsys6(__NR_mmap, 0, FAULT_STACK_LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        stack = p < 0 && p > -4096 ? NULL : (uint8_t *)p;
    }
    if (stack != NULL)
        call_on(stack + FAULT_STACK_LEN, print_apart, &f);
    else
        print_signal(&f);
    block_end();
    errno = keep;
}

/* ---- failed checks ---- */

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
    bool alone = block_begin();
    hooks.write(text, len);
    print_rest(NULL);
    if (alone)
        block_end();
    abort();
}
