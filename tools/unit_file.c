/*
 * Reading a unit as systemd does: the first file of that name in the order of the folders, and then the drop-ins of all
 * of them by their names; see unit_file.h.
 */
#include "tools/unit_file.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/root.h"
#include "tools/usage.h"

#define SUFFIX ".service"
#define ALIAS_DEPTH_MAX 8
#define LINE_LEN_MAX 65536

/* systemd.unit(5), "Unit File Load Path", of the system manager. */
static const char *const folders[] = {
    "/etc/systemd/system.control",
    "/run/systemd/system.control",
    "/run/systemd/transient",
    "/run/systemd/generator.early",
    UNIT_ADMIN_FOLDER,
    "/etc/systemd/system.attached",
    "/run/systemd/system",
    "/run/systemd/system.attached",
    "/run/systemd/generator",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
    "/run/systemd/generator.late",
};

/* ---- settings ---- */

static void add(struct unit *u, const char *key, const char *value)
{
    struct unit_setting *more = realloc(u->settings, (u->count + 1) * sizeof(*more));

    if (!more)
        die("%s", strerror(ENOMEM));
    u->settings = more;
    u->settings[u->count++] = (struct unit_setting){ text_of("%s", key), text_of("%s", value) };
}

void unit_free(struct unit *u)
{
    for (size_t i = 0; i < u->count; i++) {
        free(u->settings[i].key);
        free(u->settings[i].value);
    }
    free(u->settings);
    u->settings = NULL;
    u->count = 0;
}

const char *unit_value(const struct unit *u, const char *key)
{
    for (size_t i = u->count; i > 0; i--)
        if (strcmp(u->settings[i - 1].key, key) == 0)
            return u->settings[i - 1].value[0] != '\0' ? u->settings[i - 1].value : NULL;
    return NULL;
}

bool unit_is_on(const struct unit *u, const char *key)
{
    static const char *const yes[] = { "1", "yes", "y", "true", "t", "on" };
    const char *value = unit_value(u, key);

    for (size_t i = 0; value && i < SW_ARRAY_LEN(yes); i++)
        if (strcasecmp(value, yes[i]) == 0)
            return true;
    return false;
}

const char *unit_next(const struct unit *u, const char *key, size_t *at)
{
    if (*at == 0)
        for (size_t i = 0; i < u->count; i++)
            if (strcmp(u->settings[i].key, key) == 0 && u->settings[i].value[0] == '\0')
                *at = i + 1;
    for (; *at < u->count; ++*at)
        if (strcmp(u->settings[*at].key, key) == 0)
            return u->settings[(*at)++].value;
    return NULL;
}

bool unit_word(const char **text, char *word, size_t cap)
{
    const char *p = *text + strspn(*text, " \t");
    size_t len = 0;
    char quote = '\0';

    if (*p == '\0')
        return false;
    for (; *p != '\0' && (quote || (*p != ' ' && *p != '\t')); p++) {
        if (quote ? *p == quote : *p == '"' || *p == '\'') {
            quote = quote ? '\0' : *p;
            continue;
        }
        if (*p == '\\' && p[1] != '\0')
            p++;
        if (len + 1 >= cap)
            return false;
        word[len++] = *p;
    }
    word[len] = '\0';
    *text = p;
    return true;
}

/* ---- files ---- */

/* One logical line of the section [Service]. */
static void parse_line(struct unit *u, char *line, bool *service)
{
    char *equals, *end;

    line += strspn(line, " \t");
    end = line + strlen(line);
    while (end > line && strchr(" \t\r\n", end[-1]))
        *--end = '\0';
    if (line[0] == '[') {
        *service = strcmp(line, "[Service]") == 0;
        return;
    }
    equals = strchr(line, '=');
    if (!*service || !equals)
        return;
    for (end = equals; end > line && strchr(" \t", end[-1]); end--)
        ;
    *end = '\0';
    add(u, line, equals + 1 + strspn(equals + 1, " \t"));
}

/* Lines that end in a backslash go on in the next one, over comments. 0 or -errno. */
static int parse(struct unit *u, const char *path)
{
    FILE *f = fopen(path, "re");
    char *line = NULL, *whole = NULL;
    size_t cap = 0, len = 0;
    bool service = false;
    ssize_t n;

    if (!f)
        return -errno;
    whole = malloc(LINE_LEN_MAX);
    if (!whole)
        die("%s", strerror(ENOMEM));
    while ((n = getline(&line, &cap, f)) >= 0) {
        const char *p = line + strspn(line, " \t");

        if (*p == '#' || *p == ';')
            continue;
        while (n > 0 && strchr("\r\n", line[n - 1]))
            line[--n] = '\0';
        bool more = n > 0 && line[n - 1] == '\\';
        if (more)
            line[n - 1] = ' ';
        if (len + (size_t)n >= LINE_LEN_MAX)
            break;
        memcpy(whole + len, line, (size_t)n + 1);
        len += (size_t)n;
        if (more)
            continue;
        parse_line(u, whole, &service);
        len = 0;
    }
    free(line);
    free(whole);
    fclose(f);
    return 0;
}

/* ---- the unit's names ---- */

static bool valid_name(const char *name)
{
    return name[0] != '\0' && name[0] != '.' && strlen(name) <= UNIT_NAME_MAX &&
           name[strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:-_.\\@")] == '\0';
}

/* "foo@bar.service" -> "foo@.service". false: no instance of a template. */
static bool template_of(const char *name, char out[UNIT_NAME_MAX + 1])
{
    const char *at = strchr(name, '@');

    if (!at || strcmp(at, "@" SUFFIX) == 0)
        return false;
    snprintf(out, UNIT_NAME_MAX + 1, "%.*s@" SUFFIX, (int)(at - name), name);
    return true;
}

/* The unit's file among the folders: its path without root. false: there is none. */
static bool find_fragment(const char *root, const char *name, char path[PATH_MAX])
{
    for (size_t i = 0; i < SW_ARRAY_LEN(folders); i++) {
        struct stat st;

        snprintf(path, PATH_MAX, "%s/%s", folders[i], name);
        char *full = root_path(root, path, false);
        int rc = lstat(full, &st);
        free(full);
        if (rc == 0)
            return true;
    }
    return false;
}

/* A symbolic link to a unit of another name makes u->name its alias. true: look again under the new name. */
static bool follow_alias(const char *root, struct unit *u)
{
    char link[PATH_MAX], wanted[UNIT_NAME_MAX + 1];
    char *full = root_path(root, u->fragment, false);
    ssize_t n = readlink(full, link, sizeof(link) - 1);
    const char *base;

    free(full);
    if (n <= 0)
        return false;
    link[n] = '\0';
    base = basename(link);
    if (!valid_name(base) || strlen(base) < strlen(SUFFIX) ||
        strcmp(base + strlen(base) - strlen(SUFFIX), SUFFIX) != 0 || strcmp(base, u->name) == 0 ||
        (template_of(u->name, wanted) && strcmp(base, wanted) == 0))
        return false;
    snprintf(u->name, sizeof(u->name), "%s", base);
    return true;
}

/* ---- drop-ins ---- */

struct drop_in {
    char *base, *path; /* path: its name in the system below root */
};

static int by_base(const void *a, const void *b)
{
    return strcmp(((const struct drop_in *)a)->base, ((const struct drop_in *)b)->base);
}

struct drop_ins {
    struct drop_in *list;
    size_t count;
};

/* Adds what a folder has, except drop-ins whose name was found before: those are hidden by the earlier ones. */
static void collect(struct drop_ins *d, const char *root, const char *folder, bool ours)
{
    char *full = root_path(root, folder, true);
    DIR *dir = opendir(full);
    struct dirent *e;

    free(full);
    while (dir && (e = readdir(dir)) != NULL) {
        const char *dot = strrchr(e->d_name, '.');
        bool known = !dot || strcmp(dot, ".conf") != 0 || (ours && strcmp(e->d_name, UNIT_DROP_IN) == 0);

        for (size_t i = 0; i < d->count && !known; i++)
            known = strcmp(d->list[i].base, e->d_name) == 0;
        if (known)
            continue;
        struct drop_in *more = realloc(d->list, (d->count + 1) * sizeof(*more));
        if (!more)
            die("%s", strerror(ENOMEM));
        d->list = more;
        d->list[d->count++] = (struct drop_in){ text_of("%s", e->d_name), text_of("%s/%s", folder, e->d_name) };
    }
    if (dir)
        closedir(dir);
}

/* Adds the drop-ins of one name ("foo-bar.service", "foo-.service", "service"), in all folders. */
static void collect_name(struct drop_ins *d, const char *root, const char *name, bool own)
{
    for (size_t i = 0; i < SW_ARRAY_LEN(folders); i++) {
        char *folder = text_of("%s/%s.d", folders[i], name);

        collect(d, root, folder, own && strcmp(folders[i], UNIT_ADMIN_FOLDER) == 0);
        free(folder);
    }
}

static void read_drop_ins(const char *root, struct unit *u)
{
    struct drop_ins d = { NULL, 0 };
    char name[UNIT_NAME_MAX + 1];

    collect_name(&d, root, u->name, true);
    if (template_of(u->name, name))
        collect_name(&d, root, name, false);
    for (size_t i = strlen(u->name); i > 0; i--)
        if (u->name[i - 1] == '-') {
            snprintf(name, sizeof(name), "%.*s" SUFFIX, (int)i, u->name);
            collect_name(&d, root, name, false);
        }
    collect_name(&d, root, &SUFFIX[1], false);
    if (d.count > 0)
        qsort(d.list, d.count, sizeof(*d.list), by_base);
    for (size_t i = 0; i < d.count; i++) {
        char *full = root_path(root, d.list[i].path, true);

        (void)parse(u, full); /* (systemd also skips what it cannot read) */
        free(full);
        free(d.list[i].base);
        free(d.list[i].path);
    }
    free(d.list);
}

int unit_read(const char *root, const char *name, struct unit *u, char *err, size_t cap)
{
    size_t len = strlen(name), suffix = strlen(SUFFIX);
    bool full = len > suffix && strcmp(name + len - suffix, SUFFIX) == 0;
    char other[UNIT_NAME_MAX + 1];
    struct stat st;

    memset(u, 0, sizeof(*u));
    snprintf(err, cap, "'%s' is no name of a service", name);
    if (!valid_name(name) || len + suffix > UNIT_NAME_MAX)
        return -EINVAL;
    snprintf(u->name, sizeof(u->name), "%s%s", name, full ? "" : SUFFIX);
    for (int depth = 0; depth < ALIAS_DEPTH_MAX; depth++) {
        snprintf(err, cap, "there is no service %s", u->name);
        if (!find_fragment(root, u->name, u->fragment) &&
            !(template_of(u->name, other) && find_fragment(root, other, u->fragment)))
            return -ENOENT;
        if (!follow_alias(root, u))
            break;
    }
    /* (What masks a unit is a link to /dev/null, which the image of a system need not contain.) */
    char *path = root_path(root, u->fragment, true), *null = text_of("%s/dev/null", root);
    int rc = stat(path, &st) < 0 ? -errno : 0;
    if (strcmp(path, null) == 0 || (rc == 0 && st.st_size == 0))
        rc = -ENOEXEC;
    if (rc == 0)
        rc = parse(u, path);
    free(path);
    free(null);
    if (rc < 0) {
        snprintf(err, cap, "%s: %s", u->name, rc == -ENOEXEC ? "it is masked" : strerror(-rc));
        unit_free(u);
        return rc;
    }
    read_drop_ins(root, u);
    return 0;
}

char *unit_drop_in(const char *root, const char *name)
{
    char *path = text_of(UNIT_ADMIN_FOLDER "/%s.d/" UNIT_DROP_IN, name), *full = root_path(root, path, false);

    free(path);
    return full;
}
