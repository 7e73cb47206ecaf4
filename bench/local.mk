# The load generator and the comparison: built with everything, not installed.

noinst_PROGRAMS += sockwarp-bench
sockwarp_bench_SOURCES = \
    bench/bench.h \
    bench/blocks.c \
    bench/client.c \
    bench/connect.c \
    bench/crowd.c \
    bench/echo.c \
    bench/file.c \
    bench/histogram.c \
    bench/net.c \
    bench/server.c \
    bench/sockwarp-bench.c \
    bench/wire.c
sockwarp_bench_CFLAGS = $(program_cflags)
sockwarp_bench_LDFLAGS = $(program_ldflags)
sockwarp_bench_LDADD =

EXTRA_DIST += bench/compare
