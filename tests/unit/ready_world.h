/*
 * What stands in for the rest of the epoll sets where a test links the ready list by itself: one set, and its
 * registrations. For one file of a program.
 */
#ifndef SW_TESTS_READY_WORLD_H
#define SW_TESTS_READY_WORLD_H

#include "preload/ready/epoll_set.h"

#define WATCHES 24u

static struct epset set;
static struct watch watches[WATCHES];

void epset_put(struct epset *s)
{
    (void)s;
}

void epset_lock(struct epset *s)
{
    pthread_mutex_lock(&s->lock);
}

void epset_unlock(struct epset *s)
{
    pthread_mutex_unlock(&s->lock);
}

void epset_expel_all(struct epset *s)
{
    (void)s;
}

bool share_is_tokened(const struct epset *s)
{
    (void)s;
    return true;
}

uint64_t watch_token(const struct watch *w)
{
    return (uint64_t)(w - watches);
}

#endif
