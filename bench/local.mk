# The load generator and the programs that compare: built with everything, not installed.

noinst_PROGRAMS += sockwarp-bench
sockwarp_bench_SOURCES = \
    bench/load/answer.c \
    bench/load/load.h \
    bench/load/blocks.c \
    bench/load/client.c \
    bench/load/connect.c \
    bench/load/crowd.c \
    bench/load/echo.c \
    bench/load/file.c \
    bench/load/histogram.c \
    bench/load/net.c \
    bench/load/server.c \
    bench/load/sockwarp-bench.c \
    bench/load/wire.c
sockwarp_bench_CFLAGS = $(program_cflags)
sockwarp_bench_LDFLAGS = $(program_ldflags)
sockwarp_bench_LDADD =

# Python, run from the source. Results of reference runs are in bench/results/NAME/.
EXTRA_DIST += bench/compare bench/late.py bench/report bench/run \
    $(sort $(wildcard $(addprefix $(srcdir)/bench/,suite/*.py results/*/*)))
