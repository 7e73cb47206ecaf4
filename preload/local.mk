# The library that LD_PRELOAD loads: $(pkglibdir)/libsockwarp.so, in the build tree .libs/libsockwarp.so with a link
# libsockwarp.so beside the launcher.

# The rooms, from the ground up (HACKING.md, "Map").
preload_sources = \
    preload/process/apart.c \
    preload/process/apart.h \
    preload/process/board.c \
    preload/process/board.h \
    preload/process/board_format.h \
    preload/process/calls.h \
    preload/process/cancel.c \
    preload/process/cancel.h \
    preload/process/hidden.c \
    preload/process/hidden.h \
    preload/process/dynamic.h \
    preload/process/folder.c \
    preload/process/folder.h \
    preload/process/kept.c \
    preload/process/kept.h \
    preload/process/holders.c \
    preload/process/holders.h \
    preload/process/imports.c \
    preload/process/imports.h \
    preload/process/libc.h \
    preload/process/libc_calls.h \
    preload/process/proc.c \
    preload/process/proc.h \
    preload/process/program.c \
    preload/process/program.h \
    preload/process/real.c \
    preload/process/real.h \
    preload/process/rules.c \
    preload/process/rules.h \
    preload/process/sandbox.c \
    preload/process/sandbox.h \
    preload/process/segv.c \
    preload/process/segv.h \
    preload/process/others.c \
    preload/process/others.h \
    preload/process/shortage.h \
    preload/process/signals.c \
    preload/process/signals.h \
    preload/process/start.h \
    preload/process/netlink.c \
    preload/process/netlink.h \
    preload/process/tcpinfo.c \
    preload/process/tcpinfo.h \
    preload/process/transports.c \
    preload/process/transports.h \
    preload/process/turn.c \
    preload/process/turn.h \
    preload/process/usermem.c \
    preload/process/usermem.h \
    preload/sock/hooks.h \
    preload/sock/look.c \
    preload/sock/look.h \
    preload/sock/notify.h \
    preload/sock/pending.c \
    preload/sock/pending.h \
    preload/sock/poller.c \
    preload/sock/poller.h \
    preload/sock/sock.c \
    preload/sock/sock.h \
    preload/sock/wait.c \
    preload/sock/wait.h \
    preload/conn/coalesce.c \
    preload/conn/coalesce.h \
    preload/conn/conn.c \
    preload/conn/conn.h \
    preload/conn/conn_apart.c \
    preload/conn/conn_apart.h \
    preload/conn/conn_board.c \
    preload/conn/conn_board.h \
    preload/conn/conn_batch.c \
    preload/conn/conn_batch.h \
    preload/conn/conn_frame.c \
    preload/conn/conn_frame.h \
    preload/conn/conn_end.c \
    preload/conn/conn_end.h \
    preload/conn/conn_job.c \
    preload/conn/conn_job.h \
    preload/conn/conn_mem.c \
    preload/conn/conn_mem.h \
    preload/conn/conn_nagle.c \
    preload/conn/conn_nagle.h \
    preload/conn/conn_ops.h \
    preload/conn/conn_orphan.c \
    preload/conn/conn_orphan.h \
    preload/conn/conn_peek.c \
    preload/conn/conn_peek.h \
    preload/conn/conn_switch.c \
    preload/conn/conn_switch.h \
    preload/conn/conn_plain.c \
    preload/conn/conn_plain.h \
    preload/conn/conn_report.c \
    preload/conn/conn_report.h \
    preload/conn/conn_rest.c \
    preload/conn/conn_rest.h \
    preload/conn/conn_rx.c \
    preload/conn/conn_rx.h \
    preload/conn/conn_soft.c \
    preload/conn/conn_soft.h \
    preload/conn/conn_soft_end.c \
    preload/conn/conn_soft_ready.c \
    preload/conn/conn_soft_rx.c \
    preload/conn/conn_soft_tx.c \
    preload/conn/conn_tx.c \
    preload/conn/conn_tx.h \
    preload/conn/conn_urgent.c \
    preload/conn/conn_urgent.h \
    preload/conn/conn_zerocopy.c \
    preload/conn/conn_zerocopy.h \
    preload/conn/explain.c \
    preload/conn/explain.h \
    preload/conn/flusher.c \
    preload/conn/flusher.h \
    preload/conn/options.c \
    preload/conn/options.h \
    preload/conn/shmem.c \
    preload/conn/shmem.h \
    preload/device/device.h \
    preload/startup/beside.c \
    preload/startup/beside.h \
    preload/startup/dispatch.h \
    preload/startup/dispatch_end.c \
    preload/startup/dispatch_recv.c \
    preload/startup/dispatch_send.c \
    preload/startup/fallback.c \
    preload/startup/fallback.h \
    preload/startup/learned.c \
    preload/startup/learned.h \
    preload/startup/local.c \
    preload/startup/local.h \
    preload/startup/local_key.c \
    preload/startup/local_key.h \
    preload/startup/local_names.c \
    preload/startup/mark.c \
    preload/startup/mark.h \
    preload/startup/meet.c \
    preload/startup/meet.h \
    preload/startup/syn.c \
    preload/startup/syn.h \
    preload/startup/startup.c \
    preload/startup/startup.h \
    preload/startup/startup_await.c \
    preload/startup/startup_begin.c \
    preload/startup/startup_pending.c \
    preload/startup/startup_turns.c \
    preload/startup/startup_unasked.c \
    preload/startup/startup_upgrade.c \
    preload/ready/epoll.h \
    preload/ready/epoll_kernel.c \
    preload/ready/epoll_park.c \
    preload/ready/epoll_ready.c \
    preload/ready/epoll_set.c \
    preload/ready/epoll_set.h \
    preload/ready/epoll_share.c \
    preload/ready/epoll_share.h \
    preload/ready/epoll_sock.c \
    preload/ready/notify.c \
    preload/ready/ready.c \
    preload/ready/ready.h \
    preload/calls/alias.c \
    preload/calls/bridge.c \
    preload/calls/bridge.h \
    preload/calls/bridge_carry.c \
    preload/calls/bridge_carry.h \
    preload/calls/clone.c \
    preload/calls/close_range.c \
    preload/calls/connect.c \
    preload/calls/connect.h \
    preload/calls/epoll.c \
    preload/calls/epoll_move.c \
    preload/calls/epoll_wait.c \
    preload/calls/exec.c \
    preload/calls/exec.h \
    preload/calls/fdops.c \
    preload/calls/fdops.h \
    preload/calls/file.c \
    preload/calls/fork.c \
    preload/calls/info.c \
    preload/calls/info.h \
    preload/calls/inherit.c \
    preload/calls/inherit_take.c \
    preload/calls/io.c \
    preload/calls/io.h \
    preload/calls/io_in.c \
    preload/calls/io_out.c \
    preload/calls/listen.c \
    preload/calls/names.c \
    preload/calls/opts.c \
    preload/calls/poll.c \
    preload/calls/raw.c \
    preload/calls/rights.c \
    preload/calls/rights.h \
    preload/calls/ring.c \
    preload/calls/ring.h \
    preload/calls/ring_look.c \
    preload/calls/ring_names.c \
    preload/calls/ring_state.c \
    preload/calls/seccomp.c \
    preload/calls/seccomp.h \
    preload/calls/spawn_actions.c \
    preload/calls/stdio.c \
    preload/calls/stdio.h \
    preload/calls/system.c \
    preload/start.c

# Connections on RDMA devices.
verbs_preload_sources = \
    preload/device/mapper.c \
    preload/device/mapper.h \
    preload/device/mixed.c \
    preload/device/mixed.h \
    preload/device/rnic.h \
    preload/device/device_io.c \
    preload/device/device_io.h \
    preload/device/device_ready.c \
    preload/device/device_setup.c
EXTRA_DIST += $(verbs_preload_sources)
if HAVE_VERBS
preload_sources += $(verbs_preload_sources)
endif

# What the tools and the unit tests use as well.
shared_sources = \
    preload/process/spin.h \
    preload/process/stats.c \
    preload/process/stats.h

# Files that define fortified entry points (__read_chk and the like) cannot themselves be compiled with
# _FORTIFY_SOURCE: list them here instead.
preload_unfortified_sources = \
    preload/calls/chk.c

# Symbols that are defined by assembly, which link-time optimisation does not see.
preload_asm_sources = \
    preload/calls/dl.c \
    preload/calls/vfork.c \
    preload/process/libc.c

EXTRA_DIST += preload/process/libsockwarp.awk preload/process/libc.awk

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

# Exported: the intercepted calls, from the list that declares and resolves them, and what sockwarp.h declares. Everything else is
# local.
$(preload_map): preload/process/calls.h include/sockwarp.h preload/process/libsockwarp.awk
	$(AM_V_at)$(MKDIR_P) preload
	$(AM_V_GEN)$(AWK) -f $(srcdir)/preload/process/libsockwarp.awk $(srcdir)/preload/process/calls.h \
	    $(srcdir)/include/sockwarp.h >$@.tmp && mv $@.tmp $@

# What we call, whoever else defines it: our own functions by -Bsymbolic-functions, libc's by these.
$(libc_opts): preload/process/libc_calls.h preload/process/libc.awk
	$(AM_V_at)$(MKDIR_P) preload
	$(AM_V_GEN)$(AWK) -f $(srcdir)/preload/process/libc.awk $(srcdir)/preload/process/libc_calls.h >$@.tmp && mv $@.tmp $@

all-local: libsockwarp.so
libsockwarp.so: libsockwarp.la
	$(AM_V_GEN)$(LN_S) -f .libs/libsockwarp.so $@

# libtool's index file is of no use for a library that is only preloaded.
install-exec-hook:
	rm -f $(DESTDIR)$(pkglibdir)/libsockwarp.la
uninstall-hook:
	rm -f $(DESTDIR)$(pkglibdir)/libsockwarp.so
	-rmdir $(DESTDIR)$(pkglibdir) $(DESTDIR)$(pkgdatadir) 2>/dev/null

# What is installed finds each other: launcher, library, pkg-config file.
installcheck-local:
	test -r $(DESTDIR)$(pkglibdir)/libsockwarp.so
	test "`$(DESTDIR)$(bindir)/sockwarp --version`" = "sockwarp $(PACKAGE_VERSION)"
	test "`PKG_CONFIG_PATH=$(DESTDIR)$(pkgconfigdir) $(PKG_CONFIG) --variable=preload sockwarp`" = $(pkglibdir)/libsockwarp.so
	test -n "$(DESTDIR)" || test "`$(bindir)/sockwarp sh -c 'echo $$LD_PRELOAD'`" = $(pkglibdir)/libsockwarp.so
