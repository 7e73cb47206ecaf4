/*
 * Runs a program and fails, or ends it at, one system call that the preloaded library makes in it.
 *
 *   inject LOG AT[:NAME] WHAT PROGRAM [ARGUMENT...]
 *
 * AT counts the library's calls from 1, over all processes and threads of the program; it is the first NAME from there on. With + behind
 * WHAT all its later calls of that name fail, too, that a shortage can make fail. WHAT: "count" fails nothing and writes a line
 * line for each call to LOG; "kill" ends the process; a number: the call is not made and fails with this errno, and has a line. A line is
 * NAME SITE DOMAIN ARGUMENT: the domain of the socket that it works on (0: none, -1: not known), its second argument. The status is the
 * program's; 128 and the signal if one has ended it.
 *
 * A call is the library's if the first return address on the stack that belongs to it or to the program, is the library's. SITE is that
 * address within the library. Every process that is traced ends with this one.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/ptrace.h>

#define TASKS_MAX 64
#define WORDS 512
#define LIBRARY "libsockwarp.so"

struct range {
    uint64_t lo, hi;
};

/* One thread of the program. */
struct task {
    pid_t tid;
    bool failing; /* its call is not made: the result is to be put in */
    struct range library, program;
    uint64_t base;
};

static struct task tasks[TASKS_MAX];
static FILE *log_file;
static unsigned long at, seen;
static const char *name_wanted; /* NULL: any */
static bool ever_after, done;
static int error_wanted; /* 0: count; -1: kill */

static void die(const char *what)
{
    fprintf(stderr, "inject: %s: %s\n", what, strerror(errno));
    exit(125);
}

static struct task *task_of(pid_t tid)
{
    for (int i = 0; i < TASKS_MAX; i++)
        if (tasks[i].tid == tid)
            return &tasks[i];
    for (int i = 0; i < TASKS_MAX; i++)
        if (tasks[i].tid == 0) {
            tasks[i] = (struct task){ .tid = tid };
            return &tasks[i];
        }
    errno = ENOSPC;
    die("tasks");
    return NULL;
}

/* Where the library's code and the program's are. False: the library is not there. */
static bool find_ranges(struct task *t)
{
    char path[64], exe[512], line[1024];
    snprintf(path, sizeof(path), "/proc/%d/exe", (int)t->tid);
    ssize_t n = readlink(path, exe, sizeof(exe) - 1);
    exe[n > 0 ? n : 0] = '\0';
    snprintf(path, sizeof(path), "/proc/%d/maps", (int)t->tid);
    FILE *f = fopen(path, "re");
    t->library.hi = t->base = 0;
    while (f != NULL && fgets(line, sizeof(line), f)) {
        struct range r;
        char rights[5];
        if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s", &r.lo, &r.hi, rights) != 3)
            continue;
        bool ours = strstr(line, LIBRARY) != NULL;
        if (ours && t->base == 0)
            t->base = r.lo;
        if (rights[2] == 'x' && ours)
            t->library = r;
        else if (rights[2] == 'x' && strstr(line, exe) != NULL)
            t->program = r;
    }
    if (f != NULL)
        fclose(f);
    return t->library.hi != 0;
}

static bool in(uint64_t a, const struct range *r)
{
    return a >= r->lo && a < r->hi;
}

/* The library's return address, or 0: it is not the library's call. */
static uint64_t site_of(struct task *t, uint64_t ip, uint64_t sp)
{
    uint64_t words[WORDS];
    if (t->library.hi == 0 && !find_ranges(t))
        return 0;
    if (in(ip, &t->library))
        return ip - t->base;
    struct iovec to = { words, sizeof(words) };
    struct iovec from = { (void *)(uintptr_t)sp, sizeof(words) };
    ssize_t n = process_vm_readv(t->tid, &to, 1, &from, 1, 0);
    for (ssize_t i = 0; i < n / 8; i++) {
        if (in(words[i], &t->program))
            return 0;
        if (in(words[i], &t->library))
            return words[i] - t->base;
    }
    return 0;
}

#ifdef __x86_64__
static void set_no_call(pid_t tid)
{
    if (ptrace(PTRACE_POKEUSER, tid, offsetof(struct user, regs.orig_rax), -1L) < 0)
        die("POKEUSER");
}

static void set_result(pid_t tid, long result)
{
    if (ptrace(PTRACE_POKEUSER, tid, offsetof(struct user, regs.rax), result) < 0)
        die("POKEUSER");
}
#else
static void set_no_call(pid_t tid)
{
    int none = -1;
    struct iovec v = { &none, sizeof(none) };
    if (ptrace(PTRACE_SETREGSET, tid, NT_ARM_SYSTEM_CALL, &v) < 0)
        die("SETREGSET");
}

static void set_result(pid_t tid, long result)
{
    struct user_regs_struct regs;
    struct iovec v = { &regs, sizeof(regs) };
    if (ptrace(PTRACE_GETREGSET, tid, NT_PRSTATUS, &v) < 0)
        die("GETREGSET");
    regs.regs[0] = (unsigned long long)result;
    if (ptrace(PTRACE_SETREGSET, tid, NT_PRSTATUS, &v) < 0)
        die("SETREGSET");
}
#endif

static const struct {
    long nr;
    const char *name;
} names[] = {
#define CALL(x)     \
    {               \
        SYS_##x, #x \
    }
    CALL(accept),
    CALL(accept4),
    CALL(bind),
    CALL(brk),
    CALL(clone),
    CALL(clone3),
    CALL(close),
    CALL(connect),
    CALL(dup),
    CALL(dup3),
    CALL(epoll_create1),
    CALL(epoll_ctl),
    CALL(epoll_pwait),
    CALL(eventfd2),
    CALL(execve),
    CALL(exit),
    CALL(exit_group),
    CALL(fallocate),
    CALL(fcntl),
    CALL(fstat),
    CALL(ftruncate),
    CALL(futex),
    CALL(getpeername),
    CALL(getsockname),
    CALL(getsockopt),
    CALL(ioctl),
    CALL(io_uring_enter),
    CALL(io_uring_register),
    CALL(io_uring_setup),
    CALL(listen),
    CALL(lseek),
    CALL(madvise),
    CALL(memfd_create),
    CALL(mmap),
    CALL(mprotect),
    CALL(mremap),
    CALL(munmap),
    CALL(newfstatat),
    CALL(openat),
    CALL(pidfd_open),
    CALL(pipe2),
    CALL(ppoll),
    CALL(prctl),
    CALL(pread64),
    CALL(read),
    CALL(readlinkat),
    CALL(recvfrom),
    CALL(recvmsg),
    CALL(rt_sigaction),
    CALL(rt_sigprocmask),
    CALL(rt_sigreturn),
    CALL(sched_yield),
    CALL(sendmsg),
    CALL(sendto),
    CALL(setsockopt),
    CALL(shutdown),
    CALL(sigaltstack),
    CALL(socket),
    CALL(socketpair),
    CALL(wait4),
    CALL(write),
    CALL(writev),
    CALL(readv),
    CALL(getdents64),
    CALL(kill),
    CALL(tgkill),
    CALL(statx),
    CALL(process_vm_readv),
    CALL(process_vm_writev),
    CALL(getrandom),
    CALL(prlimit64),
#ifdef SYS_poll
    CALL(poll),
    CALL(epoll_wait),
    CALL(open),
    CALL(stat),
    CALL(readlink),
    CALL(fork),
    CALL(vfork),
    CALL(access),
#endif
};

static const char *name_of(uint64_t nr, char *other, size_t cap)
{
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (names[i].nr == (long)nr)
            return names[i].name;
    snprintf(other, cap, "call-%" PRIu64, nr);
    return other;
}

static int domain_of(pid_t tid, const struct __ptrace_syscall_info *info)
{
    if (info->entry.nr == SYS_socket)
        return (int)info->entry.args[0];
    int process = (int)syscall(SYS_pidfd_open, tid, 0), domain = 0;
    if (process < 0)
        return -1;
    int fd = (int)syscall(SYS_pidfd_getfd, process, (int)info->entry.args[0], 0);
    socklen_t len = sizeof(domain);
    if (fd >= 0 && getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) < 0)
        domain = 0;
    if (fd >= 0)
        close(fd);
    close(process);
    return domain;
}

static void say(pid_t tid, const struct __ptrace_syscall_info *info, uint64_t site)
{
    char other[32];
    fprintf(log_file, "%s %" PRIx64 " %d %" PRIu64 "\n", name_of(info->entry.nr, other, sizeof(other)), site,
            domain_of(tid, info), (uint64_t)info->entry.args[1]);
    fflush(log_file);
}

/* Of fcntl's commands only these want something of which there may be none. */
static bool has_no_shortage(const struct __ptrace_syscall_info *info)
{
    return info->entry.nr == SYS_fcntl && info->entry.args[1] != F_DUPFD && info->entry.args[1] != F_DUPFD_CLOEXEC;
}

/* Is this the call? */
static bool is_wanted(const struct __ptrace_syscall_info *info)
{
    char other[32];
    if (error_wanted == 0 || seen < at || (done && (!ever_after || has_no_shortage(info))))
        return false;
    return name_wanted == NULL || strcmp(name_wanted, name_of(info->entry.nr, other, sizeof(other))) == 0;
}

/* True: the process is ended. */
static bool entered(struct task *t, const struct __ptrace_syscall_info *info)
{
    uint64_t site = site_of(t, info->instruction_pointer, info->stack_pointer);
    if (info->entry.nr == SYS_execve || info->entry.nr == SYS_execveat)
        t->library.hi = 0;
    if (site == 0)
        return false;
    seen++;
    bool wanted = is_wanted(info);
    if (error_wanted == 0 || wanted)
        say(t->tid, info, site);
    if (!wanted)
        return false;
    done = true;
    if (error_wanted < 0) {
        char path[64], line[256];
        int tgid = t->tid;
        snprintf(path, sizeof(path), "/proc/%d/status", (int)t->tid);
        FILE *f = fopen(path, "re");
        while (f != NULL && fgets(line, sizeof(line), f))
            (void)sscanf(line, "Tgid: %d", &tgid);
        if (f != NULL)
            fclose(f);
        kill(tgid, SIGKILL);
        return true;
    }
    set_no_call(t->tid);
    t->failing = true;
    return false;
}

static bool system_call(struct task *t)
{
    struct __ptrace_syscall_info info;
    if (ptrace(PTRACE_GET_SYSCALL_INFO, t->tid, sizeof(info), &info) < 0)
        return errno == ESRCH;
    if (info.op == PTRACE_SYSCALL_INFO_ENTRY)
        return entered(t, &info);
    if (t->failing) {
        t->failing = false;
        set_result(t->tid, -error_wanted);
    }
    return false;
}

/* The signal that the task goes on with, or -1: it does not go on. */
static int stopped(struct task *t, int status)
{
    int sig = WSTOPSIG(status);
    if (sig == (SIGTRAP | 0x80))
        return system_call(t) ? -1 : 0;
    if (status >> 16 != 0) {
        if (status >> 16 == PTRACE_EVENT_EXEC)
            t->library.hi = 0;
        return 0;
    }
    return sig;
}

static int run(pid_t child)
{
    int result = 125;
    for (;;) {
        int status;
        pid_t tid = waitpid(-1, &status, __WALL);
        if (tid < 0 && errno == ECHILD)
            return result;
        if (tid < 0)
            die("waitpid");
        if (WIFEXITED(status) || WIFSIGNALED(status)) {
            if (tid == child)
                result = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
            task_of(tid)->tid = 0;
            continue;
        }
        bool fresh = true;
        for (int i = 0; i < TASKS_MAX; i++)
            fresh = fresh && tasks[i].tid != tid;
        struct task *t = task_of(tid);
        int sig = fresh && WSTOPSIG(status) == SIGSTOP ? 0 : stopped(t, status);
        if (sig >= 0)
            (void)ptrace(PTRACE_SYSCALL, tid, NULL, (void *)(long)sig);
    }
}

int main(int argc, char **argv)
{
    if (argc < 5) {
        fprintf(stderr, "usage: inject LOG AT[:NAME] count|kill|ERRNO[+] PROGRAM [ARGUMENT...]\n");
        return 125;
    }
    log_file = fopen(argv[1], "we");
    if (log_file == NULL)
        die(argv[1]);
    char *name;
    at = strtoul(argv[2], &name, 10);
    name_wanted = *name == ':' ? name + 1 : NULL;
    ever_after = strchr(argv[3], '+') != NULL;
    error_wanted = strcmp(argv[3], "kill") == 0 ? -1 : atoi(argv[3]);
    pid_t child = fork();
    if (child == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0)
            die("TRACEME");
        raise(SIGSTOP);
        execvp(argv[4], argv + 4);
        die(argv[4]);
    }
    int status;
    if (child < 0 || waitpid(child, &status, 0) < 0 || !WIFSTOPPED(status))
        die("start");
    if (ptrace(PTRACE_SETOPTIONS, child, NULL,
               PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK |
                   PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC) < 0)
        die("SETOPTIONS");
    task_of(child);
    if (ptrace(PTRACE_SYSCALL, child, NULL, NULL) < 0)
        die("SYSCALL");
    return run(child);
}
