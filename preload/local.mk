# The library that LD_PRELOAD loads: $(pkglibdir)/libsockwarp.so, in the build tree .libs/libsockwarp.so with a link
# libsockwarp.so beside the launcher.

preload_sources = \
    preload/alias.c \
    preload/arena.c \
    preload/arena.h \
    preload/calls.h \
    preload/cancel.c \
    preload/cancel.h \
    preload/clone.c \
    preload/conn.c \
    preload/conn.h \
    preload/conn_end.c \
    preload/conn_mem.c \
    preload/conn_ops.h \
    preload/conn_orphan.c \
    preload/conn_rx.c \
    preload/conn_batch.c \
    preload/conn_nagle.c \
    preload/conn_peek.c \
    preload/conn_plain.c \
    preload/conn_tx.c \
    preload/conn_urgent.c \
    preload/conn_zerocopy.c \
    preload/connect.c \
    preload/connect.h \
    preload/dispatch.h \
    preload/dispatch_end.c \
    preload/dispatch_recv.c \
    preload/dispatch_send.c \
    preload/dl.h \
    preload/epoll.c \
    preload/epoll.h \
    preload/epoll_park.c \
    preload/epoll_ready.c \
    preload/epoll_set.c \
    preload/epoll_set.h \
    preload/epoll_share.c \
    preload/epoll_share.h \
    preload/epoll_sock.c \
    preload/epoll_wait.c \
    preload/exec.c \
    preload/exec.h \
    preload/explain.c \
    preload/explain.h \
    preload/fallback.c \
    preload/fallback.h \
    preload/fdops.c \
    preload/fdops.h \
    preload/file.c \
    preload/flusher.c \
    preload/flusher.h \
    preload/fork.c \
    preload/gather.c \
    preload/gather.h \
    preload/hidden.c \
    preload/hidden.h \
    preload/holders.c \
    preload/holders.h \
    preload/inherit.c \
    preload/hooks.h \
    preload/io.c preload/io.h \
    preload/libc.h \
    preload/libc_calls.h \
    preload/listen.c \
    preload/local.c \
    preload/local.h \
    preload/look.c preload/look.h \
    preload/notify.c \
    preload/notify.h \
    preload/opts.c \
    preload/poll.c \
    preload/pending.c \
    preload/pending.h \
    preload/poller.c \
    preload/poller.h \
    preload/probe.c \
    preload/probe.h \
    preload/names.c \
    preload/proc.c \
    preload/proc.h \
    preload/program.c \
    preload/program.h \
    preload/raw.c \
    preload/ready.c \
    preload/ready.h \
    preload/real.c \
    preload/real.h \
    preload/ring.c \
    preload/ring.h \
    preload/ring_look.c \
    preload/sandbox.c \
    preload/sandbox.h \
    preload/seccomp.c \
    preload/seccomp.h \
    preload/segv.c \
    preload/segv.h \
    preload/sock.c \
    preload/sock.h \
    preload/start.c \
    preload/start.h \
    preload/startup.c \
    preload/startup.h \
    preload/startup_await.c \
    preload/startup_begin.c \
    preload/startup_pending.c \
    preload/startup_turns.c \
    preload/startup_upgrade.c \
    preload/stdio.c \
    preload/stdio.h \
    preload/system.c \
    preload/tcpinfo.c \
    preload/tcpinfo.h \
    preload/transports.c \
    preload/transports.h \
    preload/turn.c \
    preload/turn.h \
    preload/verbs.h \
    preload/wait.c \
    preload/wait.h

# Connections on RDMA devices.
verbs_preload_sources = \
    preload/mixed.c \
    preload/mixed.h \
    preload/rnic.h \
    preload/verbs_io.c \
    preload/verbs_ready.c \
    preload/verbs_setup.c
EXTRA_DIST += $(verbs_preload_sources)
if HAVE_VERBS
preload_sources += $(verbs_preload_sources)
endif

# What the tools and the unit tests use as well.
shared_sources = \
    preload/spin.h \
    preload/stats.c \
    preload/stats.h

# Files that define fortified entry points (__read_chk and the like) cannot themselves be compiled with
# _FORTIFY_SOURCE: list them here instead.
preload_unfortified_sources = \
    preload/chk.c

# Symbols that are defined by assembly, which link-time optimisation does not see.
preload_asm_sources = \
    preload/dl.c \
    preload/libc.c

EXTRA_DIST += preload/libsockwarp.awk preload/libc.awk

noinst_LTLIBRARIES += libshared.la
libshared_la_SOURCES = $(shared_sources)
libshared_la_CFLAGS = $(hidden_cflags)

# A symbol that is missing shows at link time and not in somebody's program. (A sanitizer's are in the program.)
if !SANITIZED
preload_defs = -Wl,-z,defs
endif

preload_map = preload/libsockwarp.map
libc_opts = preload/libc.opts
pkglib_LTLIBRARIES += libsockwarp.la
noinst_LTLIBRARIES += libunfortified.la
libunfortified_la_SOURCES = $(preload_unfortified_sources)
# (In CFLAGS, to come after a -D of the user's CPPFLAGS.)
libunfortified_la_CFLAGS = $(AM_CFLAGS) -U_FORTIFY_SOURCE
noinst_LTLIBRARIES += libasm.la
libasm_la_SOURCES = $(preload_asm_sources)
libasm_la_CFLAGS = $(AM_CFLAGS) -fno-lto
libsockwarp_la_SOURCES = $(preload_sources)
libsockwarp_la_CFLAGS = $(AM_CFLAGS) $(SW_LTO_CFLAGS)
libsockwarp_la_LDFLAGS = $(AM_LDFLAGS) $(SW_LTO_LDFLAGS) -module -avoid-version -shared -no-undefined $(preload_defs) \
    -Wl,--version-script=$(preload_map) -Wl,-Bsymbolic-functions -Wl,@$(libc_opts)
libsockwarp_la_LIBADD = libasm.la libunfortified.la libshared.la libcore.la
EXTRA_libsockwarp_la_DEPENDENCIES = $(preload_map) $(libc_opts)
CLEANFILES += $(preload_map) $(libc_opts) libsockwarp.so

# Exported: the intercepted calls, from the list that declares and resolves them. Everything else is local.
$(preload_map): preload/calls.h preload/libsockwarp.awk
	$(AM_V_at)$(MKDIR_P) preload
	$(AM_V_GEN)$(AWK) -f $(srcdir)/preload/libsockwarp.awk $(srcdir)/preload/calls.h >$@.tmp && mv $@.tmp $@

# What we call, whoever else defines it: our own functions by -Bsymbolic-functions, libc's by these.
$(libc_opts): preload/libc_calls.h preload/libc.awk
	$(AM_V_at)$(MKDIR_P) preload
	$(AM_V_GEN)$(AWK) -f $(srcdir)/preload/libc.awk $(srcdir)/preload/libc_calls.h >$@.tmp && mv $@.tmp $@

all-local: libsockwarp.so
libsockwarp.so: libsockwarp.la
	$(AM_V_GEN)$(LN_S) -f .libs/libsockwarp.so $@

# libtool's index file is of no use for a library that is only preloaded.
install-exec-hook:
	rm -f $(DESTDIR)$(pkglibdir)/libsockwarp.la
uninstall-hook:
	rm -f $(DESTDIR)$(pkglibdir)/libsockwarp.so
	-rmdir $(DESTDIR)$(pkglibdir) 2>/dev/null

# What is installed finds each other: launcher, library, pkg-config file.
installcheck-local:
	test -r $(DESTDIR)$(pkglibdir)/libsockwarp.so
	test "`$(DESTDIR)$(bindir)/sockwarp --version`" = "sockwarp $(PACKAGE_VERSION)"
	test "`PKG_CONFIG_PATH=$(DESTDIR)$(pkgconfigdir) $(PKG_CONFIG) --variable=preload sockwarp`" = $(pkglibdir)/libsockwarp.so
	test -n "$(DESTDIR)" || test "`$(bindir)/sockwarp sh -c 'echo $$LD_PRELOAD'`" = $(pkglibdir)/libsockwarp.so
