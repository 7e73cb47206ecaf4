# Programs over devices: what verbs.sh and mixed.sh share.

siw=10.9.0.1
# shellcheck disable=SC2034  # used by the scripts that source it
rxe=10.9.1.1

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

# serves PORT: waits until a program listens there, or the program that was started last has ended. (No event tells; two minutes
# are for a machine that stands still.)
serves()
{
    serves_pid=$!
    for serves_try in $(seq 2400); do
        $server_in netstat -ltn | grep -q ":$1 " && return 0
        kill -0 $serves_pid 2>/dev/null || break
        usleep 50000
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
    timeout 200 $client_in $sockwarp --stats /tmp/near -p "$by_device" -- iperf3 --forceflush -c "$iperf_address" -p 5201 \
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

# Lines of connections that their client closed before they were up. (To an end that has not seen its Hello it was a plain one.)
gave_up='"transport":"plain","reason":"\(closed\|peer-plain\)".*"tx_bytes":0,"rx_bytes":0,'

# given_up: how many of them there are. False: the two ends' lines are not of the same connections.
given_up()
{
    sed -n "/$gave_up/"'s/.*"local":"\([^"]*\)","peer":"\([^"]*\)".*/\1 \2/p' /tmp/near | sort >/tmp/near.gave_up
    sed -n "/$gave_up/"'s/.*"local":"\([^"]*\)","peer":"\([^"]*\)".*/\2 \1/p' /tmp/far | sort >/tmp/far.gave_up
    wc -l </tmp/near.gave_up
    cmp /tmp/near.gave_up /tmp/far.gave_up
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
        timeout 200 $client_in $sockwarp --stats /tmp/near -p "$by_device" -- redis-benchmark -h "$1" -c 8 -n 2000 -t set,get -q $redis_options \
            >/tmp/redis.client 2>&1 || redis_good=0
        tr '\r' '\n' </tmp/redis.client | grep "requests per second" || redis_good=0
    done
    kill $redis_server # it ends as programs should on SIGTERM
    wait $redis_server
    redis_status=$?
    echo "server $redis_status"
    # siw now and then refuses a completion queue (EINVAL): such a connection goes by software, and says so.
    redis_by='"transport":"\(verbs\|mixed\)","reason":"upgraded"'
    # redis-benchmark ends each of its 6 parts when the answers are there, though a connection may not be up: one a part at most.
    redis_given_up=$(given_up) || redis_good=0
    [ "${redis_given_up%%[!0-9]*}" -le 6 ] || redis_good=0
    cat /tmp/near /tmp/far | grep -v "$gave_up" >/tmp/both
    redis_verbs=$(grep -c "$redis_by" /tmp/both)
    redis_all=$(wc -l </tmp/both)
    if grep -v "$redis_by" /tmp/both | grep -v '"transport":"iwarp","reason":"upgraded".*"device":"device-'; then
        redis_good=0
    fi
    [ $redis_good -eq 1 ] || echo "given up: $redis_given_up"
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
    timeout 200 $client_in $sockwarp --stats /tmp/near -p "$by_device" -- iperf3 --forceflush -n 2M -p 5201 "$@"
    one_status=$?
    [ $one_status -eq 0 ] || kill $one_server 2>/dev/null
    wait $one_server
    [ $one_status -eq 0 ] && ends "$one_want" 2 && [ "$(grep -c "\"device\":\"$one_device\"" /tmp/near)" -eq 2 ] && return 0
    cat /tmp/near
    return 1
}

# streaming ADDRESS SECONDS: iperf3, whose stream has gone on for a second: $streaming_server, $streaming_client.
streaming()
{
    rm -f /tmp/near /tmp/far /tmp/iperf.client
    $server_in $sockwarp --stats /tmp/far -p "$by_device" -- iperf3 -s -1 -p 5201 >/tmp/iperf.server 2>&1 &
    streaming_server=$!
    serves 5201 || return 1
    $client_in $sockwarp --stats /tmp/near -p "$by_device" -- iperf3 --forceflush -t "$2" -p 5201 -c "$1" >/tmp/iperf.client 2>&1 &
    streaming_client=$!
    for streaming_try in $(seq 2400); do
        grep -q "1.0. *sec" /tmp/iperf.client 2>/dev/null && return 0
        kill -0 $streaming_client 2>/dev/null || break
        usleep 50000
    done
    echo "iperf3 does not stream"
    cat /tmp/iperf.client
    kill -9 $streaming_client $streaming_server 2>/dev/null
    return 1
}

# notices PID WHO: it ends by itself, long before it would have without.
notices()
{
    for notices_try in $(seq 2400); do
        kill -0 "$1" 2>/dev/null || break
        usleep 50000
    done
    kill -9 "$1" 2>/dev/null && echo "the $2 has not noticed" && cat /tmp/iperf.client && return 1
    wait "$1"
    cat "/tmp/iperf.$2"
}

# survived STATISTICS TRANSPORT: it was that one's connection, and nothing is left of it.
survived()
{
    grep -q "\"transport\":\"$2\"" "$1" && [ "$(rdma resource show qp | grep -c "comm iperf3")" -eq 0 ]
}

# forking ADDRESS PLAN PROCESSES TRANSPORT COUNT [TRANSPORT COUNT]: a server that forks for each connection (tests/process/forks.c
# has the letters); which way its ends went, and of how many processes they were.
forking()
{
    forking_plan=$2 forking_pids=$3
    rm -f /tmp/near /tmp/far
    $server_in $sockwarp --stats /tmp/far -p "$by_device" -- forks serve "$1" 7001 "$2" 2>&1 &
    forking_server=$!
    serves 7001 || return 1
    timeout 200 $client_in $sockwarp --stats /tmp/near -p "$by_device" -- forks connect "$1" 7001 "$2" 400000
    forking_status=$?
    [ $forking_status -eq 0 ] || kill $forking_server 2>/dev/null
    wait $forking_server
    forking_other=$?
    echo "client $forking_status, server $forking_other"
    cat /tmp/near /tmp/far
    [ $forking_status -eq 0 ] && [ $forking_other -eq 0 ] || return 1
    [ "$(grep -o '"pid":[0-9]*' /tmp/far | sort -u | wc -l)" -eq "$forking_pids" ] || { echo "not $forking_pids processes" && return 1; }
    shift 3
    forking_all=0
    while [ $# -gt 0 ]; do
        forking_all=$((forking_all + $2))
        [ "$(grep -c "\"transport\":\"$1\",\"reason\":\"upgraded\"" /tmp/far)" -eq "$2" ] ||
            { echo "not $2 of the server's by $1" && return 1; }
        shift 2
    done
    # (A child that is killed writes none; one of a static program is plain.)
    [ "$(grep -c '"reason":"upgraded"' /tmp/far)" -eq "$forking_all" ] && [ "$(wc -l </tmp/near)" -eq ${#forking_plan} ] || return 1
    forking_static=$(printf %s "$forking_plan" | tr -d -c s | wc -c)
    [ "$(grep -c '"reason":"upgraded"' /tmp/near)" -eq $((${#forking_plan} - forking_static)) ]
}

# socats ADDRESS: socat's own way of forking; three clients, 3 MB there and back each.
socats()
{
    rm -f /tmp/near /tmp/far
    $server_in $sockwarp --stats /tmp/far -p "$by_device" -- socat "TCP-LISTEN:7002,bind=$1,reuseaddr,fork" EXEC:cat &
    socats_server=$!
    serves 7002 || return 1
    head -c 3000000 /tmp/www/big >/tmp/socats.sent
    socats_good=1
    for socats_try in 1 2 3; do
        timeout 200 $client_in $sockwarp --stats /tmp/near -p "$by_device" -- socat -t 30 - "TCP:$1:7002" </tmp/socats.sent >/tmp/socats.got ||
            socats_good=0
        cmp /tmp/socats.sent /tmp/socats.got || socats_good=0
    done
    kill $socats_server
    wait $socats_server
    [ $socats_good -eq 1 ] && ends verbs 3 && [ "$(grep -o '"pid":[0-9]*' /tmp/far | sort -u | wc -l)" -eq 3 ]
}

# A peer that is killed, while it sends: the other end sees the end of the stream, as with TCP, and goes.
killed_client()
{
    streaming "$1" 600 || return 1
    kill -9 $streaming_client
    notices $streaming_server server && survived /tmp/far "${far_is:-verbs}"
}

# The same, of the server, which is written to.
killed_server()
{
    streaming "$1" 600 || return 1
    kill -9 $streaming_server
    notices $streaming_client client && survived /tmp/near "${near_is:-verbs}"
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
