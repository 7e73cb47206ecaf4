# The tests of mixed.test, sourced by init.sh in the virtual machine: one end on siw, the other one without a device, in the namespace
# far or by SOCKWARP_DEVICE. And devices that go.

. /programs.sh

in_far="/usr/bin/ip netns exec far"
far=10.9.0.2
mixed_time=1

# segments MTU: 200 MB in frames of 1500 octets take an emulated machine long.
segments()
{
    ip link set sw0 mtu "$1" && ip -n far link set sw0 mtu "$1"
}

# mixed NAME WAY TEST ARGUMENT...: with the end without device as the client's, or as the server's.
mixed()
{
    mixed_name=$1 mixed_way=$2
    shift 2
    if [ "$mixed_way" = client ]; then
        near_is=mixed far_is=verbs client_in=$in_far server_in=
    else
        near_is=verbs far_is=mixed client_in='' server_in=$in_far
    fi
    check "$mixed_name" "$@"
    near_is='' far_is='' client_in='' server_in=
}

for way in client server; do
    [ $way = client ] && address=$siw || address=$far
    name="mixed, the $way in software"
    iperf_time=$mixed_time
    mixed "$name: iperf3, one stream" $way iperf "$address" 2
    mixed "$name: iperf3, one stream, the other direction" $way iperf "$address" 2 -R
    mixed "$name: iperf3, four streams" $way iperf "$address" 5 -P 4
    mixed "$name: iperf3, four streams, the other direction" $way iperf "$address" 5 -P 4 -R
    iperf_time=
    mixed "$name: redis-benchmark" $way redis "$address"
    [ $way = client ] && child_is=verbs || child_is=mixed
    mixed "$name: forks, a child for each connection" $way forking "$address" ccc 3 $child_is 3
    mixed "$name: forks, socat" $way socats "$address"
    segments 9000
    mixed "$name: 200 MB by curl from nginx, checksum" $way download "$address"
    segments 1500
    mixed "$name: a killed client ends the connection" $way killed_client "$address"
    mixed "$name: a killed server ends the connection" $way killed_server "$address"
done

# The client has no device of that name; segments of 64 kB, over lo.
near_is=mixed far_is=verbs
client_in="env SOCKWARP_DEVICE=none0"
check "mixed on one host: iperf3" iperf $siw 2
near_is='' far_is=
check "software does not try a RoCE device's port" one_stream iwarp device-none -c $rxe
check "what that end says of it" grep -q '"device":"device-kind"' /tmp/far
client_in=

# Only the program's own port can be reached: neither the device's nor that of software.
rules_on() # FROM: the namespace's option of ip, TO
{
    # shellcheck disable=SC2086  # an option or nothing
    ip $1 rule add pref 100 ipproto 6 to "$2" dport 5201 lookup main &&
        ip $1 rule add pref 101 ipproto 6 to "$2" sport 5201 lookup main && ip $1 rule add pref 102 ipproto 6 to "$2" prohibit
}
rules_off()
{
    for off_pref in 100 101 102; do
        # shellcheck disable=SC2086
        ip $1 rule del pref $off_pref
    done
}
port_unreachable()
{
    rules_on "$1" "$2" || return 1
    # shellcheck disable=SC2086
    one_stream iwarp device-failed -c "$2"
    unreachable_status=$?
    rules_off "$1"
    return $unreachable_status
}
client_in=$in_far
check "software cannot reach the device's port: software on the TCP connection" port_unreachable "-n far" $siw
client_in='' server_in=$in_far
check "a device cannot reach the port of software: software on the TCP connection" port_unreachable "" $far
server_in=

# ---- the device goes ----

without_device()
{
    rdma link delete siw0 || return 1
    one_stream iwarp device-address -c $siw
    without_status=$?
    rdma link add siw0 type siw netdev sw0 || return 1
    return $without_status
}
check "the device is gone before the connection: software" without_device
check "it is back: by the device" one_stream verbs siw0 -c $siw

# Both programs see an end, as if the other one had died, and nothing of them holds the device.
device_goes()
{
    streaming "$1" 600 || return 1
    timeout 200 rdma link delete siw0
    goes_status=$?
    for goes_try in $(seq 2400); do
        kill -0 $streaming_server 2>/dev/null || kill -0 $streaming_client 2>/dev/null || break
        usleep 50000
    done
    kill -9 $streaming_client 2>/dev/null && echo "the client has not noticed" && goes_status=1
    kill -9 $streaming_server 2>/dev/null && echo "the server has not noticed" && goes_status=1
    wait $streaming_client
    echo "client $?"
    wait $streaming_server
    echo "server $?, rdma link delete $goes_status"
    cat /tmp/iperf.client /tmp/iperf.server /tmp/near /tmp/far
    rdma link show | grep -q siw0 || rdma link add siw0 type siw netdev sw0 || return 1
    [ $goes_status -eq 0 ] && [ "$(rdma resource show qp | grep -c "comm iperf3")" -eq 0 ] &&
        grep -q '"transport":"verbs"' /tmp/near /tmp/far && ! grep -q "Aborted\|Segmentation" /tmp/iperf.client /tmp/iperf.server
}
check "the device goes during a connection: both ends end" device_goes $siw
check "it is back once more: by the device" one_stream verbs siw0 -c $siw
client_in=$in_far
check "the device goes, and the peer is software: both ends end" device_goes $siw
client_in=

sed 's/^/# iperf3: /' /tmp/figures
cat /tmp/notes
