/* Following symbolic links as chroot(2) makes the kernel do, see root.h: path_resolution(7). */
#include "tools/root.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/usage.h"

#define LINKS_MAX 40 /* as the kernel's */

struct walk {
    const char *root;
    char *done; /* the part that has been resolved, without root */
    unsigned links;
};

/* Where the link that was reached leads. false: it is no link. */
static bool read_link(const struct walk *w, char target[PATH_MAX])
{
    char *full = text_of("%s%s", w->root, w->done);
    ssize_t n = readlink(full, target, PATH_MAX - 1);

    free(full);
    target[n > 0 ? n : 0] = '\0';
    return n > 0;
}

static void leave(struct walk *w)
{
    char *slash = strrchr(w->done, '/');

    if (slash)
        *slash = '\0';
}

static void enter(struct walk *w, const char *name, size_t len)
{
    char *longer = text_of("%s/%.*s", w->done, (int)len, name);

    free(w->done);
    w->done = longer;
}

static void walk(struct walk *w, const char *path, bool last)
{
    char target[PATH_MAX];

    if (path[0] == '/')
        w->done[0] = '\0';
    for (path += strspn(path, "/"); *path != '\0'; path += strspn(path, "/")) {
        const char *name = path;
        size_t len = strcspn(name, "/");

        path += len;
        if (len == 1 && name[0] == '.')
            continue;
        if (len == 2 && name[0] == '.' && name[1] == '.') {
            leave(w);
            continue;
        }
        enter(w, name, len);
        if ((path[strspn(path, "/")] == '\0' && !last) || !read_link(w, target))
            continue;
        if (++w->links > LINKS_MAX)
            return;
        leave(w);
        walk(w, target, true);
    }
}

char *root_path(const char *root, const char *path, bool last)
{
    struct walk w = { .root = root, .done = text_of("%s", "") };
    char *full;

    if (root[0] != '\0')
        walk(&w, path, last);
    if (w.links > LINKS_MAX)
        full = text_of("/dev/null%s", path); /* nothing can be below that */
    else
        full = text_of("%s%s", root, root[0] != '\0' ? w.done : path);
    free(w.done);
    return full;
}
