/*
 * What an exec starts.
 */
#include "preload/process/program.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "core/base/rawsys.h"

#if defined(__aarch64__)
#define OUR_MACHINE EM_AARCH64
#else
#define OUR_MACHINE EM_X86_64
#endif

/* (Some file systems let a signal interrupt it.) */
static ssize_t read_at(int fd, void *buf, size_t len, off_t at)
{
    ssize_t n;
    do
        n = pread(fd, buf, len, at);
    while (n < 0 && errno == EINTR);
    return n;
}

/* Judges by the interpreter that an ELF file names. */
static enum loads by_interpreter(int fd, const Elf64_Ehdr *eh)
{
    enum loads loads = LOADS_NOT;
    Elf64_Phdr ph;
    char name[256] = "";
    for (unsigned i = 0; i < eh->e_phnum && loads == LOADS_NOT; i++) {
        if (read_at(fd, &ph, sizeof(ph), (off_t)(eh->e_phoff + i * sizeof(ph))) != sizeof(ph))
            break;
        if (ph.p_type != PT_INTERP)
            continue;
        size_t len = ph.p_filesz < sizeof(name) - 1 ? ph.p_filesz : sizeof(name) - 1;
        if (read_at(fd, name, len, (off_t)ph.p_offset) == (ssize_t)len)
            loads = strstr(name, "musl") != NULL ? LOADS_MUSL : LOADS_US;
    }
    return loads;
}

/*
 * The kernel tells the dynamic linker to ignore LD_PRELOAD when an exec raises rights. It also does so for every exec
 * of a process whose real and effective users differ.
 */
static bool gains_rights(const struct stat *st, bool by_capabilities)
{
    return (st->st_mode & S_ISUID && st->st_uid != getuid()) || (st->st_mode & S_ISGID && st->st_gid != getgid()) ||
           by_capabilities || getuid() != geteuid() || getgid() != getegid();
}

#define CAPABILITIES "security.capability"

/* A program that executes itself loads what it has loaded, also where no descriptor is free to look at the file. */
static bool is_itself(int dirfd, const char *path)
{
    static const char itself[] = "/proc/self/exe";
    struct stat st, us;
    return fstatat(dirfd, path, &st, 0) == 0 && stat(itself, &us) == 0 && st.st_dev == us.st_dev &&
           st.st_ino == us.st_ino && !gains_rights(&st, getuid() != 0 && getxattr(itself, CAPABILITIES, NULL, 0) > 0);
}

static enum loads file_loads(int dirfd, const char *path, unsigned depth)
{
    union {
        Elf64_Ehdr eh;
        char text[256];
    } head = { .text = "" };
    struct stat st;
    int fd = (int)rawsys4(__NR_openat, dirfd, (long)path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0);
    if (fd < 0)
        return is_itself(dirfd, path) ? LOADS_US : LOADS_NOT;
    enum loads loads = LOADS_NOT;
    ssize_t n = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? read_at(fd, &head, sizeof(head) - 1, 0) : -1;
    bool elf = n >= (ssize_t)sizeof(head.eh) && memcmp(head.eh.e_ident, ELFMAG, SELFMAG) == 0;
    if (elf) {
        if (head.eh.e_ident[EI_CLASS] == ELFCLASS64 && head.eh.e_machine == OUR_MACHINE &&
            head.eh.e_phentsize == sizeof(Elf64_Phdr) &&
            !gains_rights(&st, getuid() != 0 && fgetxattr(fd, CAPABILITIES, NULL, 0) > 0))
            loads = by_interpreter(fd, &head.eh);
    } else if (n > 2 && head.text[0] == '#' && head.text[1] == '!' && depth < 5) {
        char *name = head.text + 2 + strspn(head.text + 2, " \t");
        name[strcspn(name, " \t\n")] = '\0';
        loads = file_loads(AT_FDCWD, name, depth + 1);
    } else if (n >= 0 && depth == 0) {
        /* execvp and the shells start a script without #! this way. */
        loads = file_loads(AT_FDCWD, "/bin/sh", 1);
    }
    rawsys_close(fd);
    return loads;
}

enum loads program_loads(int dirfd, const char *path)
{
    int err = errno;
    /* Where the exec must fail, nothing is ended for it: callers try one folder after another. */
    struct stat st;
    bool runs = path != NULL && faccessat(dirfd, path, X_OK, AT_EACCESS) == 0 &&
                !(fstatat(dirfd, path, &st, 0) == 0 && S_ISDIR(st.st_mode));
    enum loads loads = runs ? file_loads(dirfd, path, 0) : LOADS_US;
    errno = err;
    return loads;
}

/* ---- the library ---- */

static struct stat start_root;

void program_start(void)
{
    if (stat("/", &start_root) < 0)
        start_root.st_ino = 0;
}

static bool same_root(void)
{
    struct stat st;
    return start_root.st_ino != 0 && stat("/", &st) == 0 && st.st_dev == start_root.st_dev &&
           st.st_ino == start_root.st_ino;
}

/*
 * The linker looks up a name that has no folder, or that has $LIB and the like. With the same root it finds what it
 * found for us.
 */
bool program_finds(const char *preload)
{
    char name[PATH_MAX];
    int err = errno;
    const char *p = strstr(preload, "libsockwarp"), *begin = p;
    while (begin != NULL && begin > preload && strchr(": =", begin[-1]) == NULL)
        begin--;
    size_t len = begin != NULL ? strcspn(begin, ": ") : sizeof(name);
    bool finds = false;
    if (len < sizeof(name)) {
        memcpy(name, begin, len);
        name[len] = '\0';
        /* (Not by opening it: a process that may have no descriptor more is not the next program.) */
        if (name[0] == '/' && strchr(name, '$') == NULL)
            finds = faccessat(AT_FDCWD, name, R_OK, AT_EACCESS) == 0;
        else
            finds = same_root();
    }
    errno = err;
    return finds;
}

const char *program_search(const char *file, char *buf, size_t cap)
{
    if (strchr(file, '/') != NULL)
        return file;
    const char *path = getenv("PATH");
    for (const char *p = path != NULL ? path : "/bin:/usr/bin"; *p != '\0';) {
        size_t len = strcspn(p, ":");
        if (len + strlen(file) + 2 <= cap) {
            memcpy(buf, p, len);
            buf[len] = '/';
            strcpy(buf + (len > 0 ? len + 1 : 0), file);
            if (access(buf, X_OK) == 0)
                return buf;
        }
        p += len;
        p += *p == ':';
    }
    return NULL;
}
