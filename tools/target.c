/*
 * Looks at the program before it is started; see target.h. ELF: System V gABI chapters 4 and 5;
 * scripts: execve(2), "Interpreter scripts".
 */
#include "tools/target.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "tools/root.h"

#define SCRIPT_DEPTH_MAX 5  /* execve(2): deeper nesting fails */
#define SCRIPT_LINE_MAX 256 /* what the kernel reads of the first line */
#define DYNAMIC_MAX 4096    /* entries of a dynamic section that are looked at */

#if defined(__x86_64__)
#define OWN_MACHINE EM_X86_64
#elif defined(__aarch64__)
#define OWN_MACHINE EM_AARCH64
#else
#error "tools/target.c: which ELF machine is this?"
#endif

/* 0 if path can be executed as far as its mode tells, else -errno. */
static int executable(const char *path)
{
    struct stat st;

    if (stat(path, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode))
        return -EACCES;
    return faccessat(AT_FDCWD, path, X_OK, AT_EACCESS) < 0 ? -errno : 0;
}

/*
 * execvp's search: an empty element of PATH is the current folder; a file that may not be run is
 * passed over.
 */
static int search(const char *name, char path[PATH_MAX])
{
    const char *dir = getenv("PATH");
    int rc, worst = -ENOENT;

    if (strchr(name, '/')) {
        if (strlen(name) >= PATH_MAX)
            return -ENAMETOOLONG;
        strcpy(path, name);
        return executable(path);
    }
    if (name[0] == '\0')
        return -ENOENT;
    if (!dir)
        dir = "/bin:/usr/bin";
    for (;;) {
        const char *end = strchrnul(dir, ':');
        int n = snprintf(path, PATH_MAX, "%.*s%s%s", (int)(end - dir), dir, end > dir ? "/" : "", name);

        if (n > 0 && n < PATH_MAX) {
            rc = executable(path);
            if (rc == 0)
                return 0;
            if (rc == -EACCES)
                worst = rc;
        }
        if (*end == '\0')
            return worst;
        dir = end + 1;
    }
}

/* Will the kernel set AT_SECURE: does the file give an owner, group or capability that the caller does not have? */
static bool gains_privileges(const char *path)
{
    struct stat st;

    if (stat(path, &st) < 0)
        return false;
    if ((st.st_mode & S_ISUID) && st.st_uid != getuid())
        return true;
    if ((st.st_mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP) && st.st_gid != getgid())
        return true;
    return getuid() != 0 && getxattr(path, "security.capability", NULL, 0) > 0;
}

/* Dynamic linkers of glibc, whatever folder they are in (multiarch, Nix …). */
static bool glibc_interp(const char *interp)
{
    const char *base = basename(interp);

    return strncmp(base, "ld-linux", 8) == 0 || strncmp(base, "ld-lsb", 6) == 0 || strncmp(base, "ld.so", 5) == 0;
}

static bool read_at(int fd, void *buf, size_t len, off_t off)
{
    return pread(fd, buf, len, off) == (ssize_t)len;
}

/* An ELF file whose first bytes are in head. */
static enum target_kind classify_elf(int fd, const ElfW(Ehdr) * eh, struct target *t)
{
    t->interp[0] = '\0';
    if (eh->e_ident[EI_CLASS] != ELFCLASS64 || eh->e_ident[EI_DATA] != ELFDATA2LSB || eh->e_machine != OWN_MACHINE)
        return TARGET_MACHINE;
    if (eh->e_phentsize != sizeof(ElfW(Phdr)))
        return TARGET_DYNAMIC; /* the kernel will refuse it */
    for (unsigned i = 0; i < eh->e_phnum; i++) {
        ElfW(Phdr) ph;

        if (!read_at(fd, &ph, sizeof(ph), (off_t)(eh->e_phoff + i * sizeof(ph))))
            return TARGET_DYNAMIC;
        if (ph.p_type != PT_INTERP)
            continue;
        if (ph.p_filesz < 2 || ph.p_filesz > sizeof(t->interp) ||
            !read_at(fd, t->interp, ph.p_filesz, (off_t)ph.p_offset)) {
            t->interp[0] = '\0';
            return TARGET_DYNAMIC;
        }
        t->interp[ph.p_filesz - 1] = '\0';
        return glibc_interp(t->interp) ? TARGET_DYNAMIC : TARGET_FOREIGN;
    }
    return TARGET_STATIC;
}

/* "#! /bin/sh -e" gives "/bin/sh". false if there is no name. */
static bool script_interp(char *line, char path[PATH_MAX])
{
    char *p = line + 2;

    line[strcspn(line, "\n")] = '\0';
    p += strspn(p, " \t");
    p[strcspn(p, " \t")] = '\0';
    if (*p == '\0')
        return false;
    strcpy(path, p); /* SCRIPT_LINE_MAX < PATH_MAX */
    return true;
}

/* A file of the tree below root ("" is this system's), for reading; -1 if it cannot be read. */
static int open_in(const char *root, const char *path)
{
    char *full = root_path(root, path, true);
    int fd = open(full, O_RDONLY | O_CLOEXEC);

    free(full);
    return fd;
}

/* From t->path, a program or script, to the ELF file that decides its kind. */
static void follow(const char *root, struct target *t)
{
    for (int depth = 0; depth < SCRIPT_DEPTH_MAX; depth++) {
        union {
            ElfW(Ehdr) eh;
            char line[SCRIPT_LINE_MAX + 1];
        } head;
        ssize_t n;
        int fd;

        memset(&head, 0, sizeof(head));
        fd = open_in(root, t->path);
        if (fd < 0) /* it may be run but not read: only its mode is known */
            return;
        n = pread(fd, &head, SCRIPT_LINE_MAX, 0);
        if (n >= (ssize_t)sizeof(head.eh) && memcmp(head.eh.e_ident, ELFMAG, SELFMAG) == 0) {
            t->kind = classify_elf(fd, &head.eh, t);
            close(fd);
            return;
        }
        close(fd);
        if (n < 2 || memcmp(head.line, "#!", 2) != 0)
            strcpy(t->path, "/bin/sh"); /* execvp(3) hands what the kernel does not know to the shell */
        else if (!script_interp(head.line, t->path))
            return;
    }
}

int target_find(const char *name, struct target *t)
{
    int rc;

    t->kind = TARGET_DYNAMIC;
    t->interp[0] = '\0';
    rc = search(name, t->path);
    if (rc < 0)
        return rc;
    follow("", t);
    if (gains_privileges(t->path)) {
        t->kind = TARGET_SECURE;
        t->interp[0] = '\0';
    }
    return 0;
}

int target_find_in(const char *root, const char *path, struct target *t)
{
    char *full;
    int rc;

    t->kind = TARGET_DYNAMIC;
    t->interp[0] = '\0';
    if (path[0] != '/' || strlen(path) >= sizeof(t->path))
        return -EINVAL;
    strcpy(t->path, path);
    full = root_path(root, path, true);
    rc = executable(full);
    free(full);
    if (rc == 0)
        follow(root, t);
    return rc;
}

/* The offset in the file of what the dynamic linker will find at an address; 0 if nowhere. */
static off_t offset_of(int fd, const ElfW(Ehdr) * eh, ElfW(Addr) addr)
{
    for (unsigned i = 0; i < eh->e_phnum; i++) {
        ElfW(Phdr) ph;

        if (read_at(fd, &ph, sizeof(ph), (off_t)(eh->e_phoff + i * sizeof(ph))) && ph.p_type == PT_LOAD &&
            addr >= ph.p_vaddr && addr - ph.p_vaddr < ph.p_filesz)
            return (off_t)(ph.p_offset + (addr - ph.p_vaddr));
    }
    return 0;
}

/* The dynamic section: is there a DT_NEEDED whose name begins with this? */
static bool dynamic_needs(int fd, const ElfW(Ehdr) * eh, const ElfW(Phdr) * dynamic, const char *name)
{
    size_t count = dynamic->p_filesz / sizeof(ElfW(Dyn));
    off_t strings = 0;
    ElfW(Dyn) dyn;

    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < count && i < DYNAMIC_MAX; i++) {
            char buf[64] = "";

            if (!read_at(fd, &dyn, sizeof(dyn), (off_t)(dynamic->p_offset + i * sizeof(dyn))))
                return false;
            if (pass == 0 && dyn.d_tag == DT_STRTAB)
                strings = offset_of(fd, eh, dyn.d_un.d_ptr);
            if (pass == 1 && dyn.d_tag == DT_NEEDED &&
                pread(fd, buf, sizeof(buf) - 1, strings + (off_t)dyn.d_un.d_val) > 0 &&
                strncmp(buf, name, strlen(name)) == 0)
                return true;
        }
    return false;
}

bool target_needs(const char *root, const struct target *t, const char *name)
{
    ElfW(Ehdr) eh;
    ElfW(Phdr) ph;
    bool found = false;
    int fd = open_in(root, t->path);

    if (fd < 0)
        return false;
    if (read_at(fd, &eh, sizeof(eh), 0) && memcmp(eh.e_ident, ELFMAG, SELFMAG) == 0 &&
        eh.e_ident[EI_CLASS] == ELFCLASS64 && eh.e_phentsize == sizeof(ph))
        for (unsigned i = 0; i < eh.e_phnum && !found; i++)
            if (read_at(fd, &ph, sizeof(ph), (off_t)(eh.e_phoff + i * sizeof(ph))) && ph.p_type == PT_DYNAMIC)
                found = dynamic_needs(fd, &eh, &ph, name);
    close(fd);
    return found;
}
