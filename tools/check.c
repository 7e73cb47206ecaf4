/*
 * sockwarp check. It has tried what it says of the kernel and of devices. What it says of a connection follows from the
 * rules, and holds if the peer agrees.
 */
#include "tools/check.h"

#include <dirent.h>
#include <errno.h>
#include <ifaddrs.h>
#include <limits.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/base/crc32c.h"
#include "core/base/reason.h"
#include "core/negotiate/hello.h"
#include "core/policy/policy.h"
#include "core/transport/transport.h"
#include "tools/ask.h"
#include "tools/usage.h"

#if HAVE_VERBS
#include "core/transport/verbs_lib.h"
#endif

#define DEVICES "/sys/class/infiniband"
#define ROUTE_MS 2000
#define CONN_MEMLOCK 900000u /* of a connection on a device, at most: preload/device/device_setup.c */

/* ---- the kernel ---- */

static int keep_fd(int fd)
{
    return fd;
}

static void say_io(const struct settings *s)
{
    static const struct transport_env env = { .hide_fd = keep_fd, .close_fd = close };
    int want = s->io == SETTINGS_IO_AUTO ? -1 : s->io == SETTINGS_IO_URING;
    const char *why = "";
    const struct transport_ops *t = transport_choose(want, &env, &why);
    say("i/o", "%s: %s", strcmp(t->name, "uring") == 0 ? "io_uring" : "system calls", why);
}

static void say_crc(const struct settings *s)
{
    crc32c_setup(s->crc);
    say("crc32c", "%s", crc32c_name());
}

static void say_limits(void)
{
    struct rlimit lim;
    if (getrlimit(RLIMIT_NOFILE, &lim) == 0)
        say("descriptors", "%llu", (unsigned long long)lim.rlim_cur);
    if (getrlimit(RLIMIT_MEMLOCK, &lim) < 0)
        return;
    if (lim.rlim_cur == RLIM_INFINITY)
        say("memlock", "unlimited");
    else
        say("memlock", "%llu KiB: %llu connections on a device, unless privileged (ulimit -l)",
            (unsigned long long)lim.rlim_cur / 1024u, (unsigned long long)lim.rlim_cur / CONN_MEMLOCK);
}

/* ---- devices ---- */

/* The first line of a device's file in sysfs; "" if there is none. */
static const char *attribute(const char *device, const char *file, char buf[64])
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), DEVICES "/%s/%s", device, file);
    FILE *f = fopen(path, "re");
    buf[0] = '\0';
    if (f == NULL)
        return buf;
    if (fgets(buf, 64, f) == NULL)
        buf[0] = '\0';
    fclose(f);
    buf[strcspn(buf, "\n")] = '\0';
    return buf;
}

/* "4: ACTIVE" -> "ACTIVE" */
static const char *word_of(const char *value)
{
    const char *at = strstr(value, ": ");
    return at != NULL ? at + 2 : value;
}

static const char *kind_of(const char *device)
{
    char type[64], layer[64];
    if (strcmp(word_of(attribute(device, "node_type", type)), "RNIC") == 0)
        return "iWARP";
    return strcmp(attribute(device, "ports/1/link_layer", layer), "Ethernet") == 0 ? "RoCE" : "InfiniBand";
}

static void say_devices(void)
{
    DIR *d = opendir(DEVICES);
    unsigned n = 0;
    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
        char state[64], link[64], netdev[64];
        if (e->d_name[0] == '.')
            continue;
        attribute(e->d_name, "ports/1/state", state);
        attribute(e->d_name, "ports/1/phys_state", link);
        attribute(e->d_name, "ports/1/gid_attrs/ndevs/0", netdev);
        say(n == 0 ? "devices" : "", "%s: %s, port 1 %s, link %s%s%s", e->d_name, kind_of(e->d_name), word_of(state),
            word_of(link), netdev[0] ? ", on " : "", netdev);
        n++;
    }
    if (d != NULL)
        closedir(d);
    if (n == 0)
        say("devices", "none in " DEVICES);
}

#if HAVE_VERBS

/* The device that leads to addr: its name in `device`, or false and why there is none. */
static bool device_for(const struct sockaddr *addr, const char *only, char *device, size_t cap, const char **why)
{
    const struct verbs_lib *lib = verbs_lib_load(why);
    if (lib == NULL)
        return false;
    struct rdma_event_channel *channel = lib->rdma_create_event_channel();
    struct rdma_cm_id *id = NULL;
    struct rdma_cm_event *ev;
    bool found = false;
    *why = "/dev/infiniband/rdma_cm cannot be opened";
    if (channel == NULL)
        return false;
    *why = "no device leads there";
    if (lib->rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0 &&
        lib->rdma_resolve_addr(id, NULL, (struct sockaddr *)(uintptr_t)addr, ROUTE_MS) == 0 &&
        lib->rdma_get_cm_event(channel, &ev) == 0) {
        found = ev->event == RDMA_CM_EVENT_ADDR_RESOLVED;
        lib->rdma_ack_cm_event(ev);
    }
    if (found) {
        snprintf(device, cap, "%s", lib->ibv_get_device_name(id->verbs->device));
        if (only[0] != '\0' && strcmp(only, device) != 0) {
            found = false;
            *why = "SOCKWARP_DEVICE names another one than leads there";
        }
    }
    if (id != NULL)
        lib->rdma_destroy_id(id);
    lib->rdma_destroy_event_channel(channel);
    return found;
}

static void say_libraries(void)
{
    const char *why;
    if (verbs_lib_load(&why) != NULL)
        say("verbs", "libibverbs and librdmacm are there");
    else
        say("verbs", "off: %s is missing", why);
}

#else

static bool device_for(const struct sockaddr *addr, const char *only, char *device, size_t cap, const char **why)
{
    (void)addr, (void)only, (void)device, (void)cap;
    *why = "built without verbs";
    return false;
}

static void say_libraries(void)
{
    say("verbs", "off: built without libibverbs and librdmacm");
}

#endif

/* ---- what would be chosen ---- */

struct target {
    struct sockaddr_storage addr;
    socklen_t len;
    bool port;
};

static int parse(const char *text, struct target *t, char *err, size_t cap)
{
    char host[256], port[16] = "0";
    const char *colon = strrchr(text, ':'), *end = text + strlen(text);
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV }, *ai;
    bool brackets = text[0] == '[';
    t->port = false;
    /* (An IPv6 address without brackets has no port.) */
    if (colon != NULL && (brackets ? colon > text && colon[-1] == ']' : strchr(text, ':') == colon)) {
        end = colon;
        t->port = true;
        snprintf(port, sizeof(port), "%s", colon + 1);
    }
    snprintf(host, sizeof(host), "%.*s", (int)(end - text - 2 * brackets), text + brackets);
    unsigned long n = strtoul(port, NULL, 10);
    if (host[0] == '\0' || (brackets && end[-1] != ']') ||
        (t->port && (port[strspn(port, "0123456789")] != '\0' || n == 0 || n > 65535))) {
        snprintf(err, cap, "'%s' is not ADDRESS or ADDRESS:PORT (a port is 1 to 65535)", text);
        return -EINVAL;
    }
    int r = getaddrinfo(host, port, &hints, &ai);
    if (r != 0) {
        snprintf(err, cap, "'%s': %s", host, gai_strerror(r));
        return -EINVAL;
    }
    memcpy(&t->addr, ai->ai_addr, ai->ai_addrlen);
    t->len = ai->ai_addrlen;
    freeaddrinfo(ai);
    return 0;
}

static bool same_address(const struct sockaddr *a, const struct sockaddr *b)
{
    const struct sockaddr_in *a4 = (const void *)a, *b4 = (const void *)b;
    const struct sockaddr_in6 *a6 = (const void *)a, *b6 = (const void *)b;
    if (a->sa_family != b->sa_family)
        return false;
    if (a->sa_family == AF_INET)
        return a4->sin_addr.s_addr == b4->sin_addr.s_addr;
    return a->sa_family == AF_INET6 && IN6_ARE_ADDR_EQUAL(&a6->sin6_addr, &b6->sin6_addr);
}

static bool is_own(const struct sockaddr *addr)
{
    struct ifaddrs *all;
    bool own = false;
    if (getifaddrs(&all) < 0)
        return false;
    for (const struct ifaddrs *i = all; i != NULL && !own; i = i->ifa_next)
        own = i->ifa_addr != NULL && same_address(i->ifa_addr, addr);
    freeifaddrs(all);
    return own;
}

static const struct policy_rule *match(const struct settings *s, enum policy_role role, const struct target *t)
{
    struct policy policy = s->policy;
    policy.is_own = is_own;
    return policy_match(&policy, role, (const struct sockaddr *)&t->addr, t->len);
}

static void say_choice(const char *what, const char *rules, const struct settings *s, const struct target *t,
                       enum policy_role role)
{
    const struct sockaddr *addr = (const struct sockaddr *)&t->addr;
    const struct policy_rule *rule = match(s, role, t);
    const char *text = rule != NULL ? rules + rule->column - 1 : "", *why = "";
    int text_len = (int)strcspn(text, ";\n");
    char device[64];
    while (text_len > 0 && text[text_len - 1] == ' ')
        text_len--;
    if (rule == NULL || rule->action == POLICY_OFF) {
        say(what, "plain TCP: %s%.*s%s", rule ? "the rule '" : "no rule fits", text_len, text, rule ? "'" : "");
        return;
    }
    bool verbs = rule->opts.transports & HELLO_TRANSPORT_VERBS;
    bool there = device_for(addr, s->device, device, sizeof(device), &why);
    const char *orelse = rule->action == POLICY_REQUIRE ? "refused" : "plain TCP";
    if (verbs && there)
        say(what, "verbs on %s (%s), else iwarp, else %s: the rule '%.*s'", device, kind_of(device), orelse, text_len,
            text);
    else
        say(what, "iwarp, else %s: the rule '%.*s'", orelse, text_len, text);
    if (verbs && !there)
        say("", "(not verbs: %s)", why);
    else if (there && !verbs)
        say("", "(%s leads there; transport=verbs would use it)", device);
}

/* What a rule allows; --ask may ask a server though the rules would not. */
static int ask_there(const struct settings *s, const struct target *t)
{
    const struct sockaddr *addr = (const struct sockaddr *)&t->addr;
    const struct policy_rule *rule = match(s, POLICY_CONNECT, t);
    bool off = rule == NULL || rule->action == POLICY_OFF;
    uint32_t transports = off ? HELLO_TRANSPORT_IWARP : rule->opts.transports;

    if (off)
        say("", "(asked all the same)");
    unsigned reason = ask_print(addr, t->len, transports, s->hello_timeout_ms);
    if (off && reason == REASON_UPGRADED)
        say("", "(but by the rules of this end it is plain)");
    else if (reason == REASON_UPGRADED && !is_own(addr) && !rule->opts.ask_always && rule->action != POLICY_REQUIRE &&
             !rule->opts.immediate)
        say("", "(if its mark in TCP's handshake arrives here: see 'sockwarp explain unmarked')");
    return !off && reason == REASON_UPGRADED ? 0 : -ECONNREFUSED;
}

int check_print(const char *lib, const struct settings *s, const char *rules, bool by_default, const char *target,
                bool ask, char *err, size_t cap)
{
    struct target t = { 0 };
    if (target != NULL && parse(target, &t, err, cap) < 0)
        return -EINVAL;
    if (ask && !t.port) {
        snprintf(err, cap, "--ask wants ADDRESS:PORT");
        return -EINVAL;
    }
    say("version", "%s", SW_VERSION);
    say("library", "%s", lib);
    say("rules", "%s%s", rules[0] ? rules : "(none: everything stays plain)", by_default ? " (the default)" : "");
    say_io(s);
    say_crc(s);
    say_limits();
    say_libraries();
    say_devices();
    if (target == NULL)
        return 0;
    say("address", "%s%s", target, t.port ? "" : ", any port");
    say_choice("connect to", rules, s, &t, POLICY_CONNECT);
    say_choice("accept on", rules, s, &t, POLICY_ACCEPT);
    return ask ? ask_there(s, &t) : 0;
}
