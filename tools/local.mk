# The launcher: sockwarp PROGRAM.

tools_sources = \
    tools/ask.c \
    tools/ask.h \
    tools/board.c \
    tools/board.h \
    tools/capture.c \
    tools/capture.h \
    tools/check.c \
    tools/check.h \
    tools/config.c \
    tools/config.h \
    tools/diag.c \
    tools/diag.h \
    tools/explain.c \
    tools/explain.h \
    tools/library.c \
    tools/library.h \
    tools/overlay.c \
    tools/overlay.h \
    tools/root.c \
    tools/root.h \
    tools/rules.c \
    tools/rules.h \
    tools/sockwarp.c \
    tools/stat.c \
    tools/stat.h \
    tools/stat_text.c \
    tools/stat_text.h \
    tools/target.c \
    tools/target.h \
    tools/totals.c \
    tools/totals.h \
    tools/trace.c \
    tools/trace.h \
    tools/unit_check.c \
    tools/unit_check.h \
    tools/unit_file.c \
    tools/unit_file.h \
    tools/units.c \
    tools/units.h \
    tools/usage.c \
    tools/usage.h

bin_PROGRAMS += sockwarp
sockwarp_SOURCES = $(tools_sources)
sockwarp_CFLAGS = $(program_cflags) $(INIH_CFLAGS) $(SMARTCOLS_CFLAGS)
sockwarp_LDFLAGS = $(program_ldflags)
sockwarp_LDADD = libshared.la libcore.la $(INIH_LIBS) $(SMARTCOLS_LIBS)
