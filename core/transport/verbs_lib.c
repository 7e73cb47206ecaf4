/*
 * Loading libibverbs and librdmacm.
 */
#include "core/transport/verbs_lib.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct verbs_lib lib;
static const char *missing;

/* dlsym gives the newest version of a symbol, which is what the headers describe. */
static void *symbol(void *handle, const char *name)
{
    void *p = handle != NULL ? dlsym(handle, name) : NULL;
    if (p == NULL && missing == NULL)
        missing = name;
    return p;
}

static void load(void)
{
    void *ibv = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
    if (ibv == NULL)
        missing = "libibverbs.so.1";
    void *rdma = dlopen("librdmacm.so.1", RTLD_NOW | RTLD_LOCAL);
    if (rdma == NULL && missing == NULL)
        missing = "librdmacm.so.1";
    void *p;
#define X(name)             \
    p = symbol(ibv, #name); \
    memcpy(&lib.name, &p, sizeof(p));
    VERBS_LIB_IBV(X)
#undef X
#define X(name)              \
    p = symbol(rdma, #name); \
    memcpy(&lib.name, &p, sizeof(p));
    VERBS_LIB_RDMA(X)
#undef X
}

const struct verbs_lib *verbs_lib_load(const char **why)
{
    pthread_once(&once, load);
    if (missing != NULL)
        *why = missing;
    return missing == NULL ? &lib : NULL;
}
