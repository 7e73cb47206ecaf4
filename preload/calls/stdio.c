/*
 * stdio: fdopen, freopen, the standard streams, dprintf.
 *
 * glibc's file streams call read and write inside libc, where no call can be intercepted: raw bytes between FPDUs. So a
 * stream on a descriptor that is a TCP socket, connected or not yet, is made by fopencookie, and its functions are our
 * read, write and close. It gets its descriptor's number, for fileno() and for code that looks, through the member of
 * FILE that <stdio.h> shows, and the buffer that glibc gives a socket. It cannot be wide-oriented: glibc has no such
 * cookie streams.
 *
 * The standard streams exist before any descriptor is ours. When 0, 1 or 2 becomes a socket, a cookie stream takes the
 * place in stdin, stdout or stderr, and what the old stream had buffered goes along. The old one, to which the program
 * may still have pointers, loses its descriptor: its calls fail with EBADF and cannot damage the connection. The C++
 * runtime's pointers, in cin and cout, are found and changed. The new stream stays for ever: on a descriptor that is
 * not ours its functions are the plain read and write.
 */
#include "preload/calls/stdio.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/single_threaded.h>
#include <sys/wait.h>
#include <unistd.h>
#include <wchar.h>

#include "preload/calls/fdops.h"
#include "preload/conn/conn.h"
#include "preload/process/proc.h"
#include "preload/process/real.h"
#include "preload/startup/dispatch.h"

#define SOCKET_BUF_LEN 4096 /* st_blksize of a socket */
#define FILE_UNBUFFERED 2   /* FILE._flags, as setvbuf(_IONBF) sets it */

/* Beside a FILE of ours. Linked once and never freed, but used again: so it is walked through without a lock. */
struct stdio_stream {
    _Atomic(FILE *) file;      /* NULL: not in use */
    struct stdio_stream *next; /* constant once linked */
    FILE *old;                 /* the standard stream it has replaced, or NULL */
    int fd;
    pid_t child; /* popen's, else 0 */
    bool used;   /* bytes went through it */
    char *buf;   /* the stream's buffer unless the program gave another one */
    char *ahead; /* bytes the replaced stream had read, and of them the ones not given out yet */
    size_t ahead_off, ahead_len;
};

static FILE claimed; /* a stream's file while it is being made */
static _Atomic(struct stdio_stream *) streams;
static bool in_child;         /* of a fork */
static _Atomic bool finished; /* the program's exit has reached our destructor */

static FILE **const std_var[] = { &stdin, &stdout, &stderr };

static struct stdio_stream *stdio_claim(void)
{
    for (struct stdio_stream *st = atomic_load(&streams); st != NULL; st = st->next) {
        FILE *none = NULL;
        if (atomic_compare_exchange_strong(&st->file, &none, &claimed))
            return st;
    }
    struct stdio_stream *st = calloc(1, sizeof(*st));
    if (st == NULL)
        return NULL;
    atomic_store(&st->file, &claimed);
    st->next = atomic_load(&streams);
    while (!atomic_compare_exchange_weak(&streams, &st->next, st))
        ;
    return st;
}

static struct stdio_stream *stdio_of(const FILE *file)
{
    for (struct stdio_stream *st = atomic_load(&streams); st != NULL; st = st->next)
        if (file != NULL && atomic_load(&st->file) == file)
            return st;
    return NULL;
}

static void stdio_release(struct stdio_stream *st)
{
    free(st->buf);
    free(st->ahead);
    st->buf = st->ahead = NULL;
    atomic_store(&st->file, NULL);
}

/* ---- the functions of a cookie stream ---- */

static ssize_t stdio_read(void *cookie, char *buf, size_t len)
{
    struct stdio_stream *st = cookie;
    st->used = true;
    size_t ahead = st->ahead_len - st->ahead_off;
    if (ahead == 0)
        return read(st->fd, buf, len);
    if (len > ahead)
        len = ahead;
    memcpy(buf, st->ahead + st->ahead_off, len);
    st->ahead_off += len;
    return (ssize_t)len;
}

/* As a file stream writes: until all is written or a write fails. */
static ssize_t stdio_write(void *cookie, const char *buf, size_t len)
{
    struct stdio_stream *st = cookie;
    st->used = true;
    size_t done = 0;
    while (done < len) {
        ssize_t n = write(st->fd, buf + done, len - done);
        if (n < 0)
            break;
        done += (size_t)n;
    }
    /* exit() flushes streams after all destructors. */
    if (atomic_load(&finished)) {
        int err = errno;
        dispatch_settle_all();
        errno = err;
    }
    return (ssize_t)done;
}

/* A socket says ESPIPE; and the descriptor may have become a file's meanwhile. */
static int stdio_seek(void *cookie, off64_t *pos, int whence)
{
    struct stdio_stream *st = cookie;
    off64_t at = lseek64(st->fd, *pos, whence);
    if (at < 0)
        return -1;
    *pos = at;
    return 0;
}

static int stdio_close(void *cookie)
{
    struct stdio_stream *st = cookie;
    FILE *file = atomic_load(&st->file);
    int fd = st->fd, status;
    pid_t child = st->child;
    /* A standard stream's memory stays when it is closed, and programs close them twice. */
    for (int i = 0; i <= STDIO_STD_MAX; i++)
        if (st->old != NULL && *std_var[i] == file)
            *std_var[i] = st->old;
    stdio_release(st); /* fclose goes on with the FILE, but not with its bytes */
    int r = close(fd);
    if (child == 0)
        return r;
    pid_t got;
    do
        got = waitpid(child, &status, 0);
    while (got < 0 && errno == EINTR);
    return got < 0 ? -1 : status; /* fclose returns it, and pclose is fclose */
}

/* A cookie stream like `plain`, which fdopen has just made of fd; plain goes. NULL: no memory. */
static FILE *stdio_over(int fd, FILE *plain, bool append)
{
    static const cookie_io_functions_t io = {
        .read = stdio_read, .write = stdio_write, .seek = stdio_seek, .close = stdio_close
    };
    bool both = __freadable(plain) && __fwritable(plain);
    const char *mode = append ? (both ? "a+" : "a") : both ? "r+" : __freadable(plain) ? "r" : "w";
    struct stdio_stream *st = stdio_claim();
    char *buf = malloc(SOCKET_BUF_LEN);
    FILE *file = st != NULL && buf != NULL ? fopencookie(st, mode, io) : NULL;
    plain->_fileno = -1;
    fclose(plain);
    if (file == NULL) {
        free(buf);
        if (st != NULL)
            atomic_store(&st->file, NULL);
        errno = ENOMEM;
        return NULL;
    }
    setvbuf(file, buf, _IOFBF, SOCKET_BUF_LEN);
    file->_fileno = fd;
    st->old = NULL;
    st->fd = fd;
    st->child = 0;
    st->used = false;
    st->buf = buf;
    st->ahead_off = st->ahead_len = 0;
    atomic_store(&st->file, file);
    return file;
}

/* ---- calls ---- */

/* Is fd a socket of ours, that is or can become upgraded? */
static bool tracked(int fd)
{
    struct sock *s = proc_on() ? sock_get(fd) : NULL;
    if (s != NULL)
        sock_put(s);
    return s != NULL && !proc_is_borrowed();
}

FILE *fdopen(int fd, const char *mode)
{
    FILE *plain = REAL(fdopen)(fd, mode);
    if (plain == NULL || !tracked(fd))
        return plain;
    return stdio_over(fd, plain, mode[0] == 'a');
}

FILE *stdio_pipe(int fd, const char *mode)
{
    FILE *plain = REAL(fdopen)(fd, mode);
    return plain != NULL ? stdio_over(fd, plain, false) : NULL;
}

void stdio_pipe_to(FILE *file, pid_t child)
{
    stdio_of(file)->child = child;
}

int stdio_close_pipes(posix_spawn_file_actions_t *fa)
{
    int r = 0;
    for (struct stdio_stream *st = atomic_load(&streams); st != NULL && r == 0; st = st->next)
        if (atomic_load(&st->file) != NULL && st->child != 0 && !(REAL(fcntl)(st->fd, F_GETFD) & FD_CLOEXEC))
            r = posix_spawn_file_actions_addclose(fa, st->fd);
    return r;
}

/* libc closes or replaces the descriptor by itself, and makes a file stream of a cookie stream. */
static FILE *reopened(const char *path, const char *mode, FILE *file, bool large)
{
    struct stdio_stream *st = stdio_of(file);
    int fd = file->_fileno;
    /* libc expects the wide half that every file stream has: it gets that of a stream which has no other use. */
    FILE *wide = st != NULL ? REAL(fdopen)(fd, "r+") : NULL;
    if (st != NULL && wide != NULL) {
        wide->_fileno = -1;
        file->_wide_data = wide->_wide_data;
    } else if (st != NULL) {
        fclose(file);
        return NULL;
    }
    struct sock *left = NULL;
    if (tracked(fd)) {
        fflush(file);
        left = fdops_close_begin(fd, false);
    }
    FILE *f = large ? REAL(freopen64)(path, mode, file) : REAL(freopen)(path, mode, file);
    fdops_close_end(fd, left);
    if (st != NULL)
        stdio_release(st);
    return f;
}

FILE *freopen(const char *path, const char *mode, FILE *file)
{
    return reopened(path, mode, file, false);
}

FILE *freopen64(const char *path, const char *mode, FILE *file)
{
    return reopened(path, mode, file, true);
}

static bool active(int fd)
{
    struct sock *s = proc_on() ? sock_get_active(fd) : NULL;
    if (s != NULL)
        sock_put(s);
    return s != NULL;
}

/* glibc declares it to fortified programs only; flag 0: not one of them. */
extern int __vasprintf_chk(char **text, int flag, const char *format, va_list ap);

static int print_to(int fd, int flag, const char *format, va_list ap)
{
    char *text;
    int len = __vasprintf_chk(&text, flag, format, ap);
    if (len < 0)
        return -1;
    size_t done = 0;
    while (done < (size_t)len) {
        ssize_t n = write(fd, text + done, (size_t)len - done);
        if (n < 0)
            break;
        done += (size_t)n;
    }
    free(text);
    return done < (size_t)len ? -1 : len;
}

int vdprintf(int fd, const char *format, va_list ap)
{
    return active(fd) ? print_to(fd, 0, format, ap) : REAL(vdprintf)(fd, format, ap);
}

int(dprintf)(int fd, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    int n = active(fd) ? print_to(fd, 0, format, ap) : REAL(vdprintf)(fd, format, ap);
    va_end(ap);
    return n;
}

extern int __vdprintf_chk(int fd, int flag, const char *format, va_list ap);
int __vdprintf_chk(int fd, int flag, const char *format, va_list ap)
{
    return active(fd) ? print_to(fd, flag, format, ap) : REAL(__vdprintf_chk)(fd, flag, format, ap);
}

extern int __dprintf_chk(int fd, int flag, const char *format, ...);
int __dprintf_chk(int fd, int flag, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    int n = active(fd) ? print_to(fd, flag, format, ap) : REAL(__vdprintf_chk)(fd, flag, format, ap);
    va_end(ap);
    return n;
}

/* ---- the standard streams ---- */

struct cxx {
    uintptr_t from, to; /* the FILE that was, and its successor */
    uintptr_t inside;   /* an address in the runtime */
};

/* In its data, but for what is read-only after relocation. */
static int cxx_change(struct dl_phdr_info *info, size_t size, void *arg)
{
    (void)size;
    const struct cxx *cxx = arg;
    bool here = false;
    uintptr_t ro = 0, ro_end = 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        uintptr_t at = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr, end = at + info->dlpi_phdr[i].p_memsz;
        here = here || (info->dlpi_phdr[i].p_type == PT_LOAD && at <= cxx->inside && cxx->inside < end);
        if (info->dlpi_phdr[i].p_type == PT_GNU_RELRO) {
            ro = at;
            ro_end = end;
        }
    }
    for (int i = 0; here && i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type != PT_LOAD || !(info->dlpi_phdr[i].p_flags & PF_W))
            continue;
        uintptr_t at = (info->dlpi_addr + info->dlpi_phdr[i].p_vaddr + 7) & ~(uintptr_t)7;
        uintptr_t end = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr + info->dlpi_phdr[i].p_memsz;
        for (; at + sizeof(uintptr_t) <= end; at += sizeof(uintptr_t))
            if ((at < ro || at >= ro_end) && *(uintptr_t *)at == cxx->from)
                *(uintptr_t *)at = cxx->to;
    }
    return here;
}

/*
 * The buffers behind cin, cout and their kin keep the FILE they were made with, in the data of the
 * C++ runtime; what is there and equals the old FILE's address is such a pointer.
 */
static void cxx_follow(FILE *from, FILE *to)
{
    /* libstdc++'s and libc++'s */
    static const char *const init[] = { "_ZNSt8ios_base4InitC1Ev", "_ZNSt3__18ios_base4InitC1Ev" };
    if (in_child && !__libc_single_threaded)
        return; /* the loader's lock may be held by a thread that is not here; mostly an exec is next */
    for (size_t i = 0; i < SW_ARRAY_LEN(init); i++) {
        void *inside = dlsym(RTLD_DEFAULT, init[i]);
        struct cxx cxx = { (uintptr_t)from, (uintptr_t)to, (uintptr_t)inside };
        if (inside != NULL)
            dl_iterate_phdr(cxx_change, &cxx);
    }
}

static void buffer_as(struct stdio_stream *st, FILE *file, FILE *old)
{
    size_t len = __fbufsize(old);
    if (old->_flags & FILE_UNBUFFERED) {
        setvbuf(file, NULL, _IONBF, 0);
        return;
    }
    char *buf = len > 1 && len != SOCKET_BUF_LEN ? malloc(len) : NULL;
    if (buf != NULL) {
        setvbuf(file, buf, _IOFBF, len);
        free(st->buf);
        st->buf = buf;
    }
    if (__flbf(old))
        setlinebuf(file);
}

/* What the old stream has read and the program has not. */
static void move_input(struct stdio_stream *st, FILE *old)
{
    size_t room = 0;
    for (int c; (c = getc_unlocked(old)) != EOF;) { /* until it would read on its descriptor, and has none */
        if (st->ahead_len == room) {
            char *more = realloc(st->ahead, room = room ? 2 * room : 64);
            if (more == NULL)
                return;
            st->ahead = more;
        }
        st->ahead[st->ahead_len++] = (char)c;
    }
}

static void move(struct stdio_stream *st, FILE *file, FILE *old)
{
    int flags = old->_flags & (_IO_EOF_SEEN | _IO_ERR_SEEN);
    buffer_as(st, file, old);
    __fsetlocking(file, __fsetlocking(old, FSETLOCKING_QUERY));
    if (fwide(old, 0) > 0) {
        __fpurge(old);
    } else if (__fwriting(old)) {
        fwrite_unlocked(old->_IO_write_base, 1, __fpending(old), file);
        __fpurge(old);
    } else if (__freadable(old) && !(flags & _IO_EOF_SEEN)) {
        move_input(st, old);
    }
    file->_flags |= flags;
}

/* A stream over the same descriptor in place of old. */
static void replace(FILE *old, int fd)
{
    bool both = __freadable(old) && __fwritable(old);
    FILE *plain = REAL(fdopen)(fd, both ? "r+" : __freadable(old) ? "r" : "w");
    FILE *file = plain != NULL ? stdio_over(fd, plain, false) : NULL;
    struct stdio_stream *st = stdio_of(file);
    /* A thread that sleeps in a read of the old one has it locked, and what it reads is not of the new descriptor. */
    bool locked = ftrylockfile(old) == 0;
    old->_fileno = -1;
    if (file == NULL || st == NULL)
        return; /* no memory: no standard stream is better than damage */
    st->old = old;
    if (locked)
        move(st, file, old);
    else if (old->_flags & FILE_UNBUFFERED)
        setvbuf(file, NULL, _IONBF, 0);
    for (int i = 0; i <= STDIO_STD_MAX; i++)
        if (*std_var[i] == old)
            *std_var[i] = file;
    cxx_follow(old, file);
    if (locked)
        funlockfile(old);
}

/* A connection that was found to stay plain is the kernel's alone. */
static bool needs_us(int fd)
{
    struct sock *s = proc_on() ? sock_get(fd) : NULL;
    if (s == NULL)
        return false;
    bool needs = s->kind != SOCK_LISTENER && s->kind != SOCK_BRIDGED &&
                 (s->kind != SOCK_CONN || atomic_load(&s->active) || conn_state(s->conn) != CONN_PLAIN);
    sock_put(s);
    return needs;
}

void stdio_std_now(int fd)
{
    int err = errno;
    bool needs = needs_us(fd);
    for (int i = 0; i <= STDIO_STD_MAX; i++) {
        FILE *file = *std_var[i];
        if (file == NULL || file->_fileno != fd)
            continue;
        struct stdio_stream *st = stdio_of(file);
        if (needs == (st != NULL) || proc_is_borrowed())
            continue;
        if (needs)
            replace(file, fd);
        else if (!st->used && __fpending(file) == 0 && isatty(fd))
            setlinebuf(file); /* libc looks when a stream is first used */
    }
    errno = err;
}

void stdio_start(void)
{
    for (int fd = 0; fd <= STDIO_STD_MAX; fd++)
        stdio_std_now(fd);
}

void stdio_finish(void)
{
    for (struct stdio_stream *st = atomic_load(&streams); st != NULL; st = st->next) {
        FILE *file = atomic_load(&st->file);
        /* (Without its lock, as libc does at exit: a thread may sleep in a read.) */
        if (file != NULL && file != &claimed && __fwriting(file) && __fpending(file) > 0 && active(st->fd))
            fflush_unlocked(file);
    }
    atomic_store(&finished, true);
}

void stdio_after_fork(void)
{
    in_child = true;
}
