/* Endpoints' connections: the events of the connection manager move them on. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/base/addr.h"
#include "core/base/foreign.h"
#include "core/base/sm.h"
#include "core/base/trace.h"
#include "core/transport/verbs_impl.h"
#include "core/transport/verbs_private.h"

#define LISTENERS_MAX 16u
#define PORT_TRIES 16u /* siw's port is one of TCP's, and may be taken there */
#define BACKLOG 128
#define CONTEXTS_MAX 16u

static const struct sm_state states[] = {
    [VERBS_IDLE] = { "idle", SM_TO(VERBS_RESOLVING) | SM_TO(VERBS_EXPECTING) | SM_TO(VERBS_DOWN) },
    [VERBS_EXPECTING] = { "expecting", SM_TO(VERBS_ACCEPTING) | SM_TO(VERBS_DOWN) },
    [VERBS_RESOLVING] = { "resolving", SM_TO(VERBS_ROUTING) | SM_TO(VERBS_DOWN) },
    [VERBS_ROUTING] = { "routing", SM_TO(VERBS_CONNECTING) | SM_TO(VERBS_RESOLVING) | SM_TO(VERBS_DOWN) },
    [VERBS_CONNECTING] = { "connecting", SM_TO(VERBS_UP) | SM_TO(VERBS_DOWN) },
    [VERBS_ACCEPTING] = { "accepting", SM_TO(VERBS_UP) | SM_TO(VERBS_DOWN) },
    [VERBS_UP] = { "up", SM_TO(VERBS_DOWN) },
    [VERBS_DOWN] = { "down", 0 },
};

/*
 * This process's part; the lock protects all of it, and the members of endpoints that their declaration names.
 * Innermost.
 */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    const struct verbs_lib *lib;
    struct verbs_env env;
    struct rdma_event_channel *channel;
    struct verbs_ep *all;
    struct {
        struct rdma_cm_id *id;
        struct sockaddr_storage at; /* the address, and the port that was chosen */
        enum verbs_kind kind;
    } listener[LISTENERS_MAX];
    unsigned listeners;
    struct ibv_context *context[CONTEXTS_MAX]; /* the context whose descriptors were hidden */
    unsigned contexts;
    bool holds;  /* the lock's holder has called env.hold */
    bool forked; /* the libraries' state belongs to the parent */
} host;
static _Atomic int cm_fd = -1;

/* The caller holds the lock: it calls the libraries. */
static void enter(void)
{
    foreign_enter();
    bool holds = host.env.hold != NULL;
    if (holds)
        host.env.hold();
    pthread_mutex_lock(&lock);
    host.holds = holds;
}

static void leave(void)
{
    bool holds = host.holds; /* the environment may have come meanwhile */
    pthread_mutex_unlock(&lock);
    if (holds)
        host.env.go_on();
    foreign_leave();
}

bool verbs_present(const char *device)
{
    DIR *d = opendir("/sys/class/infiniband");
    bool found = false;
    if (d == NULL)
        return false;
    for (struct dirent *e; !found && (e = readdir(d)) != NULL;)
        found = e->d_name[0] != '.' && (device == NULL || device[0] == '\0' || strcmp(e->d_name, device) == 0);
    closedir(d);
    return found;
}

static int setup(const struct verbs_env *env, const char **why)
{
    if (host.forked) {
        *why = "the device was opened before fork";
        return -ENOTSUP;
    }
    if (host.channel != NULL)
        return 0;
    host.lib = verbs_lib_load(why);
    if (host.lib == NULL)
        return -ENOSYS;
    /* Where the kernel does not keep registered pages for the parent, the libraries' memory is kept out of children. */
    host.lib->ibv_fork_init();
    struct rdma_event_channel *channel = host.lib->rdma_create_event_channel();
    if (channel == NULL) {
        *why = "/dev/infiniband/rdma_cm";
        return errno != 0 ? -errno : -EIO;
    }
    channel->fd = env->hide_fd(channel->fd);
    int flags = fcntl(channel->fd, F_GETFL);
    fcntl(channel->fd, F_SETFL, flags | O_NONBLOCK);
    host.env = *env;
    host.channel = channel;
    atomic_store(&cm_fd, channel->fd);
    return 0;
}

int verbs_setup(const struct verbs_env *env, const char **why)
{
    if (env->hold != NULL)
        env->hold();
    enter();
    int r = setup(env, why);
    leave();
    if (env->hold != NULL)
        env->go_on();
    return r;
}

int verbs_cm_fd(void)
{
    return atomic_load_explicit(&cm_fd, memory_order_relaxed);
}

/* librdmacm has opened a device's context: moves its descriptors out of the program's way. */
static void hide_context(struct ibv_context *ctx)
{
    for (unsigned i = 0; i < host.contexts; i++)
        if (host.context[i] == ctx)
            return;
    if (ctx == NULL || host.contexts == CONTEXTS_MAX)
        return;
    ctx->cmd_fd = host.env.hide_fd(ctx->cmd_fd);
    ctx->async_fd = host.env.hide_fd(ctx->async_fd);
    host.context[host.contexts++] = ctx;
}

static bool device_wanted(const struct rdma_cm_id *id)
{
    const char *name = host.env.device;
    return name == NULL || name[0] == '\0' || strcmp(host.lib->ibv_get_device_name(id->verbs->device), name) == 0;
}

/* ---- endpoints ---- */

struct verbs_ep *verbs_new(const struct verbs_cfg *cfg)
{
    struct verbs_ep *ep = calloc(1, sizeof(*ep));
    if (ep == NULL)
        return NULL;
    endpoint_init(&ep->base, &verbs_endpoint_ops);
    ep->cfg = *cfg;
    atomic_store(&ep->why, "");
    enter();
    ep->next = host.all;
    ep->pprev = &host.all;
    if (ep->next != NULL)
        ep->next->pprev = &ep->next;
    host.all = ep;
    leave();
    return ep;
}

void verbs_free(struct verbs_ep *ep)
{
    if (ep == NULL)
        return;
    enter();
    if (!ep->foreign) {
        *ep->pprev = ep->next;
        if (ep->next != NULL)
            ep->next->pprev = ep->pprev;
        if (ep->qp != NULL)
            host.lib->rdma_disconnect(ep->id);
        verbs_unprepare(ep, host.lib, &host.env);
        if (ep->id != NULL)
            host.lib->rdma_destroy_id(ep->id);
    } else {
        verbs_unmap(ep);
    }
    leave();
    free(ep);
}

static void move(struct verbs_ep *ep, enum verbs_state to, const char *why)
{
    uint8_t st = atomic_load(&ep->state);
    sm_move(states, "verbs", ep, &st, (uint8_t)to);
    atomic_store(&ep->why, why);
    atomic_store(&ep->state, st);
}

/* It cannot be, or is no more. */
static void down(struct verbs_ep *ep, const char *why)
{
    if (atomic_load(&ep->state) == VERBS_DOWN)
        return;
    trace_info("verbs %p: %s", (void *)ep, why);
    move(ep, VERBS_DOWN, why);
}

static void put_private(const struct verbs_ep *ep, bool request, uint8_t buf[VERBS_PRIVATE_LEN])
{
    verbs_private_put(&ep->local, (uintptr_t)ep->ring, request ? ep->cfg.token : NULL, buf);
}

/* Takes the peer's private data. False: they are not valid. */
static bool take_private(struct verbs_ep *ep, const struct rdma_conn_param *param)
{
    return verbs_private_take(param->private_data, param->private_data_len, &ep->peer, &ep->peer_base);
}

/* One Read at a time, for the fence. A receiver that is not ready is no error: there are enough buffers. */
static struct rdma_conn_param conn_param(const uint8_t *priv)
{
    return (struct rdma_conn_param){
        .private_data = priv,
        .private_data_len = VERBS_PRIVATE_LEN,
        .responder_resources = 1,
        .initiator_depth = 1,
        .retry_count = 7,
        .rnr_retry_count = 7,
    };
}

/* Makes a new id, and takes the first step to the peer. 0 or -errno. */
static int resolve(struct verbs_ep *ep)
{
    if (host.lib->rdma_create_id(host.channel, &ep->id, ep, RDMA_PS_TCP) < 0 ||
        host.lib->rdma_resolve_addr(ep->id, NULL, (struct sockaddr *)&ep->to, (int)ep->timeout_ms) < 0)
        return errno != 0 ? -errno : -EIO;
    return 0;
}

int verbs_connect(struct verbs_ep *ep, const struct sockaddr *peer, socklen_t len, unsigned timeout_ms)
{
    enter();
    ep->timeout_ms = timeout_ms;
    memcpy(&ep->to, peer, len < sizeof(ep->to) ? len : sizeof(ep->to));
    int r = host.channel != NULL ? resolve(ep) : -ENODEV;
    if (r == 0)
        move(ep, VERBS_RESOLVING, "the address is looked up");
    else
        down(ep, "no device leads to that address");
    leave();
    return r;
}

/* ---- listening ---- */

socklen_t verbs_address(const struct sockaddr *local, struct sockaddr_storage *out)
{
    struct sockaddr_in in = { .sin_family = AF_INET };
    struct sockaddr_in6 in6 = { .sin6_family = AF_UNSPEC };
    memset(out, 0, sizeof(*out));
    if (local->sa_family == AF_INET)
        memcpy(&in.sin_addr, (const uint8_t *)local + offsetof(struct sockaddr_in, sin_addr), sizeof(in.sin_addr));
    else if (local->sa_family == AF_INET6)
        memcpy(&in6, local, sizeof(in6));
    else
        return 0;
    if (in6.sin6_family == AF_INET6 && !IN6_IS_ADDR_V4MAPPED(&in6.sin6_addr)) {
        in6.sin6_port = 0;
        in6.sin6_flowinfo = 0;
        memcpy(out, &in6, sizeof(in6));
        return sizeof(in6);
    }
    if (in6.sin6_family == AF_INET6)
        memcpy(&in.sin_addr, &in6.sin6_addr.s6_addr[12], sizeof(in.sin_addr));
    memcpy(out, &in, sizeof(in));
    return sizeof(in);
}

static enum verbs_kind kind_of(const struct rdma_cm_id *id)
{
    return id->verbs->device->transport_type == IBV_TRANSPORT_IWARP ? VERBS_KIND_IWARP : VERBS_KIND_IB;
}

/* Makes an id of the device that has the address. -ENODEV: none has. */
static int bind_at(const struct sockaddr_storage *at, struct rdma_cm_id **out)
{
    const struct verbs_lib *lib = host.lib;
    struct rdma_cm_id *id;
    if (lib->rdma_create_id(host.channel, &id, NULL, RDMA_PS_TCP) < 0)
        return -errno;
    int r = lib->rdma_bind_addr(id, (struct sockaddr *)(uintptr_t)at) < 0 ? -errno : 0;
    if (r == 0)
        hide_context(id->verbs);
    if (r == 0 && (id->verbs == NULL || !device_wanted(id)))
        r = -ENODEV;
    if (r < 0)
        lib->rdma_destroy_id(id);
    else
        *out = id;
    return r;
}

enum verbs_kind verbs_kind_at(const struct sockaddr *local)
{
    struct sockaddr_storage at;
    struct rdma_cm_id *id;
    enum verbs_kind kind = VERBS_KIND_NONE;
    enter();
    if (host.channel != NULL && verbs_address(local, &at) != 0 && bind_at(&at, &id) == 0) {
        kind = kind_of(id);
        host.lib->rdma_destroy_id(id);
    }
    leave();
    return kind;
}

static int listen_once(struct sockaddr_storage *at, struct rdma_cm_id **out)
{
    int r = bind_at(at, out);
    if (r < 0)
        return r;
    if (host.lib->rdma_listen(*out, BACKLOG) < 0) {
        r = -errno;
        host.lib->rdma_destroy_id(*out);
        return r;
    }
    addr_set_port(at, host.lib->rdma_get_src_port(*out));
    return 0;
}

/* at: an address without a port, which is filled in. */
static int listen_at(struct sockaddr_storage *at, enum verbs_kind *kind)
{
    for (unsigned i = 0; i < host.listeners; i++) {
        struct sockaddr_storage there = host.listener[i].at;
        addr_set_port(&there, 0);
        if (memcmp(&there, at, sizeof(*at)) == 0) {
            *at = host.listener[i].at;
            *kind = host.listener[i].kind;
            return 0;
        }
    }
    if (host.listeners == LISTENERS_MAX)
        return -ENOSPC;
    int r = -EADDRINUSE;
    for (unsigned tries = 0; r == -EADDRINUSE && tries < PORT_TRIES; tries++)
        r = listen_once(at, &host.listener[host.listeners].id);
    if (r < 0)
        return r;
    *kind = kind_of(host.listener[host.listeners].id);
    host.listener[host.listeners].kind = *kind;
    host.listener[host.listeners++].at = *at;
    return 0;
}

int verbs_expect(struct verbs_ep *ep, const struct sockaddr *local, struct sockaddr_storage *at, enum verbs_kind *kind)
{
    enter();
    int r = host.channel == NULL ? -ENODEV : verbs_address(local, at) != 0 ? listen_at(at, kind) : -EAFNOSUPPORT;
    if (r == 0)
        move(ep, VERBS_EXPECTING, "the peer has not connected");
    else
        down(ep, r == -ENODEV ? "no device has the address" : "the device's port cannot be listened on");
    leave();
    return r;
}

/* ---- events; the caller holds the lock ---- */

static void address_known(struct verbs_ep *ep)
{
    hide_context(ep->id->verbs);
    if (!device_wanted(ep->id))
        down(ep, "another device leads to the address");
    else if (host.lib->rdma_resolve_route(ep->id, (int)ep->timeout_ms) < 0)
        down(ep, "rdma_resolve_route");
    else
        move(ep, VERBS_ROUTING, "the route is looked up");
}

/*
 * The connection manager chose a port that siw, whose ports are TCP's, finds taken there: tries again, with an id that
 * has another port. The caller has to destroy the former id.
 */
static void other_port(struct verbs_ep *ep)
{
    trace_info("verbs %p: the port is taken", (void *)ep);
    verbs_unprepare(ep, host.lib, &host.env);
    ep->id = NULL;
    if (resolve(ep) < 0)
        down(ep, "no device leads to that address");
    else
        move(ep, VERBS_RESOLVING, "the address is looked up again");
}

/* True: the caller has to destroy the event's id. */
static bool route_known(struct verbs_ep *ep)
{
    const char *why;
    uint8_t priv[VERBS_PRIVATE_LEN];
    if (verbs_prepare(ep, host.lib, &host.env, &why) < 0) {
        down(ep, why);
        return false;
    }
    put_private(ep, true, priv);
    struct rdma_conn_param param = conn_param(priv);
    if (host.lib->rdma_connect(ep->id, &param) == 0) {
        move(ep, VERBS_CONNECTING, "the peer's device has not answered");
        return false;
    }
    bool again = errno == EADDRINUSE && ++ep->ports < PORT_TRIES;
    if (again)
        other_port(ep);
    else
        down(ep, "rdma_connect");
    return again;
}

static void established(struct verbs_ep *ep, const struct rdma_conn_param *param)
{
    if (atomic_load(&ep->state) == VERBS_CONNECTING && !take_private(ep, param))
        down(ep, "the peer's private data make no sense");
    else
        move(ep, VERBS_UP, "up");
}

static struct verbs_ep *expected(const uint8_t *token)
{
    struct verbs_ep *ep = host.all;
    while (ep != NULL && (atomic_load(&ep->state) != VERBS_EXPECTING || token == NULL ||
                          memcmp(ep->cfg.token, token, VERBS_TOKEN_LEN) != 0))
        ep = ep->next;
    return ep;
}

/* True: an endpoint owns the id now. */
static bool requested(struct rdma_cm_id *id, const struct rdma_conn_param *asks)
{
    struct verbs_ep *ep = expected(verbs_private_token(asks->private_data, asks->private_data_len));
    const char *why = "";
    uint8_t priv[VERBS_PRIVATE_LEN];
    if (ep == NULL) {
        trace_info("verbs: a request without a token of ours");
        host.lib->rdma_reject(id, NULL, 0);
        return false;
    }
    hide_context(id->verbs);
    ep->id = id;
    id->context = ep;
    if (!take_private(ep, asks)) {
        down(ep, "the peer's private data make no sense");
    } else if (verbs_prepare(ep, host.lib, &host.env, &why) < 0) {
        down(ep, why);
    } else {
        put_private(ep, false, priv);
        struct rdma_conn_param param = conn_param(priv);
        if (host.lib->rdma_accept(id, &param) < 0)
            down(ep, "rdma_accept");
        else
            move(ep, VERBS_ACCEPTING, "the peer's device has not confirmed");
    }
    if (atomic_load(&ep->state) == VERBS_DOWN)
        host.lib->rdma_reject(id, NULL, 0);
    return true;
}

/* A device goes: nothing listens there any more. Endpoints also learn it from their flushed receives. */
static void removed(struct rdma_cm_id *id)
{
    if (id->context != NULL) {
        down(id->context, "the device was removed");
        return;
    }
    for (unsigned i = 0; i < host.listeners; i++)
        if (host.listener[i].id == id)
            host.listener[i] = host.listener[--host.listeners];
}

/* The event's id is to be destroyed once the event is acknowledged. */
static bool take_event(const struct rdma_cm_event *ev)
{
    struct verbs_ep *ep = ev->id->context;
    if (ev->event == RDMA_CM_EVENT_CONNECT_REQUEST)
        return !requested(ev->id, &ev->param.conn);
    if (ev->event == RDMA_CM_EVENT_DEVICE_REMOVAL) {
        bool listener = ep == NULL;
        removed(ev->id);
        return listener;
    }
    if (ep == NULL)
        return false;
    switch (ev->event) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
        address_known(ep);
        break;
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
        return route_known(ep);
    case RDMA_CM_EVENT_ESTABLISHED:
        established(ep, &ev->param.conn);
        break;
    case RDMA_CM_EVENT_ADDR_ERROR:
        down(ep, "no device leads to that address");
        break;
    case RDMA_CM_EVENT_ROUTE_ERROR:
        down(ep, "no route");
        break;
    case RDMA_CM_EVENT_REJECTED:
        down(ep, "the peer's device rejected the connection");
        break;
    case RDMA_CM_EVENT_CONNECT_ERROR:
    case RDMA_CM_EVENT_UNREACHABLE:
        down(ep, "the peer's device cannot be reached");
        break;
    case RDMA_CM_EVENT_DISCONNECTED:
        if (atomic_load(&ep->state) != VERBS_UP)
            down(ep, "the peer's device disconnected");
        break;
    default:
        break;
    }
    return false;
}

bool verbs_cm_dispatch(void)
{
    struct rdma_cm_event *ev;
    bool some = false;
    enter();
    while (host.channel != NULL && host.lib->rdma_get_cm_event(host.channel, &ev) == 0) {
        struct rdma_cm_id *id = ev->id;
        trace_debug("verbs: %s, status %d", host.lib->rdma_event_str(ev->event), ev->status);
        bool destroy = take_event(ev);
        host.lib->rdma_ack_cm_event(ev);
        if (destroy)
            host.lib->rdma_destroy_id(id);
        some = true;
    }
    leave();
    return some;
}

/* ---- looking ---- */

enum verbs_state verbs_state(const struct verbs_ep *ep)
{
    return (enum verbs_state)atomic_load(&ep->state);
}

const char *verbs_why(const struct verbs_ep *ep)
{
    return atomic_load(&ep->why);
}

bool verbs_no_memory(const struct verbs_ep *ep)
{
    return ep->no_memory;
}

const char *verbs_device(const struct verbs_ep *ep)
{
    return verbs_state(ep) == VERBS_UP && !ep->foreign ? host.lib->ibv_get_device_name(ep->id->verbs->device) : "";
}

struct verbs_side verbs_local(const struct verbs_ep *ep)
{
    return ep->local;
}

struct verbs_side verbs_peer(const struct verbs_ep *ep)
{
    return ep->peer;
}

uint8_t *verbs_ring(struct verbs_ep *ep)
{
    return ep->ring;
}

size_t verbs_memory(const struct verbs_ep *ep)
{
    return sizeof(*ep) + ep->mem_len;
}

const struct verbs_stats *verbs_stats(const struct verbs_ep *ep)
{
    return &ep->stats;
}

struct endpoint *verbs_endpoint(struct verbs_ep *ep)
{
    return &ep->base;
}

/* ---- fork ---- */

/*
 * The kernel's objects live as long as a process has the descriptors: the child closes its own. The libraries' memory
 * refers to those objects, so the child never uses the libraries again.
 */
void verbs_after_fork(void)
{
    pthread_mutex_init(&lock, NULL);
    if (host.channel == NULL)
        return;
    for (struct verbs_ep *ep = host.all; ep != NULL; ep = ep->next) {
        ep->foreign = true;
        if (ep->channel != NULL)
            host.env.close_fd(ep->channel->fd);
    }
    for (unsigned i = 0; i < host.contexts; i++) {
        host.env.close_fd(host.context[i]->cmd_fd);
        host.env.close_fd(host.context[i]->async_fd);
    }
    host.env.close_fd(host.channel->fd);
    host.all = NULL;
    host.channel = NULL;
    host.listeners = host.contexts = 0;
    host.forked = true;
    atomic_store(&cm_fd, -1);
}
