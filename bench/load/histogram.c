/*
 * Log-linear histogram: 128 buckets for each power of two, so a bucket is at most 1/128 of its value wide. Adding is a
 * few instructions and never allocates, which keeps it out of what is measured.
 */
#include "bench/load/load.h"

#include <stdio.h>

#define SUB_BITS 7u
#define SUB (1u << SUB_BITS)

static size_t bucket_of(uint64_t v)
{
    if (v < SUB)
        return (size_t)v;
    unsigned shift = 63u - (unsigned)__builtin_clzll(v) - SUB_BITS;
    return (size_t)(shift + 1) * SUB + (size_t)((v >> shift) - SUB);
}

/* The middle of a bucket. */
static uint64_t value_of(size_t bucket)
{
    if (bucket < SUB)
        return bucket;
    unsigned shift = (unsigned)(bucket / SUB) - 1;
    return ((uint64_t)(SUB + bucket % SUB) << shift) + ((1ull << shift) >> 1);
}

void histogram_add(struct histogram *h, uint64_t value)
{
    if (h->count == 0 || value < h->min)
        h->min = value;
    if (value > h->max)
        h->max = value;
    h->count++;
    h->sum += value;
    h->bucket[bucket_of(value)]++;
}

void histogram_merge(struct histogram *to, const struct histogram *from)
{
    if (from->count == 0)
        return;
    if (to->count == 0 || from->min < to->min)
        to->min = from->min;
    if (from->max > to->max)
        to->max = from->max;
    to->count += from->count;
    to->sum += from->sum;
    for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++)
        to->bucket[i] += from->bucket[i];
}

uint64_t histogram_quantile(const struct histogram *h, double fraction)
{
    uint64_t rank = (uint64_t)(fraction * (double)h->count);
    uint64_t seen = 0;

    for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
        seen += h->bucket[i];
        if (seen > rank) {
            uint64_t v = value_of(i);
            return v < h->min ? h->min : v > h->max ? h->max : v;
        }
    }
    return h->max;
}

void histogram_print_json(const struct histogram *h, const char *name)
{
    printf("\"%s\":{\"count\":%llu,\"min\":%.3f,\"mean\":%.3f,\"p50\":%.3f,\"p99\":%.3f,\"p999\":%.3f,\"max\":%.3f}",
           name, (unsigned long long)h->count, (double)h->min / 1e3,
           h->count ? (double)h->sum / (double)h->count / 1e3 : 0, (double)histogram_quantile(h, 0.5) / 1e3,
           (double)histogram_quantile(h, 0.99) / 1e3, (double)histogram_quantile(h, 0.999) / 1e3, (double)h->max / 1e3);
}
