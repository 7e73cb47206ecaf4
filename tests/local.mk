# Every test speaks TAP.
#   unit_tests     Criterion programs. tests/unit/test_X.c needs one line: unit_tests += tests/unit/test_X
#   script_tests   tests/**/*.test, executable, print TAP themselves
#   preload_tests  the same, but they preload the library (left out under a sanitizer, whose runtime must come first)

unit_tests =
script_tests =
preload_tests =

unit_tests += tests/unit/test_fault
unit_tests += tests/unit/test_reason
unit_tests += tests/unit/test_trace
unit_tests += tests/unit/test_crc32c

script_tests += tests/layering.test
script_tests += tests/listed.test

# ---- how they are run ----

LOG_DRIVER = env AM_TAP_AWK='$(AWK)' $(SHELL) $(top_srcdir)/build-aux/tap-driver.sh
LOG_COMPILER = $(SHELL) $(top_srcdir)/build-aux/criterion-tap
TEST_LOG_DRIVER = $(LOG_DRIVER)
EXTRA_DIST += build-aux/criterion-tap

# Where the tests find things. Absolute, since some tests change folder.
AM_TESTS_ENVIRONMENT = \
    SW_SRCDIR='$(abs_top_srcdir)'; export SW_SRCDIR; \
    SW_BUILDDIR='$(abs_top_builddir)'; export SW_BUILDDIR; \
    SW_LAUNCHER='$(abs_top_builddir)/sockwarp$(EXEEXT)'; export SW_LAUNCHER; \
    SW_LIBRARY='$(abs_top_builddir)/.libs/libsockwarp.so'; export SW_LIBRARY; \
    SW_BENCH='$(abs_top_builddir)/sockwarp-bench$(EXEEXT)'; export SW_BENCH; \
    READELF='$(READELF)'; export READELF;

# For programs without settings of their own: unit tests and the helpers of the script tests.
LDADD = libcore.la $(CRITERION_LIBS)

dist_check_SCRIPTS += $(script_tests) $(preload_tests) tests/no-criterion.test
TESTS += $(script_tests)

if HAVE_CRITERION
check_PROGRAMS += $(unit_tests)
TESTS += $(unit_tests)
else
TESTS += tests/no-criterion.test
endif

if SANITIZED
check-local: say-left-out
say-left-out:
	@echo "sanitized build: left out, because a sanitizer's runtime must be loaded before a preloaded library:"
	@for t in $(preload_tests); do echo "  $$t"; done
.PHONY: say-left-out
else
TESTS += $(preload_tests)
endif
