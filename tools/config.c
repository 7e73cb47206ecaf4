/* Reading and searching configuration files; see config.h. The format is libinih's. */
#include "tools/config.h"

#include <ctype.h>
#include <errno.h>
#include <fnmatch.h>
#include <ini.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/policy/settings.h"
#include "include/sockwarp.h"
#include "tools/root.h"
#include "tools/usage.h"

#define NAME_LEN_MAX 48 /* libinih cuts longer names of sections and keys off */
#define PROFILE "profile"
#define PROFILES " (latency, throughput or safe)"

const char *const config_variables[] = {
    SOCKWARP_ENV_POLICY,
    SOCKWARP_ENV_STATS,
    SOCKWARP_ENV_LOG,
    SOCKWARP_ENV_EXPLAIN,
    SOCKWARP_ENV_STAT,
    SOCKWARP_ENV_SUMMARY,
    SOCKWARP_ENV_DEVICE,
    SOCKWARP_ENV_IO,
    SOCKWARP_ENV_CRC,
#define X(field, name, def, lo, hi) name,
    SETTINGS_NUMBERS(X)
#undef X
        NULL,
};

/* sockwarp.conf(5) explains each of them. */
static const struct {
    const char *profile, *variable, *value;
} profiles[] = {
    { "latency", "SOCKWARP_SPIN_US", "200" },  { "latency", "SOCKWARP_COALESCE_US", "0" },
    { "throughput", "SOCKWARP_SPIN_US", "0" }, { "throughput", "SOCKWARP_COALESCE_US", "200" },
    { "safe", SOCKWARP_ENV_IO, "syscall" },    { "safe", "SOCKWARP_SPIN_US", "0" },
    { "safe", "SOCKWARP_COALESCE_US", "0" },
};

const char *config_profile(const char *profile, const char *variable)
{
    for (size_t i = 0; i < SW_ARRAY_LEN(profiles); i++)
        if (strcmp(profiles[i].profile, profile) == 0 && strcmp(profiles[i].variable, variable) == 0)
            return profiles[i].value;
    return NULL;
}

static bool is_profile(const char *name)
{
    for (size_t i = 0; i < SW_ARRAY_LEN(profiles); i++)
        if (strcmp(profiles[i].profile, name) == 0)
            return true;
    return false;
}

void config_check_profile(const char *name)
{
    if (!is_profile(name))
        die("--profile: there is no profile '%s'" PROFILES, name);
}

/* ---- reading ---- */

struct reader {
    struct config *config;
    const char *path;
    FILE *file;
    unsigned line;
    bool comment; /* the line has a comment behind its value */
};

static void complain(struct reader *r, unsigned line, const char *fmt, ...) SW_PRINTF(3, 4);
static void complain(struct reader *r, unsigned line, const char *fmt, ...)
{
    va_list ap;

    if (line > 0)
        fprintf(stderr, "sockwarp: %s:%u: ", r->path, line);
    else
        fprintf(stderr, "sockwarp: %s: ", r->path);
    va_start(ap, fmt);
    print_line(stderr, "", fmt, ap);
    va_end(ap);
    r->config->bad++;
}

/* Is one of these characters in the line, before a comment? */
static bool has_one_of(const char *line, const char *wanted)
{
    for (const char *p = line; *p != '\0' && !(*p == ';' && p > line && isspace((unsigned char)p[-1])); p++)
        if (strchr(wanted, *p))
            return true;
    return false;
}

/* Of several lines that it cannot read libinih tells the first one only. */
static bool is_line(const char *line)
{
    static const char bom[] = "\xEF\xBB\xBF";

    line += strncmp(line, bom, strlen(bom)) == 0 ? strlen(bom) : 0;
    if (line[0] == '\0' || line[0] == '#' || line[0] == ';')
        return true;
    return line[0] == '[' ? has_one_of(line, "]") : has_one_of(line, "=:");
}

/*
 * libinih's fgets: counts lines, and notices what libinih would cut off silently. It takes away what a line is indented
 * by, by which libinih would know a value that goes on.
 */
static char *next_line(char *buf, int cap, void *arg)
{
    struct reader *r = arg;
    size_t len;
    int c;

    if (!fgets(buf, cap, r->file))
        return NULL;
    r->line++;
    len = strlen(buf);
    if (len > 0 && buf[len - 1] != '\n' && (c = getc(r->file)) != EOF) {
        complain(r, r->line, "the line is longer than %d octets (a rule a line; they may be several)", cap - 1);
        while (c != '\n' && c != EOF)
            c = getc(r->file);
    }
    for (len = 0; isspace((unsigned char)buf[len]); len++)
        ;
    memmove(buf, buf + len, strlen(buf + len) + 1);
    if (!is_line(buf)) {
        complain(r, r->line, "neither [PROGRAM] nor 'key = value'");
        buf[0] = '\0';
    }
    r->comment = false;
    for (const char *p = strpbrk(buf, "=:"); p && *p != '\0'; p++)
        if (*p == ';' && isspace((unsigned char)p[-1]))
            r->comment = true;
    if (strcspn(buf, "=:\n") > NAME_LEN_MAX && strchr("#;", buf[0]) == NULL)
        complain(r, r->line, "the name is longer than %d octets", NAME_LEN_MAX);
    return buf;
}

/* The section in the file that is being read. */
static struct config_entry *find(struct config *c, const char *section, const char *variable)
{
    for (size_t i = 0; i < c->count; i++)
        if (c->entries[i].file == c->files && strcmp(c->entries[i].section, section) == 0 &&
            strcmp(c->entries[i].variable, variable) == 0)
            return &c->entries[i];
    return NULL;
}

static void add(struct config *c, const char *section, const char *variable, const char *value)
{
    struct config_entry *more = realloc(c->entries, (c->count + 1) * sizeof(*more));

    if (!more)
        die("%s", strerror(ENOMEM));
    c->entries = more;
    c->entries[c->count++] =
        (struct config_entry){ c->files, text_of("%s", section), text_of("%s", variable), text_of("%s", value) };
}

/* "spin_us" and "SOCKWARP_SPIN_US" are the same. NULL: no variable that files may set. */
static const char *variable_of(const char *key)
{
    static const char prefix[] = "SOCKWARP_";

    for (const char *const *v = config_variables; *v; v++) {
        const char *name = *v + strlen(prefix);
        size_t i = 0;

        while (key[i] != '\0' && !isupper((unsigned char)key[i]) && toupper((unsigned char)key[i]) == name[i])
            i++;
        if (strcmp(*v, SOCKWARP_ENV_POLICY) != 0 && (strcmp(*v, key) == 0 || (key[i] == '\0' && name[i] == '\0')))
            return *v;
    }
    return NULL;
}

/* settings_read's environment: one variable. */
struct only {
    const char *variable, *value;
};

static const char *only_get(void *arg, const char *name)
{
    const struct only *o = arg;

    return strcmp(name, o->variable) == 0 ? o->value : NULL;
}

static bool is_valid(struct reader *r, const char *variable, const char *value)
{
    struct only only = { variable, value };
    struct settings s;
    char err[320];

    if (settings_read(&s, only_get, &only, TRANSPORTS_BUILT_IN, err, sizeof(err)) < 0) {
        const char *text = err;
        size_t len = strlen(variable);

        if (strcmp(variable, SOCKWARP_ENV_POLICY) == 0 && strncmp(err, variable, len) == 0)
            text = err + len + strspn(err + len, ": ");
        complain(r, r->line, "%s", text);
        return false;
    }
    settings_free(&s);
    return true;
}

/* Appends a rule: the rules of a section stay in their order. */
static void take_rule(struct reader *r, const char *section, const char *value)
{
    struct config *c = r->config;
    struct config_entry *e = find(c, section, SOCKWARP_ENV_POLICY);
    char *rules;

    if (r->comment) {
        complain(r, r->line, "a blank and ';' begin a comment: write each rule in a line of its own");
        return;
    }
    if (!is_valid(r, SOCKWARP_ENV_POLICY, value))
        return;
    if (!e) {
        add(c, section, SOCKWARP_ENV_POLICY, value);
        return;
    }
    rules = text_of("%s; %s", e->value, value);
    free(e->value);
    e->value = rules;
}

static void take_variable(struct reader *r, const char *section, const char *variable, const char *value)
{
    struct config *c = r->config;

    if (find(c, section, variable))
        complain(r, r->line, "'%s' is given twice for [%s]", variable, section);
    else if (strcmp(variable, PROFILE) == 0 && !is_profile(value))
        complain(r, r->line, "there is no profile '%s'" PROFILES, value);
    else if (strcmp(variable, SOCKWARP_ENV_STATS) == 0 && value[0] != '/')
        complain(r, r->line, "%s: '%s' does not begin with '/'", variable, value);
    else if (strcmp(variable, PROFILE) == 0 || is_valid(r, variable, value))
        add(c, section, variable, value);
}

/*
 * libinih's handler. (It always returns 1: it reports mistakes itself, and libinih reports its own by its final
 * result.)
 */
static int take(void *arg, const char *section, const char *key, const char *value)
{
    struct reader *r = arg;
    const char *variable = strcmp(key, PROFILE) == 0 ? PROFILE : variable_of(key);

    if (section[0] == '\0')
        complain(r, r->line, "'%s' stands before the first [PROGRAM]", key);
    else if (strchr(section, '/'))
        complain(r, r->line, "[%s]: a program's name is the last part of its file's", section);
    else if (strcmp(key, "rule") == 0)
        take_rule(r, section, value);
    else if (variable)
        take_variable(r, section, variable, value);
    else
        complain(r, r->line, "unknown key '%s' (rule, profile, or a variable such as spin_us)", key);
    return 1;
}

/* A user that can write the file could choose where the program's output goes. */
static bool is_trusted(struct reader *r)
{
    struct stat st;

    if (fstat(fileno(r->file), &st) < 0) {
        complain(r, 0, "%s", strerror(errno));
        return false;
    }
    if (S_ISDIR(st.st_mode)) {
        complain(r, 0, "%s", strerror(EISDIR));
        return false;
    }
    if (!S_ISREG(st.st_mode)) /* (such as /dev/null) */
        return true;
    if (st.st_uid != 0 && st.st_uid != geteuid()) {
        complain(r, 0, "it belongs to user %u, neither root nor you, and is not read", (unsigned)st.st_uid);
        return false;
    }
    if (st.st_mode & S_IWOTH) {
        complain(r, 0, "it can be written by everybody, and is not read");
        return false;
    }
    return true;
}

void config_read(struct config *c, const char *path, bool must_exist)
{
    struct reader r = { .config = c, .path = path, .file = fopen(path, "re") };

    if (!r.file) {
        if (must_exist || (errno != ENOENT && errno != ENOTDIR && errno != EACCES))
            complain(&r, 0, "%s", strerror(errno));
        return;
    }
    if (is_trusted(&r)) {
        int bad = ini_parse_stream(next_line, &r, take, &r);
        if (bad > 0)
            complain(&r, (unsigned)bad, "neither [PROGRAM] nor 'key = value'");
        else if (bad < 0)
            complain(&r, 0, "%s", strerror(ENOMEM));
        c->names[c->files++] = text_of("%s", path);
    }
    fclose(r.file);
}

void config_read_all(struct config *c, const char *root)
{
    const char *file = getenv(CONFIG_ENV), *folder = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    char *path = NULL;

    if (!root && file && file[0] != '\0') {
        config_read(c, file, true);
        return;
    }
    path = root_path(root ? root : "", CONFIG_SYSTEM, true);
    config_read(c, path, false);
    free(path);
    if (root)
        return;
    if (folder && folder[0] == '/')
        path = text_of("%s/sockwarp.conf", folder);
    else if (home && home[0] == '/')
        path = text_of("%s/.config/sockwarp.conf", home);
    else
        return;
    config_read(c, path, false);
    free(path);
}

/* ---- asking ---- */

/* How well a section fits: 0 its name, 1 a pattern, 2 [*]; -1 not at all. */
static int rank(const char *section, const char *program)
{
    if (strcmp(section, "*") == 0)
        return 2;
    if (strcmp(section, program) == 0)
        return 0;
    return fnmatch(section, program, 0) == 0 ? 1 : -1;
}

static const char *value_in(const struct config *c, unsigned file, int wanted, const char *program,
                            const char *variable)
{
    const char *profile = NULL;

    for (size_t i = 0; i < c->count; i++) {
        const struct config_entry *e = &c->entries[i];

        if (e->file != file || rank(e->section, program) != wanted)
            continue;
        if (strcmp(e->variable, variable) == 0)
            return e->value;
        if (!profile && strcmp(e->variable, PROFILE) == 0)
            profile = e->value;
    }
    return profile ? config_profile(profile, variable) : NULL;
}

const char *config_value(const struct config *c, const char *program, const char *variable)
{
    for (unsigned file = c->files; file > 0; file--)
        for (int wanted = 0; wanted <= 2; wanted++) {
            const char *value = value_in(c, file - 1, wanted, program, variable);

            if (value)
                return value;
        }
    return NULL;
}

void config_free(struct config *c)
{
    for (size_t i = 0; i < c->count; i++) {
        free(c->entries[i].section);
        free(c->entries[i].variable);
        free(c->entries[i].value);
    }
    free(c->entries);
    for (unsigned i = 0; i < c->files; i++)
        free(c->names[i]);
    *c = (struct config){ 0 };
}
