# The tests of verbs.test, sourced by init.sh in the virtual machine: both ends on one device, over loopback inside it; or, in
# mixed.sh, one end without a device.

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
    timeout 60 vbpeer "$1" "$2" || return 1
    [ "$(objects)" = "0 0 0 0 0 " ] || { echo "left behind: $(objects)" && rdma resource show qp && return 1; }
}

for device in siw rxe; do
    eval "address=\$$device"
    # shellcheck disable=SC2154  # by eval
    check "$device: 20 MB each way at once, messages of all sizes, verified" endpoint "$address" bulk
    check "$device: a reader who is late stops the sender, and starts it again" endpoint "$address" slow
    check "$device: one half ends long before the other" endpoint "$address" half
    check "$device: a killed peer ends the endpoint" endpoint "$address" killed
    check "$device: without the token nobody connects" endpoint "$address" no-token
    check "$device: 60 endpoints one after the other leave nothing" endpoint "$address" many
    check "$device: a forked child has no part in an endpoint" endpoint "$address" forked
done

# ---- programs ----

export SOCKWARP_HELLO_TIMEOUT_MS=5000 # there is no hurry
sockwarp=/opt/sockwarp/sockwarp
by_device="any * auto transport=verbs hello=always" # (this kernel has no inet_diag to look listeners up by)

# under STATS COMMAND...: under sockwarp, with the rules in $rules.
under()
{
    under_stats=$1
    shift
    $sockwarp --stats "$under_stats" -p "${rules:-$by_device}" -- "$@"
}

# serves PORT: waits until somebody listens there.
serves()
{
    for serves_try in $(seq 100); do
        $server_in netstat -ltn | grep -q ":$1 " && return 0
        usleep 25000
    done
    echo "nobody listens on $1"
    netstat -ltn
    cat /tmp/iperf.server
    return 1
}

# Where the two programs run, and their transports where they differ: set by mixed.sh.
server_in='' client_in='' near_is='' far_is=''

# ends TRANSPORT COUNT: so many connections, both ends by this transport.
ends()
{
    ends_good=1
    for ends_of in /tmp/near /tmp/far; do
        [ $ends_of = /tmp/near ] && ends_is=${near_is:-$1} || ends_is=${far_is:-$1}
        ends_all=$(wc -l <$ends_of) ends_right=$(grep -c "\"transport\":\"$ends_is\",\"reason\":\"upgraded\"" $ends_of)
        if [ "$ends_right" -ne "$2" ] || [ "$ends_all" -ne "$2" ]; then
            echo "$ends_of: $ends_right of $ends_all lines say $ends_is, wanted: $2"
            cat $ends_of
            ends_good=0
        fi
    done
    [ $ends_good -eq 1 ]
}

# iperf ADDRESS CONNECTIONS OPTION...: iperf3 by the device, and what it measured.
iperf()
{
    iperf_address=$1 iperf_count=$2
    shift 2
    rm -f /tmp/near /tmp/far
    $server_in $sockwarp --stats /tmp/far -p "$by_device" -- iperf3 -s -1 -B "$iperf_address" -p 5201 >/tmp/iperf.server 2>&1 &
    iperf_server=$!
    serves 5201 || return 1
    timeout 40 $client_in $sockwarp --stats /tmp/near -p "$by_device" -- iperf3 --forceflush -c "$iperf_address" -p 5201 \
        -t "${iperf_time:-2}" -f m "$@" \
        >/tmp/iperf.client
    iperf_status=$?
    cat /tmp/iperf.client
    grep -h "receiver" /tmp/iperf.client | tail -n 1 >>/tmp/figures
    [ $iperf_status -eq 0 ] || kill $iperf_server 2>/dev/null
    wait $iperf_server
    iperf_other=$?
    cat /tmp/iperf.server
    echo "client $iperf_status, server $iperf_other"
    [ $iperf_status -eq 0 ] && [ $iperf_other -eq 0 ] && ends "${transport:-verbs}" "$iperf_count"
}

# redis ADDRESS: 8 connections (siw makes no more than 11 endpoints in a process), requests of 3 octets and of 20 kB, one at a time and 16 in a pipeline.
redis()
{
    rm -f /tmp/near /tmp/far
    $server_in $sockwarp --stats /tmp/far -p "$by_device" -- redis-server --bind "$1" --port 6379 --save "" --appendonly no \
        --protected-mode no >/tmp/redis.server 2>&1 &
    redis_server=$!
    serves 6379 || return 1
    redis_good=1
    for redis_options in "-P 1 -d 3" "-P 16 -d 3" "-P 1 -d 20000"; do
        # shellcheck disable=SC2086  # words
        timeout 60 $client_in $sockwarp --stats /tmp/near -p "$by_device" -- redis-benchmark -h "$1" -c 8 -n 2000 -t set,get -q $redis_options \
            >/tmp/redis.client 2>&1 || redis_good=0
        tr '\r' '\n' </tmp/redis.client | grep "requests per second" || redis_good=0
    done
    kill $redis_server # it ends as programs should on SIGTERM
    wait $redis_server
    redis_status=$?
    echo "server $redis_status"
    # siw now and then refuses a completion queue (EINVAL): such a connection goes by software, and says so.
    redis_by='"transport":"\(verbs\|mixed\)","reason":"upgraded"'
    redis_verbs=$(cat /tmp/near /tmp/far | grep -c "$redis_by")
    redis_all=$(cat /tmp/near /tmp/far | wc -l)
    if cat /tmp/near /tmp/far | grep -v "$redis_by" | grep -v '"transport":"iwarp","reason":"upgraded".*"device":"device-'; then
        redis_good=0
    fi
    echo "# redis-benchmark, $1: $redis_verbs of $redis_all ends by the device" >>/tmp/notes
    [ "$redis_verbs" -ge $((redis_all * 3 / 4)) ] || { echo "$redis_verbs of $redis_all ends by the device" && redis_good=0; }
    [ $redis_good -eq 1 ] && [ $redis_status -eq 0 ]
}

# download ADDRESS: 200 MB from nginx by curl.
download()
{
    rm -f /tmp/near /tmp/far
    $server_in $sockwarp --stats /tmp/far -p "$by_device" -- nginx -e /tmp/nginx.log -c /etc/nginx.conf -g "daemon off; pid /tmp/nginx.pid;" &
    download_server=$!
    serves 8080 || { cat /tmp/nginx.log && return 1; }
    download_sum=$(timeout 200 $client_in $sockwarp --stats /tmp/near -p "$by_device" -- curl -sS "http://$1:8080/big" | sha256sum)
    kill -QUIT $download_server
    wait $download_server
    download_status=$?
    echo "server $download_status, $download_sum, wanted $(cat /tmp/www/sum)"
    [ "$download_sum" = "$(cat /tmp/www/sum)" ] && [ $download_status -eq 0 ] && ends verbs 1 && return 0
    cat /tmp/near /tmp/far
    return 1
}

# one_stream TRANSPORT DEVICE ARGUMENT...: iperf3 once, whatever way its stream goes; then what the client's lines say.
one_stream()
{
    one_want=$1 one_device=$2
    shift 2
    rm -f /tmp/near /tmp/far
    $server_in $sockwarp --stats /tmp/far -p "$by_device" -- iperf3 -s -1 -p 5201 >/tmp/iperf.server 2>&1 &
    one_server=$!
    serves 5201 || return 1
    timeout 40 $client_in $sockwarp --stats /tmp/near -p "$by_device" -- iperf3 --forceflush -n 2M -p 5201 "$@"
    one_status=$?
    [ $one_status -eq 0 ] || kill $one_server 2>/dev/null
    wait $one_server
    [ $one_status -eq 0 ] && ends "$one_want" 2 && [ "$(grep -c "\"device\":\"$one_device\"" /tmp/near)" -eq 2 ] && return 0
    cat /tmp/near
    return 1
}

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

# A peer that is killed, while it sends: the other end sees the end of the stream, as with TCP, and goes.
killed_client()
{
    rm -f /tmp/near /tmp/far /tmp/iperf.client
    $server_in $sockwarp --stats /tmp/far -p "$by_device" -- iperf3 -s -1 -p 5201 >/tmp/iperf.server 2>&1 &
    killed_server=$!
    serves 5201 || return 1
    $client_in $sockwarp -p "$by_device" -- iperf3 --forceflush -t 30 -p 5201 -c "$1" >/tmp/iperf.client 2>&1 &
    killed_client=$!
    for killed_try in $(seq 200); do
        grep -q "1.0. *sec" /tmp/iperf.client 2>/dev/null && break
        usleep 50000
    done
    kill -9 $killed_client
    for killed_try in $(seq 200); do
        kill -0 $killed_server 2>/dev/null || break
        usleep 50000
    done
    kill -9 $killed_server 2>/dev/null && echo "the server has not noticed" && cat /tmp/iperf.client && return 1
    wait $killed_server
    cat /tmp/iperf.server
    grep -q "\"transport\":\"${far_is:-verbs}\"" /tmp/far && [ "$(rdma resource show qp | grep -c "comm iperf3")" -eq 0 ]
}

# The same, of the server, which is written to.
killed_server()
{
    rm -f /tmp/near /tmp/far /tmp/iperf.client
    $server_in $sockwarp -p "$by_device" -- iperf3 -s -1 -p 5201 >/tmp/iperf.server 2>&1 &
    killed_server=$!
    serves 5201 || return 1
    $client_in $sockwarp --stats /tmp/near -p "$by_device" -- iperf3 --forceflush -t 30 -p 5201 -c "$1" >/tmp/iperf.client 2>&1 &
    killed_client=$!
    for killed_try in $(seq 200); do
        grep -q "1.0. *sec" /tmp/iperf.client 2>/dev/null && break
        usleep 50000
    done
    kill -9 $killed_server
    for killed_try in $(seq 200); do
        kill -0 $killed_client 2>/dev/null || break
        usleep 50000
    done
    kill -9 $killed_client 2>/dev/null && echo "the client has not noticed" && cat /tmp/iperf.client && return 1
    wait $killed_client
    cat /tmp/iperf.client
    grep -q "\"transport\":\"${near_is:-verbs}\"" /tmp/near && [ "$(rdma resource show qp | grep -c "comm iperf3")" -eq 0 ]
}

mkdir -p /tmp/www
head -c 20000000 /dev/urandom >/tmp/www/part
for part in 1 2 3 4 5 6 7 8 9 10; do
    cat /tmp/www/part
    echo $part
done >/tmp/www/big
rm /tmp/www/part
sha256sum </tmp/www/big >/tmp/www/sum

ulimit -l unlimited # 0.9 MB for each connection
: >/tmp/figures >/tmp/notes
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

. /mixed.sh

# ---- figures of an emulated machine, with rdma-core's rstream (rsocket) on the same device for comparison ----
# (Under librspreload.so sockwarp-bench's connections are plain TCP, without queue pairs, and iperf3 transfers nothing.)

# figures NAME ADDRESS COMMAND...: a stream and round trips of sockwarp-bench under COMMAND.
figures()
{
    figures_name=$1 figures_address=$2
    shift 2
    "$@" sockwarp-bench server -a "$figures_address" -p 5210 >/tmp/bench.server 2>&1 &
    figures_server=$!
    for figures_try in $(seq 200); do
        grep -q "listening on" /tmp/bench.server && break
        usleep 50000
    done
    for figures_what in "stream -l 64K" "pingpong -l 64"; do
        # shellcheck disable=SC2086  # words
        timeout 20 "$@" sockwarp-bench $figures_what -c "$figures_address" -p 5210 -t 2 >/tmp/bench.client 2>&1
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
    timeout 20 rstream -b "$rstreams_address" -p 7501 "$@" >/dev/null 2>&1 &
    rstreams_server=$!
    listening 7501
    timeout 20 rstream -s "$rstreams_address" -p 7501 "$@" >/tmp/rstream.client 2>&1
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
