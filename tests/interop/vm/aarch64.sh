#!/bin/sh
# The first process of aarch64.test's virtual machine, on Debian's files: runs the tests that /sockwarp/tests lists, powers off.
# A test point is a line "ok - NAME" or "not ok - NAME"; lines that begin with "#" tell more.

export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C PYTHONDONTWRITEBYTECODE=1
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
for folder in /dev/shm /run /tmp /var/tmp; do
    mkdir -p $folder
    mount -t tmpfs -o mode=1777 tmpfs $folder
done
exec </dev/null >/dev/console 2>&1
ip link set lo up

export SW_SRCDIR=/sockwarp/source SW_BUILDDIR=/sockwarp/build SW_SLOWER=10
cd $SW_BUILDDIR || echo "Bail out! no build"

# Not by build-aux/isolate: nothing else is here. (A test that is left out for want of something is not what this is for.)
run()
{
    case $1 in
    *.test*)
        # shellcheck disable=SC2086  # with its arguments
        timeout 1200 python3 $SW_SRCDIR/$1 && ! grep "^1[.][.]0" /tmp/out
        ;;
    *) timeout 1200 "$1" ;;
    esac
}

while read -r name; do
    begin=$(cut -d . -f 1 /proc/uptime)
    if run "$name" >/tmp/out 2>&1; then
        echo "ok - ${name%% *}"
    else
        echo "not ok - ${name%% *}"
        grep -v '^ok\|^$' /tmp/out | tail -n 60 | cut -c 1-300 | sed 's/^/# /'
    fi
    echo "# $(($(cut -d . -f 1 /proc/uptime) - begin)) s"
done </sockwarp/tests
echo "# end of the tests, $(cut -d ' ' -f 1 /proc/uptime) s after the start"
sync
echo o >/proc/sysrq-trigger
sleep 1000
