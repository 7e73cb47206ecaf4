# Every test speaks TAP. Which tier it belongs to, and why, is said in tests/tiers.tsv.
#   unit_tests     Criterion programs. tests/unit/test_X.c needs one line: unit_tests += tests/unit/test_X
#   script_tests   tests/**/*.test, executable, print TAP themselves
#   preload_tests  the same, but they preload the library (left out under a sanitizer, whose runtime must come first)

unit_tests =
script_tests =
preload_tests =

unit_tests += tests/unit/test_fault
unit_tests += tests/unit/test_policy
unit_tests += tests/unit/test_settings
unit_tests += tests/unit/test_reason
unit_tests += tests/unit/test_stats
unit_tests += tests/unit/test_spin
unit_tests += tests/unit/test_trace
unit_tests += tests/unit/test_crc32c
unit_tests += tests/unit/test_mpa_fpdu
unit_tests += tests/unit/test_mpa_marker
unit_tests += tests/unit/test_hello
unit_tests += tests/unit/test_negotiate
unit_tests += tests/unit/test_negotiate_early
unit_tests += tests/unit/test_negotiate_version
unit_tests += tests/unit/test_protocol
unit_tests += tests/unit/test_verdict
unit_tests += tests/unit/test_mpa_startup
unit_tests += tests/unit/test_mpa_startup_rtr
unit_tests += tests/unit/test_mpa_startup_old
unit_tests += tests/unit/test_mpa_enhanced
unit_tests += tests/unit/test_portmap
EXTRA_DIST += tests/unit/startup_frames.h tests/unit/negotiate_pair.h
unit_tests += tests/unit/test_ddp_segment
unit_tests += tests/unit/test_ddp_stag
unit_tests += tests/unit/test_rdmap
unit_tests += tests/unit/test_terminate
unit_tests += tests/unit/test_transport
unit_tests += tests/unit/test_iwarp
unit_tests += tests/unit/test_iwarp_marker
unit_tests += tests/unit/test_iwarp_direct
unit_tests += tests/unit/test_iwarp_errors
unit_tests += tests/unit/test_iwarp_ops
unit_tests += tests/unit/test_iwarp_segments
unit_tests += tests/unit/test_stream_hdr
unit_tests += tests/unit/test_stream
unit_tests += tests/unit/test_stream_immediate
unit_tests += tests/unit/test_stream_property
unit_tests += tests/unit/test_rest
unit_tests += tests/unit/test_shm
unit_tests += tests/unit/test_shm_hostile
unit_tests += tests/unit/test_shm_property
unit_tests += tests/unit/test_shm_stream
unit_tests += tests/unit/test_iwarp_property
unit_tests += tests/unit/test_soft
unit_tests += tests/unit/test_rdmac
tests_unit_test_rdmac_SOURCES = tests/unit/test_rdmac.c tests/unit/rnic.c tests/unit/rnic.h
unit_tests += tests/unit/test_fake_devices
tests_unit_test_fake_devices_SOURCES = tests/unit/test_fake_devices.c tests/unit/fake_device.c tests/unit/fake_device.h

# Files of preload/ by themselves: a program gets those whose functions it calls; what these want beside is in preload_world.c, or the
# test's own.
check_LTLIBRARIES += libprimitives.la
libprimitives_la_SOURCES = \
    preload/conn/coalesce.c \
    preload/conn/shmem.c \
    preload/process/apart.c \
    preload/process/cancel.c \
    preload/process/hidden.c \
    preload/process/holders.c \
    preload/process/turn.c \
    preload/ready/epoll_ready.c \
    preload/sock/pending.c \
    tests/unit/preload_world.c \
    tests/unit/preload_world.h
libprimitives_la_CFLAGS = $(AM_CFLAGS)
primitives = libprimitives.la $(LDADD)
unit_tests += tests/unit/test_cancel
tests_unit_test_cancel_LDADD = $(primitives)
unit_tests += tests/unit/test_apart
tests_unit_test_apart_LDADD = $(primitives)
unit_tests += tests/unit/test_hidden
tests_unit_test_hidden_LDADD = $(primitives)
unit_tests += tests/unit/test_holders
tests_unit_test_holders_LDADD = $(primitives)
unit_tests += tests/unit/test_pending
tests_unit_test_pending_LDADD = $(primitives)
unit_tests += tests/unit/test_ready_list
tests_unit_test_ready_list_LDADD = $(primitives)
unit_tests += tests/unit/test_shmem
tests_unit_test_shmem_LDADD = $(primitives)
unit_tests += tests/unit/test_turn
tests_unit_test_turn_LDADD = $(primitives)

# The same with threads, in plain programs that make check-tsan can run.
script_tests += tests/threads/threads.test
thread_programs =
check_PROGRAMS += $(thread_programs)
thread_libs = libprimitives.la libwhole.la -lpthread
thread_programs += tests/threads/coalesce
tests_threads_coalesce_SOURCES = tests/threads/coalesce.c tests/threads/threads.h
tests_threads_coalesce_LDADD = $(thread_libs)
thread_programs += tests/threads/pending
tests_threads_pending_SOURCES = tests/threads/pending.c tests/threads/threads.h
tests_threads_pending_LDADD = $(thread_libs)
thread_programs += tests/threads/ready_list
tests_threads_ready_list_SOURCES = tests/threads/ready_list.c tests/threads/threads.h tests/unit/ready_world.h
tests_threads_ready_list_LDADD = $(thread_libs)
thread_programs += tests/threads/shm
tests_threads_shm_SOURCES = tests/threads/shm.c tests/threads/threads.h
tests_threads_shm_LDADD = $(thread_libs)
thread_programs += tests/threads/turn
tests_threads_turn_SOURCES = tests/threads/turn.c tests/threads/threads.h
tests_threads_turn_LDADD = $(thread_libs)

script_tests += tests/models/models.test
EXTRA_DIST += tests/models/gather.pml tests/models/holders.pml tests/models/shm_nap.pml tests/models/turn.pml tests/models/withdraw.pml
script_tests += tests/layering.test
script_tests += tests/listed.test
script_tests += tests/harness.test
script_tests += tests/compliance.test
script_tests += tests/mutants.test
script_tests += tests/fuzz/replay.test
script_tests += tests/bench/bench.test
script_tests += tests/bench/report.test
script_tests += tests/tools/man.test
script_tests += tests/install.test
script_tests += tests/package/deb.test
script_tests += tests/package/rpm.test

preload_tests += tests/tools/launcher.test
preload_tests += tests/tools/ask.test
preload_tests += tests/tools/completion.test
preload_tests += tests/tools/config.test
preload_tests += tests/tools/systemd.test
preload_tests += tests/tools/units.test
preload_tests += tests/library/symbols.test
preload_tests += tests/library/users.test
preload_tests += tests/library/hardening.test

# Programs under sockwarp: tests/lib/ starts them, the .c files beside them are programs of our own.
preload_tests += tests/semantics/semantics.test
preload_tests += tests/process/filtered.test
preload_tests += tests/stream/halves.test
preload_tests += tests/startup/between.test
preload_tests += tests/startup/defer.test
preload_tests += tests/startup/late.test
preload_tests += tests/startup/phantom.test
preload_tests += tests/startup/mark.test
preload_tests += tests/startup/private.test
preload_tests += tests/startup/last_words.test
preload_tests += tests/tools/stat.test
preload_tests += tests/tools/trace.test
preload_tests += tests/semantics/stdio.test
preload_tests += tests/library/dlsym.test
preload_tests += tests/library/own.test
preload_tests += tests/library/errno.test
preload_tests += tests/library/info.test
preload_tests += tests/library/probes.test
preload_tests += tests/library/faults.test
preload_tests += tests/library/handlers.test
EXTRA_DIST += tests/library/talk.c
preload_tests += tests/library/segv.test
preload_tests += tests/tools/report_files.test
preload_tests += tests/library/numbers.test
preload_tests += tests/stream/answer.test
preload_tests += tests/stream/cork.test
preload_tests += tests/semantics/beside.test
preload_tests += tests/stream/frame_len.test
preload_tests += tests/startup/one_trip.test
preload_tests += tests/stream/gather.test
preload_tests += tests/startup/p2p.test
preload_tests += tests/startup/unseen.test
preload_tests += tests/wire/depths.test
preload_tests += tests/wire/mpa.test
preload_tests += tests/startup/known.test
preload_tests += tests/startup/cookie.test
preload_tests += tests/startup/counts.test
preload_tests += tests/startup/learned.test
preload_tests += tests/startup/meet.test
preload_tests += tests/startup/samehost.test
preload_tests += tests/startup/fallback.test
preload_tests += tests/process/forks.test
preload_tests += tests/process/clones.test
preload_tests += tests/process/lent.test
preload_tests += tests/faults/faults.test
preload_tests += tests/wire/hostile.test
preload_tests += tests/stream/kill.test
preload_tests += tests/wire/devices.test
preload_tests += tests/wire/offer.test
preload_tests += tests/wire/facing.test
preload_tests += tests/wire/conform.test
preload_tests += tests/startup/early.test
preload_tests += tests/startup/silent.test
preload_tests += tests/stream/close.test
preload_tests += tests/stream/options.test
preload_tests += tests/startup/vain.test
preload_tests += tests/startup/flood.test
preload_tests += tests/process/exec.test
preload_tests += tests/library/startup.test
preload_tests += tests/process/handed.test
preload_tests += tests/process/passed.test
preload_tests += tests/startup/withdrawn.test
preload_tests += tests/process/rights.test
EXTRA_DIST += tests/process/worker.c
preload_tests += tests/storm/storm.test
preload_tests += tests/programs/asyncio.test
preload_tests += tests/programs/http.test
preload_tests += tests/programs/iperf3.test
preload_tests += tests/programs/redis.test
preload_tests += tests/programs/nginx.test
preload_tests += tests/interop/netns.test
preload_tests += tests/interop/segments.test
preload_tests += tests/interop/tshark.test
preload_tests += tests/interop/wireshark.test
preload_tests += tests/interop/vm/vm.test
preload_tests += tests/interop/vm/verbs.test
preload_tests += tests/interop/vm/mixed.test
preload_tests += tests/interop/vm/sockets.test
preload_tests += tests/interop/vm/aarch64.test
EXTRA_DIST += $(addprefix tests/interop/vm/,aarch64.py aarch64.sh common.sh guest.sh init.sh initramfs.py kernel.py machine.py mixed.sh \
    programs.py programs.sh sockets.sh verbs.sh)

# Captures made by the protocol code, judged by tshark.
script_tests += tests/interop/mpa_matrix.test
check_PROGRAMS += tests/interop/mpagen
tests_interop_mpagen_SOURCES = tests/interop/mpagen.c tests/unit/iwarp_pair.h
tests_interop_mpagen_CFLAGS = $(program_cflags)
tests_interop_mpagen_LDFLAGS = $(program_ldflags)
tests_interop_mpagen_LDADD = libwhole.la

# Other people's programs; tests/works/*.py have them.
preload_tests += tests/works/works.test

# (They say what the calls do: no fortified variants, whose checks would come first.)
preload_programs =
preload_program_cflags = $(program_cflags) -U_FORTIFY_SOURCE -pthread
if !SANITIZED
check_PROGRAMS += $(preload_programs)
endif

preload_programs += tests/faults/inject
tests_faults_inject_SOURCES = tests/faults/inject.c
tests_faults_inject_LDADD =
preload_programs += tests/faults/scene
tests_faults_scene_SOURCES = tests/faults/scene.c
tests_faults_scene_CFLAGS = $(preload_program_cflags)
tests_faults_scene_LDFLAGS = $(program_ldflags)
tests_faults_scene_LDADD =
preload_programs += tests/process/clones
tests_process_clones_SOURCES = tests/process/clones.c
tests_process_clones_CFLAGS = $(preload_program_cflags)
tests_process_clones_LDFLAGS = $(program_ldflags)
tests_process_clones_LDADD =
preload_programs += tests/process/lent
tests_process_lent_SOURCES = tests/process/lent.c
tests_process_lent_CFLAGS = $(preload_program_cflags)
tests_process_lent_LDFLAGS = $(program_ldflags)
tests_process_lent_LDADD =
preload_programs += tests/process/moved
tests_process_moved_SOURCES = tests/process/moved.c
tests_process_moved_CFLAGS = $(preload_program_cflags)
tests_process_moved_LDFLAGS = $(program_ldflags)
tests_process_moved_LDADD =
preload_programs += tests/wire/asker
tests_wire_asker_SOURCES = tests/wire/asker.c
tests_wire_asker_CFLAGS = $(preload_program_cflags)
tests_wire_asker_LDFLAGS = $(program_ldflags)
tests_wire_asker_LDADD =

preload_programs += tests/process/filtered
tests_process_filtered_SOURCES = tests/process/filtered.c
tests_process_filtered_CFLAGS = $(preload_program_cflags)
tests_process_filtered_LDFLAGS = $(program_ldflags)
tests_process_filtered_LDADD =

preload_programs += tests/library/faults
tests_library_faults_SOURCES = tests/library/faults.c
tests_library_faults_CFLAGS = $(preload_program_cflags)
tests_library_faults_LDFLAGS = $(program_ldflags)
tests_library_faults_LDADD =

preload_programs += tests/library/handlers
tests_library_handlers_SOURCES = tests/library/handlers.c
tests_library_handlers_CFLAGS = $(preload_program_cflags)
tests_library_handlers_LDFLAGS = $(program_ldflags)
tests_library_handlers_LDADD =

preload_programs += tests/process/forks
tests_process_forks_SOURCES = tests/process/forks.c
tests_process_forks_CFLAGS = $(preload_program_cflags)
tests_process_forks_LDFLAGS = $(program_ldflags)
tests_process_forks_LDADD =

preload_programs += tests/stream/gather
tests_stream_gather_SOURCES = tests/stream/gather.c
tests_stream_gather_CFLAGS = $(preload_program_cflags)
tests_stream_gather_LDFLAGS = $(program_ldflags)
tests_stream_gather_LDADD = -lpthread

preload_programs += tests/semantics/inetd
tests_semantics_inetd_SOURCES = tests/semantics/inetd.c
tests_semantics_inetd_CFLAGS = $(preload_program_cflags)
tests_semantics_inetd_LDFLAGS = $(program_ldflags)
tests_semantics_inetd_LDADD =

preload_programs += tests/startup/unseen
tests_startup_unseen_SOURCES = tests/startup/unseen.c
tests_startup_unseen_CFLAGS = $(preload_program_cflags)
tests_startup_unseen_LDFLAGS = $(program_ldflags)
tests_startup_unseen_LDADD =

preload_programs += tests/startup/p2p
tests_startup_p2p_SOURCES = tests/startup/p2p.c
tests_startup_p2p_CFLAGS = $(preload_program_cflags)
tests_startup_p2p_LDFLAGS = $(program_ldflags)
tests_startup_p2p_LDADD =

preload_programs += tests/library/startup
tests_library_startup_SOURCES = tests/library/startup.c
tests_library_startup_CFLAGS = $(preload_program_cflags)
tests_library_startup_LDFLAGS = $(program_ldflags)
tests_library_startup_LDADD =

preload_programs += tests/storm/storm
tests_storm_storm_SOURCES = \
    tests/storm/storm.c \
    tests/storm/storm.h \
    tests/storm/storm_conns.c \
    tests/storm/storm_ops.c \
    tests/storm/storm_stream.c
tests_storm_storm_CFLAGS = $(preload_program_cflags)
tests_storm_storm_LDFLAGS = $(program_ldflags)
tests_storm_storm_LDADD =

preload_programs += tests/semantics/sem
tests_semantics_sem_SOURCES = \
    tests/semantics/sem.c \
    tests/semantics/sem.h \
    tests/semantics/sem_backlog.c \
    tests/semantics/sem_close.c \
    tests/semantics/sem_efault.c \
    tests/semantics/sem_end.c \
    tests/semantics/sem_ends.c \
    tests/semantics/sem_epoll.c \
    tests/semantics/sem_epoll_beside.c \
    tests/semantics/sem_epoll_fork.c \
    tests/semantics/sem_epoll_life.c \
    tests/semantics/sem_epoll_late.c \
    tests/semantics/sem_epoll_park.c \
    tests/semantics/sem_epoll_sets.c \
    tests/semantics/sem_fd.c \
    tests/semantics/sem_flags.c \
    tests/semantics/sem_interrupt.c \
    tests/semantics/sem_left.c \
    tests/semantics/sem_move.c \
    tests/semantics/sem_name.c \
    tests/semantics/sem_option.c \
    tests/semantics/sem_peek.c \
    tests/semantics/sem_poll.c \
    tests/semantics/sem_raw.c \
    tests/semantics/sem_ready.c \
    tests/semantics/sem_ring.c \
    tests/semantics/sem_ring_data.c \
    tests/semantics/sem_ring_lib.c \
    tests/semantics/sem_recv.c \
    tests/semantics/sem_select.c \
    tests/semantics/sem_send.c \
    tests/semantics/sem_share.c \
    tests/semantics/sem_signal.c \
    tests/semantics/sem_stack.c \
    tests/semantics/sem_stdio.c \
    tests/semantics/sem_thread.c \
    tests/semantics/sem_urgent.c \
    tests/semantics/sem_uring.c \
    tests/semantics/sem_uring.h \
    tests/semantics/sem_vector.c \
    tests/semantics/sem_wait.c \
    tests/semantics/sem_waiting.c \
    tests/semantics/sem_drain.c \
    tests/semantics/sem_zerocopy.c \
    tests/semantics/sem_wait.h
tests_semantics_sem_CFLAGS = $(preload_program_cflags)
tests_semantics_sem_LDFLAGS = $(program_ldflags)
tests_semantics_sem_LDADD = $(URING_LIBS)
preload_tests += tests/programs/bench.test
preload_tests += tests/bench/run.test

# Runs in the virtual machine of tests/interop/vm/vm.test.
iwpeer_sources = \
    tests/interop/vm/iwpeer.c \
    tests/interop/vm/ours.h \
    tests/interop/vm/ours_connect.c \
    tests/interop/vm/peer.h \
    tests/interop/vm/peer_ours.c \
    tests/interop/vm/peer_verbs.c \
    tests/interop/vm/scenario.c \
    tests/interop/vm/scenario.h \
    tests/interop/vm/scenario_bulk.c \
    tests/interop/vm/scenario_fault.c \
    tests/interop/vm/scenario_rping.c
EXTRA_DIST += $(iwpeer_sources)
if HAVE_VERBS
check_PROGRAMS += tests/interop/vm/iwpeer
tests_interop_vm_iwpeer_SOURCES = $(iwpeer_sources)
tests_interop_vm_iwpeer_CFLAGS = $(program_cflags) $(VERBS_CFLAGS)
tests_interop_vm_iwpeer_LDFLAGS = $(program_ldflags)
tests_interop_vm_iwpeer_LDADD = libwhole.la $(VERBS_LIBS)
check_PROGRAMS += tests/interop/vm/vbpeer
tests_interop_vm_vbpeer_SOURCES = tests/interop/vm/vbpeer.c
tests_interop_vm_vbpeer_CFLAGS = $(program_cflags)
tests_interop_vm_vbpeer_LDFLAGS = $(program_ldflags)
tests_interop_vm_vbpeer_LDADD = libwhole.la
endif
EXTRA_DIST += tests/interop/vm/vbpeer.c

# ---- how they are run ----

LOG_DRIVER = env AM_TAP_AWK='$(AWK)' $(SHELL) $(top_srcdir)/build-aux/tap-driver.sh
isolate = $(PYTHON3) $(top_srcdir)/build-aux/isolate
LOG_COMPILER = $(isolate) $(SHELL) $(top_srcdir)/build-aux/criterion-tap
TEST_LOG_DRIVER = $(LOG_DRIVER)
TEST_LOG_COMPILER = $(isolate)
EXTRA_DIST += build-aux/criterion-tap build-aux/criterion.supp build-aux/fixed-addresses build-aux/isolate \
    build-aux/run-tests tests/tiers.tsv
# What tests include, source or read, found by name.
EXTRA_DIST += $(sort $(wildcard $(addprefix $(srcdir)/tests/,*.h *.sh *.py */*.h */*.sh */*.py)))

# Where the tests find things. Absolute, since some tests change folder.
AM_TESTS_ENVIRONMENT = \
    SW_SRCDIR='$(abs_top_srcdir)'; export SW_SRCDIR; \
    SW_BUILDDIR='$(abs_top_builddir)'; export SW_BUILDDIR; \
    SW_LAUNCHER='$(abs_top_builddir)/sockwarp$(EXEEXT)'; export SW_LAUNCHER; \
    SW_LIBRARY='$(abs_top_builddir)/.libs/libsockwarp.so'; export SW_LIBRARY; \
    SW_BENCH='$(abs_top_builddir)/sockwarp-bench$(EXEEXT)'; export SW_BENCH; \
    SW_HARDENING='$(SW_HARDENING)'; export SW_HARDENING; \
    SW_FORTIFY='$(SW_FORTIFY)'; export SW_FORTIFY; \
    SW_CF_PROTECTION='$(filter -fcf-protection,$(SW_HARDEN_CFLAGS))'; export SW_CF_PROTECTION; \
    SW_MAKE='$(MAKE)'; export SW_MAKE; \
    PYTHONDONTWRITEBYTECODE=1; export PYTHONDONTWRITEBYTECODE; \
    CC='$(CC)'; export CC; \
    AR='$(AR)'; export AR; \
    READELF='$(READELF)'; export READELF;

# For programs without settings of their own: unit tests and the helpers of the script tests.
LDADD = libshared.la libwhole.la $(CRITERION_LIBS)

dist_check_SCRIPTS += $(script_tests) $(preload_tests) tests/no-criterion.test
if SANITIZED
check-local: say-left-out
say-left-out:
	@echo "sanitized build: left out, because a sanitizer's runtime must be loaded before a preloaded library:"
	@for t in $(preload_tests); do echo "  $$t"; done
scripts_here = $(script_tests)
for_scripts =
else
for_scripts = all
scripts_here = $(script_tests) $(preload_tests)
endif

# make check runs the gate's tests, make check TIER=full all of them.
# (Asked once, when it is first used; by configure, since automake would take the words of the call for tests.)
TIER = gate
tests_of_tier = $(eval tests_of_tier := $$(shell $(PYTHON3) $(srcdir)/tests/lib/tiers.py $(TIER) $(scripts_here)))$(tests_of_tier)
TESTS += @TESTS_OF_TIER@

# What make check-asan runs.
sanitized_tests = tests/fuzz/replay.test

if HAVE_CRITERION
check_PROGRAMS += $(unit_tests)
TESTS += $(unit_tests)
sanitized_tests += $(unit_tests)
else
TESTS += tests/no-criterion.test
endif

# As make check, with files that are red run again: build-aux/run-tests. JOBS: so many unit tests at a time.
JOBS =
needed = check-programs
run-tests: $(needed)
	@$(AM_TESTS_ENVIRONMENT) $(PYTHON3) $(srcdir)/build-aux/run-tests $(JOBS:%=--jobs %) $(TESTS)
# Builds all that the tests need. (In a sanitized build nobody loads the library.)
check-programs: $(BUILT_SOURCES)
	$(MAKE) $(AM_MAKEFLAGS) $(for_scripts) $(check_PROGRAMS) $(check_DATA)
print-tests:
	@for t in $(TESTS); do echo $$t; done
.PHONY: run-tests check-programs print-tests

# ---- fuzzing: every tests/fuzz/fuzz_X.c, seeds in tests/fuzz/corpus/X/ ----

fuzz_sources = $(sort $(wildcard $(srcdir)/tests/fuzz/fuzz_*.c))
fuzz_names = $(patsubst fuzz_%.c,%,$(notdir $(fuzz_sources)))
fuzz_replays = $(addprefix tests/fuzz/replay_,$(fuzz_names))
fuzz_link = $(CC) $(DEFS) $(AM_CPPFLAGS) $(CPPFLAGS) $(AM_CFLAGS) $(CFLAGS) $(AM_LDFLAGS) $(LDFLAGS)
fuzz_libs = .libs/libwhole.a $(URING_LIBS) $(UNWIND_LIBS) $(LIBS)

EXTRA_DIST += $(fuzz_sources) tests/fuzz/replay.c $(wildcard $(srcdir)/tests/fuzz/corpus)
CLEANFILES += $(fuzz_replays)

# In make check: with the build's own compiler, see tests/fuzz/replay.test.
check_DATA += $(fuzz_replays)
$(fuzz_replays): tests/fuzz/replay_%: tests/fuzz/fuzz_%.c tests/fuzz/replay.c libwhole.la
	$(AM_V_at)$(MKDIR_P) tests/fuzz
	$(AM_V_CCLD)$(fuzz_link) -o $@ $(srcdir)/tests/fuzz/fuzz_$*.c $(srcdir)/tests/fuzz/replay.c $(fuzz_libs)

# make fuzz [SECONDS=n] [FUZZ="name..."]: libFuzzer, one target after the other, in the build tree fuzz/.
SECONDS = 30
FUZZ = $(fuzz_names)
fuzz: $(BUILT_SOURCES)
	@test -n '$(CLANG)' || { echo "make fuzz needs clang"; exit 1; }
	@test -n '$(strip $(fuzz_names))' || { echo "make fuzz: no tests/fuzz/fuzz_*.c in the tree"; exit 1; }
	$(call subtree,fuzz,CC='$(CLANG)' CFLAGS='-O1 -g -fsanitize=fuzzer-no-link' --enable-asan --enable-ubsan)
	cd fuzz && $(MAKE) $(AM_MAKEFLAGS) libwhole.la
	cd fuzz && $(MAKE) $(AM_MAKEFLAGS) $(addprefix tests/fuzz/libfuzzer_,$(FUZZ))
	@set -e; cd fuzz; for t in $(FUZZ); do \
	    echo "fuzz_$$t: $(SECONDS) s"; $(MKDIR_P) corpus/$$t found/$$t; \
	    seeds='$(abs_srcdir)'/tests/fuzz/corpus/$$t; test -d $$seeds || seeds=; \
	    $(fixed_addresses) tests/fuzz/libfuzzer_$$t -max_total_time=$(SECONDS) -print_final_stats=1 -rss_limit_mb=2048 -timeout=10 \
	        -artifact_prefix=found/$$t/ corpus/$$t $$seeds >$$t.log 2>&1 || \
	        { tail -n 60 $$t.log; echo "fuzz_$$t: FAILED; the input is in fuzz/found/$$t, the log is fuzz/$$t.log"; exit 1; }; \
	    grep -E '^stat::number_of_executed_units|^#.*DONE' $$t.log; \
	done

# Used inside fuzz/.
tests/fuzz/libfuzzer_%: tests/fuzz/fuzz_%.c libwhole.la
	$(AM_V_at)$(MKDIR_P) tests/fuzz
	$(AM_V_CCLD)$(fuzz_link) -fsanitize=fuzzer -o $@ $(srcdir)/tests/fuzz/fuzz_$*.c $(fuzz_libs)
