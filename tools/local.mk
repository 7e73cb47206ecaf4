# The launcher: sockwarp PROGRAM, sockwarp stat, sockwarp check.

tools_sources =

if HAVE_LAUNCHER
bin_PROGRAMS += sockwarp
sockwarp_SOURCES = $(tools_sources)
sockwarp_CFLAGS = $(program_cflags)
sockwarp_LDFLAGS = $(program_ldflags)
sockwarp_LDADD = libshared.la libcore.la
endif
