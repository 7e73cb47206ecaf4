/* The user's folder in memory; see folder.h. */
#include "preload/process/folder.h"

#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "core/base/rawsys.h"
#include "preload/process/board_format.h"
#include "preload/process/sandbox.h"

#define NAME_LEN 64u

int folder_open(void)
{
    char name[NAME_LEN];
    struct stat st = { 0 };
    uid_t me = rawsys_geteuid();
    snprintf(name, sizeof(name), BOARD_FOLDER, (unsigned)me);
    (void)rawsys4(__NR_mkdirat, AT_FDCWD, (long)name, 0700, 0);
    int fd = rawsys_open(name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    if (rawsys4(__NR_fstat, fd, (long)&st, 0, 0) == 0 && (st.st_mode & 077) == 0 && st.st_uid == me)
        return fd;
    rawsys_close(fd);
    return -1;
}

static bool is_ours(int fd, size_t len)
{
    struct statfs fs;
    struct stat st = { 0 };
    memset(&fs, 0, sizeof(fs));
    return rawsys4(__NR_fstatfs, fd, (long)&fs, 0, 0) == 0 && fs.f_type == TMPFS_MAGIC &&
           rawsys4(__NR_fstat, fd, (long)&st, 0, 0) == 0 && st.st_uid == rawsys_geteuid() && (st.st_mode & 077) == 0 &&
           S_ISREG(st.st_mode) && (size_t)st.st_size == len;
}

/* May a file be so long? A longer one would raise SIGXFSZ. */
static bool may_be_long(size_t len)
{
    struct rlimit lim = { 0 };
    return rawsys4(__NR_prlimit64, 0, RLIMIT_FSIZE, 0, (long)&lim) == 0 &&
           (lim.rlim_cur == RLIM_INFINITY || lim.rlim_cur >= len);
}

int folder_file(const char *name, size_t len, bool make)
{
    int flags = (make ? O_RDWR | O_CREAT : O_RDONLY) | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
    if (sandbox_on() || (make && !may_be_long(len)))
        return -1;
    int folder = folder_open();
    if (folder < 0)
        return -1;
    int fd = (int)rawsys4(__NR_openat, folder, (long)name, flags, 0600);
    rawsys_close(folder);
    if (fd < 0)
        return -1;
    /* (fallocate lengthens it; and a full file system must not end by SIGBUS a process that maps it.) */
    if ((!make || rawsys4(__NR_fallocate, fd, 0, 0, (long)len) == 0) && is_ours(fd, len))
        return fd;
    rawsys_close(fd);
    return -1;
}
