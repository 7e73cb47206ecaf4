/*
 * Looks at a service before a drop-in is written for it; see unit_check.h. What systemd does by its settings is in
 * systemd.exec(5).
 */
#include "tools/unit_check.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "tools/library.h"
#include "tools/root.h"
#include "tools/target.h"
#include "tools/usage.h"

struct context {
    const char *root, *lib, *stats;
    const struct unit *unit;
    const char *user; /* the user as which it runs; NULL: root */
    unsigned obstacles;
    struct unit_needs *needs;
};

static void note(const char *fmt, ...) SW_PRINTF(1, 2);
static void note(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    print_line(stdout, "note: ", fmt, ap);
    va_end(ap);
}

static void obstacle(struct context *c, const char *fmt, ...) SW_PRINTF(2, 3);
static void obstacle(struct context *c, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    print_line(stdout, "in the way: ", fmt, ap);
    va_end(ap);
    c->obstacles++;
}

static bool is_one_of(const char *word, const char *const *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(word, list[i]) == 0)
            return true;
    return false;
}

/* ---- the program ---- */

/* sockwarp(7), SECURITY: processes of different rights must not use the same connection. */
static void check_privileges(struct context *c, const char *path)
{
    static const char *const separate[] = { "dovecot", "master", "smtpd", "sshd", "vsftpd" };
    const char *base = basename(path);

    if (c->user)
        return;
    if (is_one_of(base, separate, SW_ARRAY_LEN(separate)))
        obstacle(
            c,
            "%s starts as root and shares connections between processes of different rights; see sockwarp(7), SECURITY",
            path);
    else
        note(
            "it starts as root: if processes of different users then use the same connection, it must not run under sockwarp "
            "(sockwarp(7), SECURITY)");
}

/* The file gives rights: does the service gain them? Then the dynamic linker ignores LD_PRELOAD. */
static void check_secure(struct context *c, const char *path)
{
    char *full = root_path(c->root, path, true);
    struct stat st;
    bool gains = stat(full, &st) == 0 && (st.st_mode & (S_ISUID | S_ISGID));

    gains = gains || getxattr(full, "security.capability", NULL, 0) > 0;
    free(full);
    if (!gains || !c->user)
        return;
    if (unit_is_on(c->unit, "NoNewPrivileges"))
        note("%s has set-id bits or capabilities, which NoNewPrivileges= keeps it from gaining", path);
    else
        obstacle(c, "%s gains privileges (setuid, setgid or capabilities), and is not reached by preloading", path);
}

static void check_target(struct context *c, const char *path)
{
    static const char *const shells[] = { "bash", "dash", "env", "sh", "start-stop-daemon" };
    struct target t;
    int rc = target_find_in(c->root, path, &t);

    if (rc < 0) {
        note("%s: %s; what it is could not be looked at", path, strerror(-rc));
        return;
    }
    switch (t.kind) {
    case TARGET_STATIC:
        obstacle(c, "%s is statically linked, and is not reached by preloading", t.path);
        break;
    case TARGET_FOREIGN:
        obstacle(c, "%s uses another C library (%s), which would refuse to start it", t.path, t.interp);
        break;
    case TARGET_MACHINE:
        obstacle(c, "%s is for another processor or word size", t.path);
        break;
    case TARGET_DYNAMIC:
    case TARGET_SECURE:
        if (is_one_of(basename(t.path), shells, SW_ARRAY_LEN(shells)))
            note("%s starts other programs, which are not looked at here", t.path);
        if (target_needs(c->root, &t, "libseccomp.so"))
            note("%s may set a seccomp filter of its own: its connections from then on stay plain (sandbox)", t.path);
        break;
    }
}

/* The file of an ExecStart= value, absolute. false: a specifier or an unknown name, which only systemd resolves. */
static bool program_of(const char *root, const char *value, char path[PATH_MAX])
{
    static const char *const places[] = {
        "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"
    };
    char word[PATH_MAX];

    value += strspn(value, "@-:+!|");
    if (!unit_word(&value, word, sizeof(word)) || strchr(word, '%'))
        return false;
    if (word[0] == '/') {
        strcpy(path, word);
        return true;
    }
    for (size_t i = 0; i < SW_ARRAY_LEN(places); i++) {
        struct target t;

        if (snprintf(path, PATH_MAX, "%s/%s", places[i], word) < PATH_MAX && target_find_in(root, path, &t) == 0)
            return true;
    }
    return false;
}

void unit_check_program(const char *root, const struct unit *u, char path[PATH_MAX])
{
    size_t at = 0;
    const char *value = unit_next(u, "ExecStart", &at);

    if (!value || !program_of(root, value, path))
        path[0] = '\0';
}

static void check_programs(struct context *c)
{
    const char *value;
    char path[PATH_MAX];
    bool any = false;

    for (size_t at = 0; (value = unit_next(c->unit, "ExecStart", &at)) != NULL; any = true) {
        if (!program_of(c->root, value, path)) {
            note("the program of ExecStart=%s was not found, and could not be looked at", value);
            continue;
        }
        check_secure(c, path);
        check_target(c, path);
        check_privileges(c, path);
    }
    if (!any)
        obstacle(c, "it starts no program (no ExecStart=)");
}

/* ---- what the service may do ---- */

/* SystemCallFilter=: the first list says whether it allows or forbids; later ones with ~ remove names. */
struct filter {
    bool set, allows;   /* allows: nothing is allowed except what is listed */
    bool ring, service; /* io_uring, and @system-service, may be called */
};

static void filter_list(struct filter *f, const char *list)
{
    bool take = *list == '~';
    char word[128];

    list += take;
    if (!f->set)
        *f = (struct filter){ .set = true, .allows = !take, .ring = take, .service = take };
    while (unit_word(&list, word, sizeof(word))) {
        word[strcspn(word, ":")] = '\0'; /* name:errno */
        bool known = strcmp(word, "@known") == 0, service = strcmp(word, "@system-service") == 0;
        if (known || service || strcmp(word, "@aio") == 0 || strncmp(word, "io_uring_", 9) == 0)
            f->ring = !take;
        if (known || service)
            f->service = !take;
    }
}

static void check_system_calls(struct context *c)
{
    struct filter f = { 0 };
    const char *list;

    for (size_t at = 0; (list = unit_next(c->unit, "SystemCallFilter", &at)) != NULL;)
        filter_list(&f, list);
    if (!f.set)
        return;
    if (f.allows && !f.service)
        obstacle(c, "SystemCallFilter= without @system-service: systemd ends the service at a call that is not listed");
    if (!f.ring) {
        note("SystemCallFilter= does not allow io_uring: works, slower (sets SOCKWARP_IO=syscall)");
        c->needs->system_calls = true;
    }
}

static void check_families(struct context *c)
{
    bool set = false, allows = false, is_unix = false, netlink = false;
    const char *list;
    char word[64];

    for (size_t at = 0; (list = unit_next(c->unit, "RestrictAddressFamilies", &at)) != NULL;) {
        bool take = *list == '~';

        if (!set)
            set = true, allows = !take, is_unix = netlink = take;
        for (list += take; unit_word(&list, word, sizeof(word));) {
            if (strcmp(word, "AF_UNIX") == 0 || strcmp(word, "AF_LOCAL") == 0)
                is_unix = !take;
            if (strcmp(word, "AF_NETLINK") == 0)
                netlink = !take;
            if (allows && strcmp(word, "none") == 0)
                is_unix = netlink = false;
        }
    }
    if (set && !is_unix)
        note("RestrictAddressFamilies= without AF_UNIX: connections between programs of this host stay plain");
    else if (set && !netlink)
        note("RestrictAddressFamilies= without AF_NETLINK: connections between programs of this host may stay plain");
}

/* ---- what it can see ---- */

static bool is_below(const char *path, const char *folder)
{
    size_t len = strlen(folder);

    return strncmp(path, folder, len) == 0 && (path[len] == '/' || path[len] == '\0');
}

static void check_library(struct context *c)
{
    const char *jail = unit_value(c->unit, "RootDirectory"), *home = unit_value(c->unit, "ProtectHome");
    struct stat st;

    if (unit_value(c->unit, "RootImage"))
        obstacle(c, "RootImage=: the library has to be in that image");
    if (jail) {
        char *folder = root_path(c->root, jail, true), *inside = root_path(folder, c->lib, true);
        if (stat(inside, &st) < 0)
            obstacle(c, "RootDirectory=%s: the library %s is not in it", jail, c->lib);
        free(inside);
        free(folder);
    }
    if (home && strcmp(home, "read-only") != 0 && strcmp(home, "no") != 0 && strcmp(home, "false") != 0 &&
        (is_below(c->lib, "/home") || is_below(c->lib, "/root") || is_below(c->lib, "/run/user")))
        obstacle(c, "ProtectHome=%s hides the library %s", home, c->lib);
    if (unit_is_on(c->unit, "PrivateTmp") && (is_below(c->lib, "/tmp") || is_below(c->lib, "/var/tmp")))
        obstacle(c, "PrivateTmp= hides the library %s", c->lib);
    if (stat(c->lib, &st) == 0 && (st.st_uid != 0 || (st.st_mode & (S_IWGRP | S_IWOTH))))
        note("the library %s can be changed by others than root", c->lib);
}

/* ReadWritePaths= and the folders that systemd makes for the service. */
static bool may_write(const struct unit *u, const char *path)
{
    static const struct {
        const char *key, *below;
    } made[] = {
        { "ReadWritePaths", "" },         { "StateDirectory", "/var/lib/" },
        { "LogsDirectory", "/var/log/" }, { "CacheDirectory", "/var/cache/" },
        { "RuntimeDirectory", "/run/" },
    };
    char word[PATH_MAX];

    for (size_t i = 0; i < SW_ARRAY_LEN(made); i++) {
        const char *list;

        for (size_t at = 0; (list = unit_next(u, made[i].key, &at)) != NULL;)
            while (unit_word(&list, word, sizeof(word))) {
                char *folder = text_of("%s%s", made[i].below, word + strspn(word, made[i].below[0] ? "" : "-+"));
                bool below = is_below(path, folder);
                free(folder);
                if (below)
                    return true;
            }
    }
    return false;
}

static void check_stats(struct context *c)
{
    const char *system = unit_value(c->unit, "ProtectSystem");

    if (!c->stats)
        return;
    if (system && strcmp(system, "strict") == 0 && !may_write(c->unit, c->stats))
        note("ProtectSystem=strict keeps the service from writing %s, unless ReadWritePaths= allows it", c->stats);
    if (c->user)
        note("the service's user %s must be able to write %s", c->user, c->stats);
}

/* ---- its environment ---- */

/* VARIABLE=value as one word; keeps what LD_PRELOAD holds, except our library. */
static void take_variable(struct context *c, const char *word)
{
    static const char preload[] = "LD_PRELOAD=";

    if (strncmp(word, preload, strlen(preload)) != 0)
        return;
    free(c->needs->preload);
    c->needs->preload = library_preload(word + strlen(preload), c->lib, false);
}

/* Files are read after Environment=, so what they set overrides ours. */
static void check_environment_file(struct context *c, const char *value)
{
    const char *path = value + (*value == '-');
    char *full = root_path(c->root, path, true), *line = NULL;
    FILE *f = fopen(full, "re");
    size_t cap = 0;

    while (f && getline(&line, &cap, f) >= 0) {
        const char *p = line + strspn(line, " \t");
        size_t len = strcspn(p, "= \t\n");

        if (p[len] == '=' && (strncmp(p, "SOCKWARP_", 9) == 0 || strncmp(p, "LD_PRELOAD=", 11) == 0))
            obstacle(c, "%s sets %.*s, and comes after the drop-in", path, (int)len, p);
    }
    free(line);
    free(full);
    if (f)
        fclose(f);
}

static void check_environment(struct context *c)
{
    const char *value;
    char word[4096];

    for (size_t at = 0; (value = unit_next(c->unit, "Environment", &at)) != NULL;)
        while (unit_word(&value, word, sizeof(word)))
            take_variable(c, word);
    for (size_t at = 0; (value = unit_next(c->unit, "EnvironmentFile", &at)) != NULL;)
        check_environment_file(c, value);
    for (size_t at = 0; (value = unit_next(c->unit, "UnsetEnvironment", &at)) != NULL;)
        while (unit_word(&value, word, sizeof(word)))
            if (strcmp(word, "LD_PRELOAD") == 0 || strncmp(word, "SOCKWARP_", 9) == 0)
                obstacle(c, "UnsetEnvironment= takes %s away", word);
}

unsigned unit_check(const char *root, const struct unit *u, const char *lib, const char *stats,
                    struct unit_needs *needs)
{
    const char *user = unit_value(u, "User");
    struct context c = { .root = root, .lib = lib, .stats = stats, .unit = u, .user = user, .needs = needs };

    *needs = (struct unit_needs){ 0 };
    if (unit_is_on(u, "DynamicUser") && !user)
        c.user = "of its own";
    else if (user && (strcmp(user, "root") == 0 || strcmp(user, "0") == 0))
        c.user = NULL;
    check_programs(&c);
    check_system_calls(&c);
    check_families(&c);
    if (unit_value(u, "AppArmorProfile"))
        note("AppArmorProfile=: its profile has to let the service read %s, and must not clear LD_PRELOAD", lib);
    check_library(&c);
    check_stats(&c);
    check_environment(&c);
    return c.obstacles;
}
