# Protocol core: one convenience library, position independent, linked into the preload library and the tools. Add a file here when
# you add it to the tree; to beside_sources if nothing that is preloaded has a use for it (tests/library/users.test).

core_sources = \
    core/base/addr.h \
    core/base/append.c \
    core/base/append.h \
    core/base/bytes.h \
    core/base/fnv.h \
    core/base/crc32c.c \
    core/base/crc32c.h \
    core/base/crc32c_arm.c \
    core/base/crc32c_const.h \
    core/base/crc32c_cpu.c \
    core/base/crc32c_impl.h \
    core/base/crc32c_x86.c \
    core/base/crc32c_x86.h \
    core/base/crc32c_x86_fold.c \
    core/base/fault.c \
    core/base/fault.h \
    core/base/foreign.c \
    core/base/foreign.h \
    core/base/iov.h \
    core/base/must.h \
    core/base/probe.h \
    core/base/rawsys.h \
    core/base/reason.c \
    core/base/reason.h \
    core/base/sm.h \
    core/base/spin.h \
    core/base/trace.c \
    core/base/trace.h \
    core/ddp/segment.c \
    core/ddp/segment.h \
    core/ddp/stag.c \
    core/ddp/stag.h \
    core/endpoint.c \
    core/endpoint.h \
    core/iwarp/iwarp.c \
    core/iwarp/iwarp.h \
    core/iwarp/iwarp_batch.c \
    core/iwarp/iwarp_direct.c \
    core/iwarp/iwarp_error.c \
    core/iwarp/iwarp_impl.h \
    core/iwarp/iwarp_rest.c \
    core/iwarp/iwarp_rest.h \
    core/iwarp/iwarp_rx.c \
    core/iwarp/iwarp_tx.c \
    core/iwarp/soft.c \
    core/iwarp/soft.h \
    core/iwarp/startup_end.c \
    core/iwarp/startup_end.h \
    core/mpa/enhanced.c \
    core/mpa/enhanced.h \
    core/mpa/fpdu.c \
    core/mpa/fpdu.h \
    core/mpa/marker.c \
    core/mpa/marker.h \
    core/mpa/portmap.c \
    core/mpa/portmap.h \
    core/mpa/startup.c \
    core/mpa/startup.h \
    core/negotiate/hello.c \
    core/negotiate/hello.h \
    core/negotiate/negotiate.c \
    core/negotiate/negotiate.h \
    core/negotiate/negotiate_mpa.c \
    core/negotiate/negotiate_parts.h \
    core/negotiate/verdict.c \
    core/negotiate/verdict.h \
    core/policy/policy.c \
    core/policy/policy.h \
    core/policy/settings.c \
    core/policy/settings.h \
    core/rdmap/rdmap.c \
    core/rdmap/rdmap.h \
    core/rdmap/terminate.c \
    core/rdmap/terminate.h \
    core/stream/rest.c \
    core/stream/rest.h \
    core/stream/stream.c \
    core/stream/stream.h \
    core/stream/stream_hdr.c \
    core/stream/stream_impl.h \
    core/stream/stream_rx.c \
    core/stream/stream_tx.c \
    core/transport/syscall.c \
    core/transport/transport.h \
    core/transport/uring.c \
    core/transport/uring.h

# The devices' endpoint: libibverbs' and librdmacm's headers are needed, the libraries are loaded at run time.
verbs_sources = \
    core/transport/verbs.h \
    core/transport/verbs_cm.c \
    core/transport/verbs_ep.c \
    core/transport/verbs_impl.h \
    core/transport/verbs_lib.c \
    core/transport/verbs_private.c \
    core/transport/verbs_private.h \
    core/transport/verbs_lib.h
EXTRA_DIST += $(verbs_sources)
if HAVE_VERBS
core_sources += $(verbs_sources)
endif

noinst_LTLIBRARIES += libcore.la
libcore_la_SOURCES = $(core_sources)
libcore_la_CFLAGS = $(hidden_cflags) $(VERBS_CFLAGS)
libcore_la_LIBADD = $(URING_LIBS) $(UNWIND_LIBS)

# With it, what other implementations, tests and conformance programs need beside.
beside_sources = \
    core/iwarp/iwarp_ops.c \
    core/iwarp/iwarp_ops.h \
    core/mpa/session.c \
    core/mpa/session.h \
    core/transport/mem.c \
    core/transport/mem.h \
    core/transport/shm.c \
    core/transport/shm.h

noinst_LTLIBRARIES += libwhole.la
libwhole_la_SOURCES = $(beside_sources)
libwhole_la_CFLAGS = $(hidden_cflags)
libwhole_la_LIBADD = libcore.la
