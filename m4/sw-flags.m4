dnl Compiler and linker flags. What a check finds goes into variables that Makefile.am puts into AM_CFLAGS and
dnl AM_LDFLAGS, so that the user's own CFLAGS and LDFLAGS stay the user's and come last.

dnl SW_TRY_CFLAG(VARIABLE, FLAG): appends FLAG to VARIABLE if the compiler takes it without complaint.
AC_DEFUN([SW_TRY_CFLAG], [
  AC_MSG_CHECKING([whether $CC accepts $2])
  sw_saved_cflags=$CFLAGS
  CFLAGS="$CFLAGS -Werror $2"
  AC_COMPILE_IFELSE([AC_LANG_PROGRAM([], [])],
      [AC_MSG_RESULT([yes]); $1="$$1 $2"], [AC_MSG_RESULT([no])])
  CFLAGS=$sw_saved_cflags
])

dnl SW_TRY_LDFLAG(VARIABLE, FLAG): the same for the linker.
AC_DEFUN([SW_TRY_LDFLAG], [
  AC_MSG_CHECKING([whether the linker accepts $2])
  sw_saved_ldflags=$LDFLAGS
  LDFLAGS="$LDFLAGS -Werror $2"
  AC_LINK_IFELSE([AC_LANG_PROGRAM([], [])],
      [AC_MSG_RESULT([yes]); $1="$$1 $2"], [AC_MSG_RESULT([no])])
  LDFLAGS=$sw_saved_ldflags
])

dnl Language level and warnings; and how threads' variables are found: the library is there from the program's start, and a
dnl call of __tls_get_addr for each, which may allocate, is nothing for a signal handler.
AC_DEFUN([SW_FLAGS_LANGUAGE], [
  SW_CFLAGS="-std=gnu11"
  for sw_flag in -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -ftls-model=initial-exec; do
    SW_TRY_CFLAG([SW_CFLAGS], [$sw_flag])
  done
  AC_ARG_ENABLE([werror],
      [AS_HELP_STRING([--enable-werror], [warnings are errors (continuous integration uses it)])],
      [], [enable_werror=no])
  sw_werror_note=warnings
  AS_IF([test "$enable_werror" = yes], [SW_CFLAGS="$SW_CFLAGS -Werror"; sw_werror_note=errors])
  AC_SUBST([SW_CFLAGS])
])

dnl Hardening of the installed library and programs; tests/library/hardening.test looks at the result.
AC_DEFUN([SW_FLAGS_HARDENING], [
  AC_ARG_ENABLE([hardening],
      [AS_HELP_STRING([--disable-hardening], [leave out stack protector, fortify, RELRO, PIE and the like])],
      [], [enable_hardening=yes])
  SW_HARDENING=$enable_hardening
  SW_HARDEN_CFLAGS= SW_HARDEN_LDFLAGS= SW_PIE_CFLAGS= SW_PIE_LDFLAGS= SW_FORTIFY=
  sw_hardening_note=no
  AS_IF([test "$enable_hardening" = yes], [
    sw_hardening_note=yes
    dnl On aarch64 without signed return addresses: libunwind before 1.7 cannot step over a function that signs its own, and
    dnl --explain, the blocks at faults and calls in signal handlers are about the frames behind ours.
    for sw_flag in -fstack-protector-strong -fstack-clash-protection -fcf-protection \
                   -mbranch-protection=bti; do
      SW_TRY_CFLAG([SW_HARDEN_CFLAGS], [$sw_flag])
    done
    for sw_flag in -Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack; do
      SW_TRY_LDFLAG([SW_HARDEN_LDFLAGS], [$sw_flag])
    done
    SW_TRY_CFLAG([SW_PIE_CFLAGS], [-fPIE])
    SW_TRY_LDFLAG([SW_PIE_LDFLAGS], [-pie])
    SW_FORTIFY="-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2"
    dnl Fortified calls need optimisation: with -O0 they are not there, and some versions of glibc warn at every include.
    AC_MSG_CHECKING([whether _FORTIFY_SOURCE works with CFLAGS="$CFLAGS"])
    sw_saved_cppflags=$CPPFLAGS sw_saved_cflags=$CFLAGS
    CPPFLAGS="$CPPFLAGS $SW_FORTIFY" CFLAGS="$CFLAGS -Werror"
    AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[
#include <string.h>
#ifndef __OPTIMIZE__
#error "not optimised"
#endif
    ]], [])],
        [AC_MSG_RESULT([yes])],
        [AC_MSG_RESULT([no]); SW_FORTIFY=; sw_hardening_note="yes, without _FORTIFY_SOURCE"])
    CPPFLAGS=$sw_saved_cppflags CFLAGS=$sw_saved_cflags
  ])
])

dnl Sanitizers and coverage: for builds that are run, not installed.
AC_DEFUN([SW_FLAGS_CHECKERS], [
  AC_ARG_ENABLE([asan],
      [AS_HELP_STRING([--enable-asan], [build with AddressSanitizer (see make check-asan)])],
      [], [enable_asan=no])
  AC_ARG_ENABLE([ubsan],
      [AS_HELP_STRING([--enable-ubsan], [build with UndefinedBehaviorSanitizer; a finding aborts])],
      [], [enable_ubsan=no])
  AC_ARG_ENABLE([tsan],
      [AS_HELP_STRING([--enable-tsan], [build with ThreadSanitizer (see make check-tsan)])],
      [], [enable_tsan=no])
  AC_ARG_ENABLE([coverage],
      [AS_HELP_STRING([--enable-coverage], [build for gcov (see make coverage)])],
      [], [enable_coverage=no])
  SW_CHECK_CFLAGS= sw_sanitizers=
  AS_IF([test "$enable_asan" = yes], [
    SW_CHECK_CFLAGS="$SW_CHECK_CFLAGS -fsanitize=address -fno-omit-frame-pointer"
    sw_sanitizers="$sw_sanitizers address"
    SW_FORTIFY=
  ])
  AS_IF([test "$enable_ubsan" = yes], [
    SW_CHECK_CFLAGS="$SW_CHECK_CFLAGS -fsanitize=undefined -fno-sanitize-recover=undefined"
    sw_sanitizers="$sw_sanitizers undefined"
  ])
  AS_IF([test "$enable_tsan" = yes], [
    SW_CHECK_CFLAGS="$SW_CHECK_CFLAGS -fsanitize=thread -fno-omit-frame-pointer"
    sw_sanitizers="$sw_sanitizers thread"
    SW_FORTIFY=
  ])
  AS_IF([test "$enable_coverage" = yes],
      [SW_CHECK_CFLAGS="$SW_CHECK_CFLAGS --coverage -O0 -fprofile-update=atomic"; SW_FORTIFY=])
  AS_IF([test -n "$SW_CHECK_CFLAGS"], [
    AC_MSG_CHECKING([whether programs link with$SW_CHECK_CFLAGS])
    sw_saved_cflags=$CFLAGS
    CFLAGS="$CFLAGS $SW_CHECK_CFLAGS"
    AC_LINK_IFELSE([AC_LANG_PROGRAM([], [])], [AC_MSG_RESULT([yes])],
        [AC_MSG_RESULT([no]); AC_MSG_ERROR([the compiler's runtime for this is missing])])
    CFLAGS=$sw_saved_cflags
  ])
  AM_CONDITIONAL([SANITIZED], [test "$enable_asan$enable_ubsan$enable_tsan" != nonono])
  AM_CONDITIONAL([COVERAGE], [test "$enable_coverage" = yes])
  sw_sanitizers=${sw_sanitizers:-none}
  AC_SUBST([SW_HARDENING])
  AC_SUBST([SW_HARDEN_CFLAGS])
  AC_SUBST([SW_HARDEN_LDFLAGS])
  AC_SUBST([SW_PIE_CFLAGS])
  AC_SUBST([SW_PIE_LDFLAGS])
  AC_SUBST([SW_FORTIFY])
  AC_SUBST([SW_CHECK_CFLAGS])
])

dnl Link-time optimisation of the preload library: its data path goes through a dozen small functions of as many files. Objects
dnl have ordinary code as well, for the programs and tests, which are linked without (the linker's plug-in would do it unasked,
dnl at four times the cost). After SW_FLAGS_CHECKERS.
AC_DEFUN([SW_FLAGS_LTO], [
  AC_ARG_ENABLE([lto],
      [AS_HELP_STRING([--disable-lto], [link the library without link-time optimisation])],
      [], [enable_lto=auto])
  SW_LTO_CFLAGS= SW_LTO_LDFLAGS= SW_NO_LTO_LDFLAGS= sw_lto_note=no
  AS_IF([test "$enable_lto" != no && test -z "$SW_CHECK_CFLAGS"], [
    SW_TRY_CFLAG([SW_LTO_CFLAGS], [-flto -ffat-lto-objects])
    AS_IF([test -n "$SW_LTO_CFLAGS"], [SW_TRY_LDFLAG([SW_LTO_LDFLAGS], [-flto=auto])])
    AS_IF([test -n "$SW_LTO_LDFLAGS"], [sw_lto_note=yes SW_NO_LTO_LDFLAGS=-fno-lto], [SW_LTO_CFLAGS=])
    AS_IF([test "$enable_lto$sw_lto_note" = yesno],
        [AC_MSG_ERROR([--enable-lto, but $CC does not take -flto -ffat-lto-objects])])
  ])
  AC_SUBST([SW_LTO_CFLAGS])
  AC_SUBST([SW_LTO_LDFLAGS])
  AC_SUBST([SW_NO_LTO_LDFLAGS])
])
