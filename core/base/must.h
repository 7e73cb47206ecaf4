/* Small attributes used everywhere. */
#ifndef SW_BASE_MUST_H
#define SW_BASE_MUST_H

/* The result is an error that must be looked at. */
#define SW_MUST __attribute__((warn_unused_result))
#define SW_PRINTF(f, a) __attribute__((format(printf, f, a)))
#define SW_UNUSED __attribute__((unused))
#define SW_LIKELY(x) __builtin_expect(!!(x), 1)
#define SW_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define SW_ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

#endif
