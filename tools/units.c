/* Writing, removing and listing the drop-ins of services; see units.h. */
#include "tools/units.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "include/sockwarp.h"
#include "tools/config.h"
#include "tools/library.h"
#include "tools/overlay.h"
#include "tools/root.h"
#include "tools/rules.h"
#include "tools/unit_check.h"
#include "tools/unit_file.h"
#include "tools/usage.h"

/* The first line of what we write: files without it are not ours, and stay untouched. */
#define MARK "# Written by 'sockwarp enable'; 'sockwarp disable' removes it."

struct options {
    const char *policy, *transport, *stats, *profile; /* NULL = not given */
    const char *root;                                 /* "" = this system */
    bool all, force;
};

static int print_help(void)
{
    fputs("Usage: sockwarp enable [OPTION]... UNIT\n"
          "  or:  sockwarp disable [--root DIR] UNIT | --all\n"
          "  or:  sockwarp enabled [--root DIR]\n"
          "Lets a service of systemd run under sockwarp from its next start on, by a drop-in\n"
          "of its own; removes that; lists the services that have one.\n"
          "\n"
          "  -p, --policy RULES        which connections to upgrade, and how\n"
          "                            (default: that of " CONFIG_SYSTEM ", else " DEFAULT_POLICY ")\n"
          "  -t, --transport NAME      use this transport (iwarp, verbs)\n"
          "      --profile NAME        latency, throughput or safe: see sockwarp.conf(5)\n"
          "      --stats FILE          the service appends a line of JSON for every connection\n"
          "      --force               write it though something is in the way\n"
          "      --root DIR            the system below DIR instead of this one\n"
          "      --all                 disable all that are enabled\n"
          "\n"
          "Exit status: 0; 1 if something is in the way or UNIT was not enabled; 2 for mistakes.\n",
          stdout);
    return finish_output();
}

/* Reads options; exits for --help and mistakes. units: how many names may follow. */
static void parse(int argc, char **argv, const char *allowed, int units, struct options *o)
{
    static const struct option longs[] = {
        { "policy", required_argument, NULL, 'p' },
        { "transport", required_argument, NULL, 't' },
        { "stats", required_argument, NULL, 'S' },
        { "force", no_argument, NULL, 'F' },
        { "root", required_argument, NULL, 'R' },
        { "all", no_argument, NULL, 'A' },
        { "help", no_argument, NULL, 'h' },
        { "profile", required_argument, NULL, 'P' },
        { NULL, 0, NULL, 0 },
    };
    const char **const texts[] = {
        ['p'] = &o->policy, ['t'] = &o->transport, ['S'] = &o->stats, ['R'] = &o->root, ['P'] = &o->profile,
    };
    const char *name = argv[0];
    int c;

    argv[0] = text_of("sockwarp: %s", name); /* getopt's messages begin with it */
    *o = (struct options){ .root = "" };
    while ((c = getopt_long(argc, argv, "p:t:h", longs, NULL)) != -1) {
        if (c == 'h')
            exit(print_help());
        if (c == '?') {
            fprintf(stderr, "Try 'sockwarp %s --help'.\n", name);
            exit(EXIT_USAGE);
        }
        if (!strchr(allowed, c))
            die("%s: such an option is for 'sockwarp enable'%s", name, c == 'A' ? " no option; disable has it" : "");
        if (c == 'A')
            o->all = true;
        else if (c == 'F')
            o->force = true;
        else
            *texts[c] = optarg;
    }
    if (o->all)
        units = 0;
    if (argc - optind < units)
        die("%s: no unit given (try 'sockwarp %s --help')", name, name);
    if (argc - optind > units)
        die("%s: '%s' is too much (try 'sockwarp %s --help')", name, argv[optind + units], name);
    if (o->root[0] != '\0' && o->root[0] != '/')
        die("--root: '%s' does not begin with '/'", o->root);
    if (strcmp(o->root, "/") == 0)
        o->root = "";
}

/* ---- writing ---- */

/* One word of Environment=, quoted as systemd.syntax(7) and systemd.unit(5), "Specifiers", want it. */
static void print_variable(void *file, const char *name, const char *value)
{
    FILE *f = file;

    fprintf(f, "Environment=\"%s=", name);
    for (; *value != '\0'; value++) {
        if (*value == '"' || *value == '\\')
            fputc('\\', f);
        if (*value == '%')
            fputc('%', f);
        fputc(*value, f);
    }
    fputs("\"\n", f);
}

/* Refuses what a drop-in cannot contain. Exits on mistakes. */
static void check_options(const struct options *o)
{
    if (o->stats && o->stats[0] != '/')
        die("--stats: a service has no folder of yours: '%s' does not begin with '/'", o->stats);
    if ((o->policy && strpbrk(o->policy, "\n\r")) || (o->stats && strpbrk(o->stats, "\n\r")))
        die("a line's end cannot be in a drop-in");
}

static bool is_ours(const char *path)
{
    char line[sizeof(MARK)] = "";
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    bool ours = fd >= 0 && read(fd, line, sizeof(line) - 1) == (ssize_t)sizeof(line) - 1 && strcmp(line, MARK) == 0;

    if (fd >= 0)
        close(fd);
    return ours;
}

static void make_folders(const char *path)
{
    char *copy = text_of("%s", path);

    for (char *p = strchr(copy + 1, '/'); p; p = strchr(p + 1, '/')) {
        *p = '\0';
        if (mkdir(copy, 0755) < 0 && errno != EEXIST)
            die("%s: %s", copy, strerror(errno));
        *p = '/';
    }
    free(copy);
}

/* A new file takes the old one's place in one step, so that systemd never reads half of one. */
static void write_drop_in(const char *path, struct overlay *env, const char *lib, const struct unit_needs *needs)
{
    char *tmp = text_of("%s.%ld.tmp", path, (long)getpid());
    char *preload = library_preload(needs->preload, lib, true);
    int fd, bad;
    FILE *f;

    make_folders(path);
    fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    f = fd < 0 ? NULL : fdopen(fd, "w");
    if (!f)
        die("%s: %s", tmp, strerror(errno));
    fputs(MARK "\n[Service]\n", f);
    print_variable(f, "LD_PRELOAD", preload);
    overlay_each(env, print_variable, f);
    if (needs->system_calls)
        print_variable(f, SOCKWARP_ENV_IO, "syscall");
    bad = fflush(f) != 0 || fchmod(fd, 0644) < 0 || fsync(fd) < 0 ? errno : 0;
    if (fclose(f) != 0 && !bad)
        bad = errno;
    if (!bad && rename(tmp, path) < 0)
        bad = errno;
    if (bad) {
        unlink(tmp);
        die("%s: %s", path, strerror(bad));
    }
    free(preload);
    free(tmp);
}

static void print_effect(const char *unit)
{
    printf("to make it take effect: systemctl daemon-reload && systemctl try-restart %s\n", unit);
}

int units_enable(int argc, char **argv)
{
    char lib[PATH_MAX], err[PATH_MAX + 128], program[PATH_MAX], *with;
    struct unit_needs needs;
    struct config config = { 0 };
    struct overlay env;
    unsigned obstacles;
    struct options o;
    struct unit u;
    struct stat st;

    parse(argc, argv, "ptSFRP", 1, &o);
    if (library_find(lib, err, sizeof(err)) < 0 || unit_read(o.root, argv[optind], &u, err, sizeof(err)) < 0)
        die("%s", err);
    unit_check_program(o.root, &u, program);
    check_options(&o);
    /* (Neither the caller's variables nor its own file count.) */
    env = (struct overlay){
        .policy = o.policy,
        .transport = o.transport,
        .stats = o.stats,
        .profile = o.profile,
        .program = program[0] ? basename(program) : u.name,
    };
    overlay_start(&env, &config, o.root);
    with = overlay_add_transport(&env);

    char *path = unit_drop_in(o.root, u.name);
    if (lstat(path, &st) == 0 && !is_ours(path))
        die("%s is not written by 'sockwarp enable', and is left alone", path);
    printf("unit: %s (%s)\n", u.name, u.fragment);
    obstacles = unit_check(o.root, &u, lib, overlay_get(&env, SOCKWARP_ENV_STATS), &needs);
    if (obstacles > 0 && !o.force) {
        puts("nothing is written (--force does it all the same)");
    } else {
        fflush(stdout); /* (notes come before errors) */
        write_drop_in(path, &env, lib, &needs);
        printf("written: %s\n", path);
        print_effect(u.name);
    }
    free(needs.preload);
    free(path);
    free(with);
    config_free(&config);
    unit_free(&u);
    return obstacles > 0 && !o.force ? EXIT_REFUSED : finish_output();
}

/* ---- removing and listing ---- */

/* Removes path, and its folder if that is empty then. */
static void remove_drop_in(const char *path, const char *unit)
{
    char *folder = text_of("%.*s", (int)(strrchr(path, '/') - path), path);

    if (unlink(path) < 0)
        die("%s: %s", path, strerror(errno));
    (void)rmdir(folder);
    free(folder);
    printf("removed: %s\n", path);
    print_effect(unit);
}

/* The value of a variable in a drop-in of ours, without its quoting; "" if it has none. */
static void variable_of(const char *path, const char *name, char *value, size_t cap)
{
    FILE *f = fopen(path, "re");
    char *line = NULL;
    size_t size = 0;

    value[0] = '\0';
    while (f && getline(&line, &size, f) >= 0) {
        const char *p = line + strlen("Environment=");
        char word[8192], *out = word;

        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, "Environment=", strlen("Environment=")) != 0 || !unit_word(&p, word, sizeof(word)) ||
            strncmp(word, name, strlen(name)) != 0 || word[strlen(name)] != '=')
            continue;
        for (const char *in = word + strlen(name) + 1; *in != '\0'; in += 1 + (in[0] == '%' && in[1] == '%'))
            *out++ = *in;
        *out = '\0';
        snprintf(value, cap, "%s", word);
    }
    free(line);
    if (f)
        fclose(f);
}

static void list_one(const char *path, const char *unit)
{
    char rules[8192], preload[8192];

    variable_of(path, SOCKWARP_ENV_POLICY, rules, sizeof(rules));
    variable_of(path, "LD_PRELOAD", preload, sizeof(preload));
    preload[strcspn(preload, ":")] = '\0';
    printf("%s\t%s", unit, rules);
    if (access(preload, R_OK) < 0)
        printf("\t(the library %s is not there; enable it anew)", preload);
    putchar('\n');
}

/* Each unit with a drop-in of ours. */
static void each(const char *root, void (*what)(const char *path, const char *unit))
{
    char *folder = root_path(root, UNIT_ADMIN_FOLDER, true);
    struct dirent **list;
    int n = scandir(folder, &list, NULL, alphasort);

    for (int i = 0; i < n; i++) {
        char *dot = strrchr(list[i]->d_name, '.');

        if (dot && strcmp(dot, ".d") == 0) {
            *dot = '\0';
            char *path = unit_drop_in(root, list[i]->d_name);
            if (is_ours(path))
                what(path, list[i]->d_name);
            free(path);
        }
        free(list[i]);
    }
    if (n >= 0)
        free(list);
    free(folder);
}

int units_disable(int argc, char **argv)
{
    struct options o;
    struct unit u;
    char err[256];
    int status = EXIT_REFUSED;

    parse(argc, argv, "RA", 1, &o);
    if (o.all) {
        each(o.root, remove_drop_in);
        return finish_output();
    }
    /* (The unit may be gone by now, and its drop-in may remain.) */
    if (unit_read(o.root, argv[optind], &u, err, sizeof(err)) == -EINVAL)
        die("%s", err);
    char *path = unit_drop_in(o.root, u.name);
    if (is_ours(path)) {
        remove_drop_in(path, u.name);
        status = finish_output();
    } else {
        fprintf(stderr, "sockwarp: %s is not enabled\n", u.name);
    }
    free(path);
    unit_free(&u);
    return status;
}

int units_enabled(int argc, char **argv)
{
    struct options o;

    parse(argc, argv, "R", 0, &o);
    each(o.root, list_one);
    return finish_output();
}
