# Every test speaks TAP.
#   unit_tests     Criterion programs, tests/unit/test_X.c -> "unit_tests += tests/unit/test_X", nothing else to do
#   *.test         scripts that print TAP themselves

LOG_DRIVER = env AM_TAP_AWK='$(AWK)' $(SHELL) $(top_srcdir)/build-aux/tap-driver.sh
LOG_COMPILER = $(SHELL) $(top_srcdir)/build-aux/criterion-tap
TEST_LOG_DRIVER = $(LOG_DRIVER)
EXTRA_DIST += build-aux/criterion-tap

unit_tests =

# For programs without settings of their own: unit tests and the helpers of the script tests.
LDADD = libcore.la $(CRITERION_LIBS)

if HAVE_CRITERION
check_PROGRAMS += $(unit_tests)
TESTS += $(unit_tests)
endif
