# The launcher: sockwarp PROGRAM.

tools_sources = \
    tools/check.c \
    tools/check.h \
    tools/explain.c \
    tools/explain.h \
    tools/library.c \
    tools/library.h \
    tools/sockwarp.c \
    tools/target.c \
    tools/target.h

bin_PROGRAMS += sockwarp
sockwarp_SOURCES = $(tools_sources)
sockwarp_CFLAGS = $(program_cflags)
sockwarp_LDFLAGS = $(program_ldflags)
sockwarp_LDADD = libshared.la libcore.la
