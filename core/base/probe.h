/*
 * USDT probes (configure --enable-probes): places that bpftrace, perf and gdb find by name, provider "sockwarp". Nobody
 * watching, a probe is one instruction that does nothing: give it values that are at hand, and calculate none for it.
 * Where they are and what they carry: docs/PROBES.md. Any thread, also in signal handlers.
 */
#ifndef SW_BASE_PROBE_H
#define SW_BASE_PROBE_H

#include "config.h"

#if HAVE_PROBES
#include <sys/sdt.h>
#define PROBE2(name, a, b) DTRACE_PROBE2(sockwarp, name, a, b)
#define PROBE3(name, a, b, c) DTRACE_PROBE3(sockwarp, name, a, b, c)
#define PROBE4(name, a, b, c, d) DTRACE_PROBE4(sockwarp, name, a, b, c, d)
#else
#define PROBE2(name, a, b) ((void)0)
#define PROBE3(name, a, b, c) ((void)0)
#define PROBE4(name, a, b, c, d) ((void)0)
#endif

#endif
