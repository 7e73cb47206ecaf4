# The load generator and the programs that compare: built with everything, not installed.

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

# Python, run from the source. Results of reference runs are in bench/results/NAME/.
EXTRA_DIST += bench/compare bench/late.py bench/report bench/run \
    $(sort $(wildcard $(addprefix $(srcdir)/bench/,suite/*.py results/*/*)))
