#!/bin/sh
# The virtual machine's first process: loads the modules, makes the devices, runs the tests, powers off.
# Console: the kernel's messages and ours. /dev/ttyS1: what the host reads as the tests' result.
#
#        this namespace                     namespace far
#   +----------------------+  MTU 1500  +-------------------+
#   | siw0 on sw0 10.9.0.1 +----veth----+ sw0 10.9.0.2      |
#   | rxe0 on rx0 10.9.1.1 |            | our endpoint      |
#   +----------------------+            +-------------------+

export PATH=/usr/bin:/bin LD_LIBRARY_PATH= LC_ALL=C
busybox mkdir -p /proc /sys /dev /tmp /run/netns
busybox mount -t proc proc /proc
busybox mount -t sysfs sysfs /sys
busybox mount -t devtmpfs dev /dev
busybox mount -t tmpfs tmp /tmp
busybox --install -s /bin
exec >/dev/ttyS1 2>&1
stty -F /dev/ttyS1 raw -echo

# iproute2's: busybox' shell would take its own.
ip()
{
    /usr/bin/ip "$@"
}

leave()
{
    [ $# -eq 0 ] || echo "Bail out! $*"
    sync
    poweroff -f
    sleep 1000
}

while read -r module; do
    insmod "/modules/$module.ko" || leave "module $module cannot be loaded"
done </modules/order
ip link set lo up
ip netns add far || leave "no network namespaces"
ip link add sw0 type veth peer name sw0 netns far && ip addr add 10.9.0.1/24 dev sw0 && ip link set sw0 up &&
    ip -n far addr add 10.9.0.2/24 dev sw0 && ip -n far link set sw0 up && ip -n far link set lo up ||
    leave "no veth"
ip link add rx0 type dummy && ip addr add 10.9.1.1/24 dev rx0 && ip link set rx0 up || leave "no dummy"
rdma link add siw0 type siw netdev sw0 || leave "no siw device"
rdma link add rxe0 type rxe netdev rx0 || leave "no rxe device"
. /common.sh
. /guest.sh
echo "# end of the tests, $(cut -d ' ' -f 1 /proc/uptime) s after the start"
leave
