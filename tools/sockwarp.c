/*
 * sockwarp PROGRAM…: starts a program with the preload library and checked settings. It replaces itself by the program
 * (execvp), so process id, signals and exit status are the program's own.
 *
 * Order matters: everything that can be wrong is checked before the environment is changed.
 */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/append.h"
#include "core/policy/settings.h"
#include "include/sockwarp.h"
#include "tools/check.h"
#include "tools/config.h"
#include "tools/explain.h"
#include "tools/library.h"
#include "tools/overlay.h"
#include "tools/rules.h"
#include "tools/stat.h"
#include "tools/target.h"
#include "tools/trace.h"
#include "tools/units.h"
#include "tools/usage.h"

struct options {
    const char *policy;    /* -p, NULL = not given */
    const char *transport; /* -t, NULL = not given */
    const char *stats;     /* --stats, NULL = not given */
    const char *profile;   /* --profile, NULL = not given */
    bool explain;          /* -v, --explain */
    bool check;            /* the command check, not a program */
    bool config;           /* check --config */
    bool ask;              /* check --ask */
    bool trace;            /* the command trace */
    struct trace traced;
};

static void set(const char *name, const char *value)
{
    if (setenv(name, value, 1) < 0)
        die("%s: %s", name, strerror(errno));
}

static int print_help(void)
{
    fputs("Usage: sockwarp [run] [OPTION]... [--] PROGRAM [ARGUMENT]...\n"
          "  or:  sockwarp check [OPTION]... [ADDRESS[:PORT] [--ask]]\n"
          "  or:  sockwarp check --config [FILE]\n"
          "  or:  sockwarp explain [CODE]...\n"
          "  or:  sockwarp trace [--pcap FILE] [--filter TEXT] [OPTION]... [--] PROGRAM [ARGUMENT]...\n"
          "  or:  sockwarp stat [OPTION]... [PID|PROGRAM]\n"
          "  or:  sockwarp enable [OPTION]... UNIT, disable UNIT, enabled\n"
          "Runs PROGRAM with its TCP connections carried over RDMA (iWARP) where the peer\n"
          "runs sockwarp too, and left plain everywhere else.\n"
          "check: says what works on this host, which RDMA devices there are, and what would\n"
          "be chosen for connections with ADDRESS; --ask asks the server there.\n"
          "explain: what a reason means that --explain or the statistics tell, and what to do.\n"
          "trace: runs PROGRAM and shows the frames of its connections, by tshark; or writes them to FILE.\n"
          "stat: the connections of running programs (see sockwarp stat --help).\n"
          "enable: lets a service of systemd run under it (see sockwarp enable --help).\n"
          "\n"
          "  -p, --policy RULES        which connections to upgrade, and how; instead of\n"
          "                            SOCKWARP_POLICY (default: " DEFAULT_POLICY ")\n"
          "  -t, --transport NAME      use this transport (iwarp, verbs)\n"
          "  -v, --explain             one line on stderr for every connection: upgraded or\n"
          "                            plain, and why\n"
          "      --stats FILE          append a line of JSON for every connection to FILE\n"
          "      --profile NAME        latency, throughput or safe: see sockwarp.conf(5)\n"
          "  -h, --help                this text\n"
          "  -V, --version             name and version\n"
          "\n"
          "Exit status: PROGRAM's; 127 if it is not found, 126 if it cannot be run, 2 for\n"
          "mistakes in options and settings. Rules and variables: man 7 sockwarp.\n",
          stdout);
    return finish_output();
}

static int print_version(void)
{
    puts("sockwarp " SW_VERSION);
    return finish_output();
}

/* What goes with which command. Exits with a message. */
static void check_options(const struct options *o, int argc, char **argv)
{
    if (o->config && !o->check)
        die("--config is for 'sockwarp check' (" CONFIG_ENV " names a file for programs)");
    if (o->ask && !o->check)
        die("--ask is for 'sockwarp check'");
    if (!o->trace && (o->traced.pcap || o->traced.filter))
        die("--%s is for 'sockwarp trace'", o->traced.pcap ? "pcap" : "filter");
    if ((o->check || o->trace) && o->stats)
        die("%s: --stats is for programs that run alone", argv[1]);
    if (o->check && argc - optind > 1)
        die("check: one address or file at a time, not '%s' too", argv[optind + 1]);
    if (optind >= argc && !o->check) {
        fputs("sockwarp: no program given\nTry 'sockwarp --help'.\n", stderr);
        exit(EXIT_USAGE);
    }
}

/*
 * The index of PROGRAM in argv; exits for --help, --version and mistakes. It stops at the first word that is no option.
 */
static int parse_options(int argc, char **argv, struct options *o)
{
    static const struct option longs[] = {
        { "policy", required_argument, NULL, 'p' },  { "transport", required_argument, NULL, 't' },
        { "explain", no_argument, NULL, 'v' },       { "stats", required_argument, NULL, 'S' },
        { "profile", required_argument, NULL, 'P' }, { "config", no_argument, NULL, 'C' },
        { "ask", no_argument, NULL, 'A' },           { "help", no_argument, NULL, 'h' },
        { "version", no_argument, NULL, 'V' },       { "pcap", required_argument, NULL, 'W' },
        { "filter", required_argument, NULL, 'F' },  { NULL, 0, NULL, 0 },
    };
    static char self[] = "sockwarp"; /* getopt's messages begin with it */
    int c;

    argv[0] = self;
    o->check = argc > 1 && strcmp(argv[1], "check") == 0;
    o->trace = argc > 1 && strcmp(argv[1], "trace") == 0;
    if (o->check || o->trace || (argc > 1 && strcmp(argv[1], "run") == 0))
        optind = 2;
    while ((c = getopt_long(argc, argv, o->check ? "p:t:vhV" : "+p:t:vhV", longs, NULL)) != -1) {
        switch (c) {
        case 'p':
            o->policy = optarg;
            break;
        case 't':
            o->transport = optarg;
            break;
        case 'v':
            o->explain = true;
            break;
        case 'S':
            o->stats = optarg;
            break;
        case 'P':
            o->profile = optarg;
            break;
        case 'A':
            o->ask = true;
            break;
        case 'C':
            o->config = true;
            break;
        case 'W':
            o->traced.pcap = optarg;
            break;
        case 'F':
            o->traced.filter = optarg;
            break;
        case 'h':
            exit(print_help());
        case 'V':
            exit(print_version());
        default:
            fputs("Try 'sockwarp --help'.\n", stderr);
            exit(EXIT_USAGE);
        }
    }
    check_options(o, argc, argv);
    return optind;
}

/*
 * --stats: makes the name absolute, since the program may change its folder, and checks that it can be written. The
 * caller frees it.
 */
static char *stats_path(const char *file)
{
    char cwd[PATH_MAX], *path;
    int r;

    if (file[0] == '\0')
        die("--stats: no file name given");
    if (file[0] == '/')
        cwd[0] = '\0';
    else if (!getcwd(cwd, sizeof(cwd)))
        die("--stats: current folder: %s", strerror(errno));
    path = text_of("%s%s%s", cwd, cwd[0] ? "/" : "", file);
    r = append_line(path, "", 0);
    if (r < 0 && r != -ENXIO) /* a FIFO without a reader yet is fine */
        die("--stats: %s: %s", path,
            r == -ELOOP    ? "a symbolic link, which is not followed"
            : r == -EINVAL ? "no file, FIFO or terminal"
                           : strerror(-r));
    return path;
}

/* sockwarp check --config [FILE]. */
static int check_config(const char *file)
{
    struct config c = { 0 };

    if (file)
        config_read(&c, file, true);
    else
        config_read_all(&c, NULL);
    if (c.bad > 0)
        return EXIT_USAGE;
    for (unsigned i = 0; i < c.files; i++) {
        size_t count = 0;

        for (size_t j = 0; j < c.count; j++)
            count += c.entries[j].file == i;
        printf("%s: %zu setting%s\n", c.names[i], count, count == 1 ? "" : "s");
    }
    if (c.files == 0)
        puts("no file of sockwarp.conf(5)");
    config_free(&c);
    return finish_output();
}

/* sockwarp check. target: an address, or NULL. */
static int check(const struct options *o, struct overlay *env, const char *lib, const char *target)
{
    bool by_default = overlay_has_default_rule(env);
    char *with = overlay_add_transport(env), err[320];
    struct settings s;

    env->policy = overlay_get(env, SOCKWARP_ENV_POLICY);
    overlay_read(env, &s);
    int rc = check_print(lib, &s, env->policy, by_default, target, o->ask, err, sizeof(err));
    if (rc == -EINVAL)
        die("check: %s", err);
    settings_free(&s);
    free(with);
    return rc < 0 && finish_output() == EXIT_SUCCESS ? EXIT_REFUSED : finish_output();
}

/* Prints what concerns a program that LD_PRELOAD cannot reach. */
static void note(const struct target *t)
{
    static const char *const why[] = {
        [TARGET_STATIC] = "is statically linked",
        [TARGET_SECURE] = "gains privileges (setuid, setgid or capabilities)",
        [TARGET_FOREIGN] = "uses another C library",
        [TARGET_MACHINE] = "is for another processor or word size",
    };

    if (t->kind == TARGET_FOREIGN)
        fprintf(stderr, "sockwarp: note: %s %s (%s); it runs without sockwarp\n", t->path, why[t->kind], t->interp);
    else
        fprintf(stderr, "sockwarp: note: %s %s; it runs without sockwarp\n", t->path, why[t->kind]);
}

static void set_one(void *arg, const char *variable, const char *value)
{
    (void)arg;
    set(variable, value);
}

static void set_environment(const struct options *o, struct overlay *env, const char *lib)
{
    char *preload = library_preload(getenv("LD_PRELOAD"), lib, true), *with = overlay_add_transport(env);

    overlay_each(env, set_one, NULL);
    if (o->explain)
        set(SOCKWARP_ENV_EXPLAIN, "1");
    set("LD_PRELOAD", preload);
    free(preload);
    free(with);
}

/* A library left in LD_PRELOAD by an outer sockwarp would keep a program with another C library from starting. */
static void clear_preload(const char *lib)
{
    const char *old = getenv("LD_PRELOAD");
    char *rest;

    if (!old)
        return;
    rest = library_preload(old, lib, false);
    if (rest[0] != '\0')
        set("LD_PRELOAD", rest);
    else
        unsetenv("LD_PRELOAD");
    free(rest);
}

/*
 * Before the environment is set: the program's statistics name its connections, and the startup has to be on them,
 * where its ends meet beside them otherwise. The caller frees the rules.
 */
static char *begin_trace(struct options *o, struct overlay *env)
{
    char *rules = rules_add(overlay_get(env, SOCKWARP_ENV_POLICY), "meet", "off");

    trace_open(&o->traced);
    env->policy = rules;
    env->stats = o->traced.stats;
    return rules;
}

/* sockwarp explain. */
static int explain(int argc, char **argv)
{
    const char *unknown;

    if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0))
        return print_help();
    if (explain_print(argv + 1, argc - 1, &unknown) < 0)
        die("explain: '%s' is no reason code ('sockwarp explain' lists them)", unknown);
    return finish_output();
}

/* Commands with options of their own. To start a program of such a name takes "run" before it. */
static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
} commands[] = {
    { "disable", units_disable }, { "enable", units_enable }, { "enabled", units_enabled },
    { "explain", explain },       { "stat", stat_main },
};

int main(int argc, char **argv)
{
    struct options o = { 0 };
    struct config config = { 0 };
    struct overlay env;
    char lib[PATH_MAX], err[PATH_MAX + 128];
    struct target t;
    char *traced_rules = NULL;
    int first, rc;

    for (size_t i = 0; argc > 1 && i < SW_ARRAY_LEN(commands); i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            return commands[i].run(argc - 1, argv + 1);
    first = parse_options(argc, argv, &o);
    if (o.config)
        return check_config(argv[first]);
    env = (struct overlay){
        .policy = o.policy,
        .transport = o.transport,
        .stats = o.stats ? stats_path(o.stats) : NULL,
        .profile = o.profile,
        .program = o.check ? "" : basename(argv[first]),
        .environment = true,
    };
    overlay_start(&env, &config, NULL);
    if (library_find(lib, err, sizeof(err)) < 0)
        die("%s", err);
    if (o.check)
        return check(&o, &env, lib, argv[first]);

    if (o.trace)
        traced_rules = begin_trace(&o, &env);
    rc = target_find(argv[first], &t);
    if (rc == 0 && t.kind == TARGET_DYNAMIC) {
        set_environment(&o, &env, lib);
    } else if (rc == 0) {
        if (o.explain || t.kind == TARGET_FOREIGN)
            note(&t);
        if (t.kind == TARGET_FOREIGN)
            clear_preload(lib);
    }

    free(traced_rules);
    if (o.trace)
        return trace_run(&o.traced, argv + first);
    return become(argv + first);
}
