# The launcher: sockwarp PROGRAM, sockwarp stat, sockwarp check.

tools_sources =

if HAVE_LAUNCHER
bin_PROGRAMS += sockwarp
sockwarp_SOURCES = tools/sockwarp.c $(tools_sources)
sockwarp_CFLAGS = $(program_cflags)
sockwarp_LDFLAGS = $(program_ldflags)
sockwarp_LDADD = libcore.la
endif
