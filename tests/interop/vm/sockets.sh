# The tests of sockets.test, sourced by init.sh in the virtual machine: both ends on one device, over loopback inside it.

siw=10.9.0.1 rxe=10.9.1.1
sockwarp=/opt/sockwarp/sockwarp
export SOCKWARP_HELLO_TIMEOUT_MS=5000 SOCKWARP_LINGER_MS=500
ulimit -l unlimited

# differs SCENARIO: what a device's connection does otherwise, or this machine, as man 7 sockwarp has it.
differs()
{
    case $1 in
    # A connection that was used is not for a forked child.
    fork_* | grandchild | child_* | std_* | stdio_exits | sigpipe_ends | pass_* | epoll_fork_* | share_*) ;;
    # So many messages cannot wait unread; the peer's device has taken what was written, and closing need not linger.
    waiting_tiny | mmsg_2000 | linger_short) ;;
    # Urgent data, SIGIO, the kernel's states of the TCP connection beside it.
    oob_* | urgent_* | sigio | option_tcp_info | names_by_stage) ;;
    # An edge may wake more than one thread, or be told again; what a reset finds half closed is ECONNRESET, not EPIPE.
    epoll_threads_edge | epoll_reset | epoll_sent_to_closed | poll_reset_half_closed) ;;
    # Linux 6.1 without RWF_NOWAIT for sockets, and SO_PEEK_OFF of TCP; without inet_diag, by which listeners of this host are looked up.
    preadv2 | rw_flags | nowait_full | peek_off_listener | before_accept_polled | busy_server | jump_connect) ;;
    *) return 1 ;;
    esac
}

# same ADDRESS ROLE SCENARIO: what it says plain and by the device, and that it was the device. Some say whether a thing came in time,
# which an emulated machine may miss: a second time, then.
same()
{
    same_once "$@" && return 0
    echo "# $1, $2, $3: a second time" >&3
    same_once "$@"
}
same_once()
{
    rm -f /tmp/stats
    SEM_ADDRESS=$1
    export SEM_ADDRESS
    same_plain=$(timeout 200 sem "$2" "$3" 2>&1)" ($?)"
    same_device=$(timeout 200 $sockwarp --stats /tmp/stats -p "any * auto transport=verbs hello=always" -- sem "$2" "$3" 2>&1)" ($?)"
    if [ "$same_plain" != "$same_device" ]; then
        echo "by the device: $same_device"
        echo "plain:         $same_plain"
        return 1
    fi
    [ "$(grep -c '"transport":"verbs","reason":"upgraded"' /tmp/stats)" -ge 2 ] || { cat /tmp/stats && return 1; }
}

# Those about ends, readiness and calls that are left, each on one device with one role; all, on siw, with the argument "siw: ".
turn=0
for scenario in $(sem list); do
    differs "$scenario" && continue
    case $only:$scenario in
    siw:* | :half_* | :shut* | :reset_* | :far_closes* | :end_* | :sigpipe* | :poll_reset* | :poll_shut* | :poll_sent* | \
        :poll_closed* | :epoll_reset | :epoll_own* | :epoll_sent* | :epoll_stages* | :jump_* | :number_* | :waiting_* | \
        :recv_* | :peek* | :waitall* | :select_* | :errno_kept) ;;
    :*) continue ;;
    esac
    turn=$((1 - turn))
    if [ $turn -eq 1 ] || [ "$only" = "siw: " ]; then
        check "siw: $scenario, connect" same $siw connect "$scenario"
    else
        check "rdma_rxe: $scenario, accept" same $rxe accept "$scenario"
    fi
done
