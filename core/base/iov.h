/*
 * An iterator over a borrowed iovec array: "the next n octets of what the program gave us",
 * without copying them and without changing the program's array.
 */
#ifndef SW_BASE_IOV_H
#define SW_BASE_IOV_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/uio.h>

struct iov_iter {
    const struct iovec *iov; /* borrowed; the element under way */
    size_t n;                /* elements left, the one under way included */
    size_t off;              /* octets used up in the element under way */
};

static inline struct iov_iter iov_iter_init(const struct iovec *iov, size_t n)
{
    return (struct iov_iter){ .iov = iov, .n = n, .off = 0 };
}

/* Octets left in all. Saturates at SIZE_MAX. */
static inline size_t iov_iter_left(const struct iov_iter *it)
{
    size_t sum = 0;
    for (size_t i = 0; i < it->n; i++) {
        size_t l = it->iov[i].iov_len - (i == 0 ? it->off : 0);
        if (sum + l < sum)
            return SIZE_MAX;
        sum += l;
    }
    return sum;
}

/*
 * The next run of contiguous octets, at most max of them, and steps over it.
 * Returns its length; 0 at the end or for max 0. Empty elements are skipped.
 */
static inline size_t iov_iter_next(struct iov_iter *it, size_t max, void **p)
{
    while (it->n > 0 && it->off == it->iov->iov_len) {
        it->iov++;
        it->n--;
        it->off = 0;
    }
    if (it->n == 0 || max == 0)
        return 0;
    size_t l = it->iov->iov_len - it->off;
    if (l > max)
        l = max;
    *p = (uint8_t *)it->iov->iov_base + it->off;
    it->off += l;
    return l;
}

/* Steps over len octets; returns how many there were to step over. */
static inline size_t iov_iter_skip(struct iov_iter *it, size_t len)
{
    size_t done = 0;
    void *p;
    for (size_t l; done < len && (l = iov_iter_next(it, len - done, &p)) > 0;)
        done += l;
    return done;
}

/* Copies up to len octets out of the iterator's memory to dst; returns how many. */
static inline size_t iov_iter_gather(struct iov_iter *it, void *dst, size_t len)
{
    size_t done = 0;
    void *p;
    for (size_t l; done < len && (l = iov_iter_next(it, len - done, &p)) > 0; done += l)
        memcpy((uint8_t *)dst + done, p, l);
    return done;
}

/* Copies up to len octets from src into the iterator's memory; returns how many. */
static inline size_t iov_iter_scatter(struct iov_iter *it, const void *src, size_t len)
{
    size_t done = 0;
    void *p;
    for (size_t l; done < len && (l = iov_iter_next(it, len - done, &p)) > 0; done += l)
        memcpy(p, (const uint8_t *)src + done, l);
    return done;
}

#endif
