# The tests of verbs.test, sourced by init.sh in the virtual machine: both ends on one device, over loopback inside it.

siw=10.9.0.1 rxe=10.9.1.1

# ---- the endpoint alone: two processes, no sockets ----

# objects: what the devices have of ours.
objects()
{
    for objects_kind in qp cq mr pd cm_id; do
        rdma resource show $objects_kind | grep -c "comm vbpeer"
    done | tr '\n' ' '
}

# endpoint ADDRESS SCENARIO
endpoint()
{
    timeout 200 vbpeer "$1" "$2" || return 1
    [ "$(objects)" = "0 0 0 0 0 " ] || { echo "left behind: $(objects)" && rdma resource show qp && return 1; }
}

for device in siw rxe; do
    eval "address=\$$device"
    # shellcheck disable=SC2154  # by eval
    check "$device: 20 MB each way at once, messages of all sizes, verified" endpoint "$address" bulk
    check "$device: a reader who is late stops the sender, and starts it again" endpoint "$address" slow
    check "$device: one half ends long before the other" endpoint "$address" half
    check "$device: a killed peer ends the endpoint" endpoint "$address" killed
    check "$device: a peer may write to the ring and read the octets behind it, and nothing else" endpoint "$address" reach
    check "$device: without the token nobody connects" endpoint "$address" no-token
    check "$device: 60 endpoints one after the other leave nothing" endpoint "$address" many
    check "$device: a forked child has no part in an endpoint" endpoint "$address" forked
done

# ---- programs ----

. /programs.sh

# The address has no device: lo's.
no_device_there()
{
    one_stream iwarp device-address -c 127.0.0.1
}

# The device named is another one, or none.
other_device()
{
    SOCKWARP_DEVICE=$1
    export SOCKWARP_DEVICE
    one_stream iwarp "$2" -c "$3"
    other_status=$?
    unset SOCKWARP_DEVICE
    return $other_status
}

little_memory()
{
    (
        ulimit -l 1000
        one_stream iwarp device-peer -c $siw && exit 1 # (the responder finds out when it is asked)
        [ "$(grep -c '"transport":"verbs"' /tmp/near)" -eq 1 ] && [ "$(grep -c '"transport":"iwarp"' /tmp/near)" -eq 1 ] &&
            grep -q '"device":"device-\(memory\|failed\)"' /tmp/near
    )
}

for device in siw rxe; do
    eval "address=\$$device"
    check "$device: iperf3, one stream" iperf "$address" 2
    check "$device: iperf3, one stream, the other direction" iperf "$address" 2 -R
    check "$device: iperf3, four streams" iperf "$address" 5 -P 4
    check "$device: iperf3, four streams, the other direction" iperf "$address" 5 -P 4 -R
    check "$device: redis-benchmark" redis "$address"
    check "$device: 200 MB by curl from nginx, checksum" download "$address"
    check "$device: a killed client ends the connection" killed_client "$address"
done

# The connection manager chooses a connection's port without knowing which ones TCP has, whose ports siw's are: of those to be had
# each fourth is taken.
ports_taken()
{
    taken_range=$(cat /proc/sys/net/ipv4/ip_local_port_range)
    taken_pids=
    for taken_port in $(seq 40000 4 40095); do
        forks serve "$1" "$taken_port" c >/dev/null &
        taken_pids="$taken_pids $!"
        serves "$taken_port" || return 1
    done
    echo 40000 40095 >/proc/sys/net/ipv4/ip_local_port_range
    taken_status=0
    for taken_try in 1 2 3; do
        iperf "$1" 5 -P 4 || taken_status=1
    done
    echo "$taken_range" >/proc/sys/net/ipv4/ip_local_port_range
    # shellcheck disable=SC2086  # pids
    kill $taken_pids && wait $taken_pids 2>/dev/null
    return $taken_status
}
check "siw: a connection whose port TCP has taken gets another one" ports_taken $siw

# ---- a server that forks: the connection is on a device of the child's ----

for device in siw rxe; do
    eval "address=\$$device"
    # A process that was forked from one with a device goes without: in software that faces the peer's, if that is an iWARP device.
    [ $device = siw ] && child_is=mixed || child_is=iwarp
    check "$device: forks, a child for each connection" forking "$address" cccc 4 verbs 4
    check "$device: forks, the parent closes late" forking "$address" wcw 3 verbs 3
    check "$device: forks, and the parent has one of its own afterwards" forking "$address" ccp 3 verbs 3
    check "$device: forks, when the parent has used a device" forking "$address" pcc 3 verbs 1 $child_is 2
    check "$device: forks, when a client has waited long for the parent" forking "$address" uc 2 verbs 1 $child_is 1
    check "$device: forks, a child is killed, the others go on" forking "$address" ckp 2 verbs 2
    check "$device: forks, a child becomes another program" forking "$address" iic 3 verbs 3
    check "$device: forks, a child becomes another program, by standard input" forking "$address" xc 2 verbs 1 iwarp 1
    check "$device: forks, a child becomes a static program" forking "$address" sc 2 verbs 1
    check "$device: forks, socat" socats "$address"
done

# The device that leads to an address, as sockwarp check tells.
checked()
{
    $sockwarp check -t verbs $siw:80 >/tmp/checked || return 1
    cat /tmp/checked
    grep -q "siw0: iWARP, port 1 ACTIVE" /tmp/checked && grep -q "rxe0: RoCE, port 1 ACTIVE" /tmp/checked &&
        grep -q "^connect to *verbs on siw0 (iWARP), else iwarp" /tmp/checked || return 1
    $sockwarp check -t verbs $rxe | grep -q "^accept on *verbs on rxe0 (RoCE), else iwarp" || return 1
    SOCKWARP_DEVICE=rxe0 $sockwarp check -t verbs $siw | grep -q "not verbs: SOCKWARP_DEVICE names another" || return 1
    $sockwarp check $siw | grep -q "siw0 leads there; transport=verbs would use it"
}

check "sockwarp check: devices, and which leads where" checked
check "no device has the address: software" no_device_there
check "no device has the name of SOCKWARP_DEVICE: software" other_device none0 device-none $siw
check "SOCKWARP_DEVICE is another one than the address': software" other_device rxe0 device-address $siw
check "SOCKWARP_DEVICE is the one" one_stream verbs siw0 -c $siw
check "no more memory may be locked than for one connection: the second goes by software" little_memory

# ---- figures of an emulated machine, with rdma-core's rstream (rsocket) on the same device for comparison ----
# (Under librspreload.so sockwarp-bench's connections are plain TCP, without queue pairs, and iperf3 transfers nothing.)

# figures NAME ADDRESS COMMAND...: a stream and round trips of sockwarp-bench under COMMAND.
figures()
{
    figures_name=$1 figures_address=$2
    shift 2
    "$@" sockwarp-bench server -a "$figures_address" -p 5210 >/tmp/bench.server 2>&1 &
    figures_server=$!
    for figures_try in $(seq 2400); do
        grep -q "listening on" /tmp/bench.server && break
        usleep 50000
    done
    for figures_what in "stream -l 64K" "pingpong -l 64"; do
        # shellcheck disable=SC2086  # words
        timeout 200 "$@" sockwarp-bench $figures_what -c "$figures_address" -p 5210 -t 2 >/tmp/bench.client 2>&1
        echo "# $figures_name, $figures_what: status $?: $(grep -v "^$" /tmp/bench.client | sed -n 2p)"
    done
    kill $figures_server 2>/dev/null
    wait $figures_server
}

# rstreams NAME ADDRESS WHAT OPTION...
rstreams()
{
    rstreams_name=$1 rstreams_address=$2 rstreams_what=$3
    shift 3
    timeout 200 rstream -b "$rstreams_address" -p 7501 "$@" >/dev/null 2>&1 &
    rstreams_server=$!
    listening 7501
    timeout 200 rstream -s "$rstreams_address" -p 7501 "$@" >/tmp/rstream.client 2>&1
    echo "# $rstreams_name, rstream, $rstreams_what: status $?: $(tail -n 1 /tmp/rstream.client)"
    kill $rstreams_server 2>/dev/null
    wait $rstreams_server
}

case "figures" in
*"$only"*)
    for device in siw rxe; do
        eval "address=\$$device"
        figures "$device, TCP" "$address" env
        figures "$device, sockwarp" "$address" $sockwarp -p "$by_device" --
        rstreams "$device" "$address" "64 kB blocks one way" -S 65536 -C 2000 -I 1
        rstreams "$device" "$address" "64 octets there and back" -S 64 -C 1 -I 2000
    done
    ;;
esac
sed 's/^/# iperf3: /' /tmp/figures
cat /tmp/notes
