# The tests of vm.test, sourced by init.sh in the virtual machine. Our end is in the namespace far.

# rping_self ADDRESS: rdma-core's rping with itself, through one device.
rping_self()
{
    timeout 200 rping -s -a "$1" -p 7174 -C 20 -V -v >/tmp/rping.server 2>&1 &
    rping_server=$!
    listening 7174
    timeout 200 rping -c -a "$1" -p 7174 -C 20 -V
    wait $rping_server
    rping_status=$?
    cat /tmp/rping.server
    [ "$rping_status" -eq 0 ] && grep -q "server ping data: rdma-ping-19" /tmp/rping.server
}

# end_of WHO: the program and where it runs. near is ours in siw's own namespace: over lo, with segments of 64 kB.
end_of()
{
    case $1 in
    ours) echo "/usr/bin/ip netns exec far iwpeer ours" ;;
    near) echo "iwpeer ours" ;;
    verbs) echo "iwpeer verbs" ;;
    esac
}

# A FIFO that iwpeer writes a line to when it listens. (A child that ends interrupts the shell's read.)
new_ready()
{
    exec 9<&-
    rm -f /tmp/ready
    mkfifo /tmp/ready
    exec 9<>/tmp/ready
}
wait_ready()
{
    for ready_try in 1 2 3; do
        read -r -t 20 ready_line <&9 && [ "$ready_line" = ready ] && return 0
    done
    echo "it does not listen"
    return 1
}

# pair RESPONDER INITIATOR SCENARIO [KEY=VALUE...] [-- [KEY=VALUE...] [-- [KEY=VALUE...]]]: settings for both, for the
# responder, for the initiator. want_responder and want_initiator: the exit status that is wanted. Where iwpeer says that siw
# made a fault that it knows (status 75), once more, at most two times.
port=7200
pair()
{
    for pair_try in 1 2 3; do
        pair_once "$@" && return 0
        [ $pair_status -eq 75 ] || [ $pair_other -eq 75 ] || return 1
        echo "# a fault of siw's (run $pair_try)" >&3
    done
    return 1
}
pair_once()
{
    pair_status=0 pair_other=0
    pair_responder=$1 pair_initiator=$2 pair_scenario=$3
    shift 3
    pair_part=both pair_both='' pair_r='' pair_i=''
    for word; do
        case $pair_part:$word in
        both:--) pair_part=responder ;;
        responder:--) pair_part=initiator ;;
        both:*) pair_both="$pair_both $word" ;;
        responder:*) pair_r="$pair_r $word" ;;
        initiator:*) pair_i="$pair_i $word" ;;
        esac
    done
    case $pair_responder in
    ours) pair_address=10.9.0.2 ;;
    *) pair_address=10.9.0.1 ;;
    esac
    port=$((port + 1))
    new_ready
    # shellcheck disable=SC2046,SC2086  # lists of words
    $(end_of "$pair_responder") listen $pair_address $port "$pair_scenario" ready=/tmp/ready $pair_both $pair_r &
    pair_pid=$!
    wait_ready || return 1
    # shellcheck disable=SC2046,SC2086
    $(end_of "$pair_initiator") connect $pair_address $port "$pair_scenario" $pair_both $pair_i
    pair_status=$?
    [ $pair_status -eq "${want_initiator:-0}" ] || kill $pair_pid 2>/dev/null
    wait $pair_pid
    pair_other=$?
    echo "initiator ($pair_initiator): status $pair_status, responder ($pair_responder): $pair_other"
    [ $pair_status -eq "${want_initiator:-0}" ] && [ $pair_other -eq "${want_responder:-0}" ]
}

check "siw: rping with itself" rping_self 10.9.0.1
check "rdma_rxe: rping with itself" rping_self 10.9.1.1


# siw's program is not even asked: it goes on listening.
refuses_markers()
{
    new_ready
    $(end_of verbs) listen 10.9.0.1 7177 refused ready=/tmp/ready &
    markers_pid=$!
    wait_ready || return 1
    $(end_of ours) connect 10.9.0.1 7177 refused markers=1
    markers_status=$?
    kill $markers_pid || return 1
    wait $markers_pid
    return $markers_status
}

# ---- both ways: the responder, the initiator ----

for way in "verbs ours" "ours verbs"; do
    # shellcheck disable=SC2086  # two words
    set -- $way
    name="$2 to $1"
    check "$name: private data both ways" pair "$@" hello -- priv=from-responder expect-priv=from-initiator \
        -- priv=from-initiator expect-priv=from-responder
    check "$name: refused, with private data" pair "$@" refused -- refuse=1 priv=from-responder expect-priv=from-initiator \
        -- priv=from-initiator expect-priv=from-responder
    check "$name: Sends of many lengths, some with Solicited Event, echoed" pair "$@" messages se=1
    check "$name: 100 MB written and verified each way" pair "$@" write
    check "$name: 20 MB read and verified each way" pair "$@" read bytes=20000000
    want_initiator=137 check "$name: the initiator is killed while it writes" pair "$@" initiator-killed
    want_responder=137 check "$name: the responder is killed while it is written to" pair "$@" responder-killed
done

# Segments of 64 kB, and FPDUs as large as either makes them.
for way in "verbs near" "near verbs"; do
    # shellcheck disable=SC2086
    set -- $way
    check "over lo, $2 to $1: Sends of many lengths, echoed" pair "$@" messages
    check "over lo, $2 to $1: 40 MB written and verified each way" pair "$@" write bytes=40000000
    check "over lo, $2 to $1: 20 MB read and verified each way" pair "$@" read bytes=20000000
done

# FPDUs in pieces, and late: one segment in a hundred is lost, either way.
/usr/bin/tc qdisc add dev sw0 root netem loss 1% && /usr/bin/ip netns exec far /usr/bin/tc qdisc add dev sw0 root netem loss 1% ||
    echo "not ok - netem"
check "1 % lost, ours to verbs: 5 MB written and verified each way" pair verbs ours write bytes=5000000
check "1 % lost, verbs to ours: 5 MB written and verified each way" pair ours verbs write bytes=5000000
check "1 % lost, ours to verbs: 2 MB read and verified each way" pair verbs ours read bytes=2000000
/usr/bin/tc qdisc del dev sw0 root
/usr/bin/ip netns exec far /usr/bin/tc qdisc del dev sw0 root

# ---- startup, as siw's responder and initiator do it ----

# RFC 6581 10: a Rev 1 initiator is answered in kind.
check "ours to verbs, Rev 1" pair verbs ours hello -- -- rev=1 expect-rev=1
# RFC 6581 9.2: the RTR comes first, and then the responder may send.
for kind in write read; do
    check "ours to verbs, RTR $kind: the responder may speak first" \
        pair verbs ours hello -- expect-rtr=read -- rtr=$kind expect-rtr=$kind
done
check "ours to verbs, RTR write or read is offered: siw takes write" \
    pair verbs ours hello -- expect-rtr=read -- rtr=write,read expect-rtr=write
# RFC 6581 9.1: each side's ORD is at most the other's IRD.
# (siw as the responder takes as many Reads as it is asked to, whatever its program says.)
check "ours to verbs: IRD and ORD, each as the other can" pair verbs ours hello -- ird=3 ord=2 expect-ird=7 expect-ord=6 \
    -- ird=6 ord=7 expect-ird=6 expect-ord=7
check "verbs to ours: IRD and ORD, each as the other can" pair ours verbs hello -- ird=6 ord=7 expect-ird=2 expect-ord=3 \
    -- ird=3 ord=2
check "ours to verbs, markers: siw refuses" refuses_markers
check "ours to verbs, without CRC" pair verbs ours messages -- -- crc=0
check "verbs to ours, without CRC" pair ours verbs messages -- crc=0

# ---- Terminate ----

# told LAYER TYPE CODE COMMAND...: and siw says in the kernel's log that it was told so; it has the first octet's halves the
# wrong way round.
told()
{
    told_want="siw: got TERMINATE. layer $2, type $1, code $3"
    shift 3
    "$@" || return 1
    dmesg | grep -q "$told_want" || { echo "the kernel did not say '$told_want'" && return 1; }
}

while read -r fault code; do
    check "ours to verbs: $fault is terminated" pair verbs ours fault fault=$fault
    # shellcheck disable=SC2086  # three words
    check "verbs to ours: $fault is terminated" told $code pair ours verbs fault fault=$fault
done <<END
write-key 1 1 0
write-bounds 1 1 1
read-key 0 1 0
read-bounds 0 1 1
invalidate-key 0 1 9
END
check "ours to verbs: write-rights is terminated" pair verbs ours fault fault=write-rights
check "verbs to ours: write-rights is terminated" pair ours verbs fault fault=write-rights
# (The other way round siw answers: it does not look at the right to be read.)
check "verbs to ours: read-rights is terminated" told 0 1 2 pair ours verbs fault fault=read-rights
check "ours to verbs: send-long is terminated" pair verbs ours fault fault=send-long -- message=1000
check "verbs to ours: send-long is terminated" told 1 2 5 pair ours verbs fault fault=send-long -- message=1000
for fault in qn msn ddp-version rdmap-version opcode crc; do
    check "ours to verbs: $fault is terminated" pair verbs ours fault fault=$fault
done
check "ours to verbs: Send with Invalidate" pair verbs ours invalidate
check "verbs to ours: Send with Invalidate" told 1 1 0 pair ours verbs invalidate
check "ours to verbs: Send with Solicited Event and Invalidate" pair verbs ours invalidate se=1
check "verbs to ours: Send with Solicited Event and Invalidate" told 1 1 0 pair ours verbs invalidate se=1
check "ours to verbs: the end comes in the middle of a frame" pair verbs ours fault fault=half
check "ours to verbs: a reset in the middle of a frame" pair verbs ours fault fault=reset

# ---- rdma-core's rping as the peer ----

rping_server_device()
{
    timeout 200 rping -s -a 10.9.0.1 -p 7175 -C 10 -S 1000 -v -V &
    rping_pid=$!
    listening 7175
    $(end_of ours) connect 10.9.0.1 7175 rping count=10
    rping_ours=$?
    wait $rping_pid
    rping_theirs=$?
    echo "ours: status $rping_ours, rping: $rping_theirs"
    [ $rping_ours -eq 0 ] && [ $rping_theirs -eq 0 ]
}

rping_client_device()
{
    new_ready
    $(end_of ours) listen 10.9.0.2 7176 rping count=10 ready=/tmp/ready &
    rping_pid=$!
    wait_ready || return 1
    timeout 200 rping -c -a 10.9.0.2 -p 7176 -C 10 -S 5000 -v -V
    rping_theirs=$?
    [ $rping_theirs -eq 0 ] || kill $rping_pid 2>/dev/null
    wait $rping_pid
    rping_ours=$?
    echo "ours: status $rping_ours, rping: $rping_theirs"
    [ $rping_ours -eq 0 ] && [ $rping_theirs -eq 0 ]
}

check "rping -s of rdma-core, ours as its client" rping_server_device
check "rping -c of rdma-core, ours as its server" rping_client_device

# ---- siw's other minds: its constants as parameters (kernel.py) ----

# siw_is PARAMETER VALUE...
siw_is()
{
    while [ $# -gt 0 ]; do
        echo "$2" >/sys/module/siw/parameters/"$1" || return 1
        shift 2
    done
}

if rdma link delete siw0 && rmmod siw && insmod /modules/siw_options.ko && rdma link add siw0 type siw netdev sw0; then
    # rtr_type is in network byte order: 128 Write, 64 Read.
    for kinds in "128 write" "64 read" "192 write"; do
        # shellcheck disable=SC2086
        set -- $kinds
        siw_is peer_to_peer Y rtr_type "$1"
        check "siw asks for an RTR ($1): $2, and the responder may speak first" \
            pair ours verbs hello expect-rtr="$2"
    done
    check "siw asks for an RTR (192), ours takes reads" pair ours verbs hello expect-rtr=read -- rtr=read
    siw_is rtr_type 128
    check "siw asks for an RTR (128), ours takes Reads only and refuses" \
        pair ours verbs refused -- rtr=read priv=sorry -- expect-priv=sorry
    siw_is peer_to_peer N mpa_crc_required Y
    check "siw asks for CRCs, ours does not: there are" pair ours verbs messages -- crc=0 expect-crc=1
    siw_is mpa_version 1 mpa_crc_required N
    check "siw asks with Rev 1" pair ours verbs hello -- expect-rev=1
else
    echo "not ok - siw with options is loaded"
fi
