/* Finding the preload library, and LD_PRELOAD (ld.so(8)); see library.h. */
#include "tools/library.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/usage.h"

#define LIBRARY_NAME "libsockwarp.so"

/* 0 if path is a shared object of this word size that can be read. */
static int check(const char *path)
{
    ElfW(Ehdr) eh;
    ssize_t n;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return -errno;
    n = pread(fd, &eh, sizeof(eh), 0);
    close(fd);
    if (n != (ssize_t)sizeof(eh) || memcmp(eh.e_ident, ELFMAG, SELFMAG) != 0 || eh.e_ident[EI_CLASS] != ELFCLASS64 ||
        eh.e_type != ET_DYN)
        return -ENOEXEC;
    return 0;
}

/* The real name of the first of TOP/PLACE/NAME that is there, TOP being this program's folder. */
static bool beside(const char *const *places, size_t n, const char *name, char path[PATH_MAX])
{
    char self[PATH_MAX], *slash;
    ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);

    if (len <= 0)
        return false;
    self[len] = '\0';
    slash = strrchr(self, '/');
    if (!slash)
        return false;
    *slash = '\0';
    for (size_t i = 0; i < n; i++) {
        char *tried = text_of("%s/%s%s", self, places[i], name);
        bool found = realpath(tried, path) != NULL;

        free(tried);
        if (found)
            return true;
    }
    return false;
}

/*
 * In a build tree the program is TOP/sockwarp, TOP/.libs/sockwarp (started by libtool's wrapper) or one folder further
 * down, and the library is TOP/.libs/libsockwarp.so.
 */
static bool in_build_tree(char path[PATH_MAX])
{
    static const char *const places[] = { ".libs/", "../.libs/" };

    return beside(places, SW_ARRAY_LEN(places), LIBRARY_NAME, path);
}

bool library_source(const char *name, char path[PATH_MAX])
{
    static const char *const places[] = { "", "../", "../../", "../../../" };

    return in_build_tree(path) && beside(places, SW_ARRAY_LEN(places), name, path);
}

int library_find(char *path, char *err, size_t cap)
{
    const char *given = getenv("SOCKWARP_LIBRARY");
    const char *name = given && given[0] != '\0' ? given : SW_PKGLIBDIR "/" LIBRARY_NAME;
    int rc;

    if (name == given || !in_build_tree(path)) {
        if (!realpath(name, path)) {
            rc = -errno;
            snprintf(err, cap, "cannot read the library %s: %s", name, strerror(-rc));
            return rc;
        }
    }
    rc = check(path);
    if (rc < 0) {
        snprintf(err, cap, "cannot read the library %s: %s", path,
                 rc == -ENOEXEC ? "it is not a shared object" : strerror(-rc));
        return rc;
    }
    /* ld.so(8): elements are separated by spaces or colons, "and there is no support for escaping". */
    if (strpbrk(path, ": \t")) {
        snprintf(err, cap, "LD_PRELOAD cannot hold the name of the library %s", path);
        return -EINVAL;
    }
    return 0;
}

char *library_preload(const char *old, const char *lib, bool add)
{
    char *value = text_of("%s", add ? lib : "");

    if (!old)
        old = "";
    for (old += strspn(old, ": "); *old != '\0'; old += strspn(old, ": ")) {
        size_t n = strcspn(old, ": ");

        if (n != strlen(lib) || memcmp(old, lib, n) != 0) {
            char *longer = text_of("%s%s%.*s", value, value[0] ? ":" : "", (int)n, old);

            free(value);
            value = longer;
        }
        old += n;
    }
    return value;
}
