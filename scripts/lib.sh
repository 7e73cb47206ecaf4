# Shared by scripts/check and scripts/demo; sourced, POSIX sh.

build_packages="build-essential autoconf automake libtool pkg-config liburing-dev libunwind-dev libinih-dev libsmartcols-dev"

# A line that tells how far we are: seconds since the start, then the text.
sw_start=$(date +%s)
say()
{
    printf '[%4d s] %s\n' "$(($(date +%s) - sw_start))" "$*"
}

die()
{
    printf '%s: %s\n' "${0##*/}" "$*" >&2
    exit 1
}

# Neither configure and make nor LD_PRELOAD takes a path with a blank: from such a one the script goes on in a copy elsewhere.
# (The copy stays: its build folder holds what the script tells of.)
leave_blanks()
{
    case $top in
    *[[:space:]]*) ;;
    *) return 0 ;;
    esac
    copy=$(mktemp -d /tmp/sockwarp.XXXXXX) || die "no folder for a copy: '$top' has a blank, which make does not take"
    say "'$top' has a blank, which make does not take: going on in $copy"
    (cd "$top" && tar -cf - --exclude=./build .) | tar -xf - -C "$copy" || die "no copy of '$top' in $copy"
    exec "$copy/scripts/${0##*/}" "$@"
}

# install_packages LOG NAME...: installs what is missing with apt-get; quick if nothing is. Where it cannot, the build says what it
# wants, and tests whose programs are missing are skipped with the reason.
install_packages()
{
    log=$1
    shift
    if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
        say "no apt-get: going on as if these Debian packages were installed: $*"
        return 0
    fi
    missing=
    for p in "$@"; do
        [ "$(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null)" = installed ] || missing="$missing $p"
    done
    if [ -z "$missing" ]; then
        say "packages: all installed"
        return 0
    fi
    as_root=
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null || {
            say "packages: not root and no sudo; going on without:$missing"
            return 0
        }
        as_root=sudo
    fi
    say "packages: installing$missing"
    # shellcheck disable=SC2086  # lists of words
    if ! (
        # The programs are wanted, not the services that some of the packages would start.
        policy=/usr/sbin/policy-rc.d
        if [ ! -e $policy ]; then
            trap '$as_root rm -f $policy' EXIT
            printf '#!/bin/sh\nexit 101\n' | $as_root tee $policy >/dev/null
            $as_root chmod 755 $policy
        fi
        # Another apt (a machine that is new updates itself) has dpkg's lock for minutes: it is waited for.
        wait=DPkg::Lock::Timeout=600
        $as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -o $wait update || : # the lists that are there may do
        $as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -o $wait install -y --no-install-recommends $missing
    ) >"$log" 2>&1 </dev/null; then
        tail -n 20 "$log"
        say "packages: apt-get failed (all it said is in $log); going on without:$missing"
        return 0
    fi
    say "packages: done"
}

# step NAME COMMAND...: runs it with its output in $logs/NAME.log, tells when it begins and ends and, while it takes
# long, how far the log has come. The command's status; the end of the log on failure.
step()
{
    step_name=$1
    shift
    step_log=$logs/$step_name.log
    step_begin=$(date +%s)
    say "$step_name: $*"
    "$@" >"$step_log" 2>&1 </dev/null &
    step_pid=$!
    while sleep 20 >/dev/null 2>&1; do
        say "$step_name: $(($(date +%s) - step_begin)) s so far: $(tail -n 1 "$step_log" | cut -c 1-90)"
    done &
    step_ticker=$!
    step_status=0
    wait "$step_pid" || step_status=$?
    kill "$step_ticker" 2>/dev/null || :
    wait "$step_ticker" 2>/dev/null || :
    step_pid=
    step_times="${step_times:-} $step_name $(($(date +%s) - step_begin)),"
    if [ "$step_status" -eq 0 ]; then
        say "$step_name: ok, $(($(date +%s) - step_begin)) s"
    else
        # Of tests: the end of what run-tests says, each red file with its points.
        if grep -q '^[0-9]* passed, [0-9]* failed, [0-9]* skipped$' "$step_log"; then
            sed -n '/^\(FLAKY\|FAIL\): [^ ]*\( passes alone; before:\)*$/,$p' "$step_log" | cut -c 1-400 | sed 's/^/    | /'
        else
            tail -n 40 "$step_log" | sed 's/^/    | /'
        fi
        say "$step_name: FAILED with status $step_status, $(($(date +%s) - step_begin)) s; log: $step_log"
    fi
    return "$step_status"
}

# What each step took.
tell_times()
{
    printf 'seconds:%s %d in all\n' "${step_times:-}" "$(($(date +%s) - sw_start))"
}
