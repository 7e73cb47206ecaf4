/*
 * libibverbs and librdmacm, loaded when a device is needed for the first time: the preload library does not depend on
 * them, and a machine without a device never loads them.
 */
#ifndef SW_TRANSPORT_VERBS_LIB_H
#define SW_TRANSPORT_VERBS_LIB_H

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "core/base/must.h"

#undef ibv_reg_mr /* a macro around calls that are linked; the plain call does without optional flags */

/*  X(name): the calls that are used. (Posting and polling are inline calls through the device's context.) */
#define VERBS_LIB_IBV(X)        \
    X(ibv_fork_init)            \
    X(ibv_create_comp_channel)  \
    X(ibv_destroy_comp_channel) \
    X(ibv_create_cq)            \
    X(ibv_destroy_cq)           \
    X(ibv_get_cq_event)         \
    X(ibv_ack_cq_events)        \
    X(ibv_alloc_pd)             \
    X(ibv_dealloc_pd)           \
    X(ibv_reg_mr)               \
    X(ibv_dereg_mr)             \
    X(ibv_get_device_name)      \
    X(ibv_get_device_list)      \
    X(ibv_free_device_list)     \
    X(ibv_wc_status_str)

#define VERBS_LIB_RDMA(X)         \
    X(rdma_create_event_channel)  \
    X(rdma_destroy_event_channel) \
    X(rdma_create_id)             \
    X(rdma_destroy_id)            \
    X(rdma_bind_addr)             \
    X(rdma_resolve_addr)          \
    X(rdma_resolve_route)         \
    X(rdma_create_qp)             \
    X(rdma_destroy_qp)            \
    X(rdma_connect)               \
    X(rdma_listen)                \
    X(rdma_accept)                \
    X(rdma_reject)                \
    X(rdma_disconnect)            \
    X(rdma_get_src_port)          \
    X(rdma_get_cm_event)          \
    X(rdma_ack_cm_event)          \
    X(rdma_event_str)

struct verbs_lib {
#define X(name) __typeof__(&name) name;
    VERBS_LIB_IBV(X)
    VERBS_LIB_RDMA(X)
#undef X
};

/*
 * Loads them, once. NULL: they are not there, *why says what is missing. Any thread, not in signal handlers.
 */
const struct verbs_lib *verbs_lib_load(const char **why) SW_MUST;

#endif
