# The tests, sourced by init.sh in the virtual machine. A test point is a line "ok - NAME" or "not ok - NAME"; lines that
# begin with "#" tell more.

# check NAME COMMAND...: one test point; what the command says is shown if it fails.
check()
{
    check_name=$1
    shift
    if "$@" >/tmp/out 2>&1; then
        echo "ok - $check_name"
    else
        echo "not ok - $check_name"
        sed "s/^/# /" /tmp/out
        dmesg | tail -n 8 | sed "s/^/# kernel: /"
    fi
    dmesg -c >/dev/null
}

# rping_self ADDRESS: rdma-core's rping with itself, through one device.
rping_self()
{
    timeout 20 rping -s -a "$1" -p 7174 -C 20 -V -v >/tmp/rping.server 2>&1 &
    rping_server=$!
    # The listener has no file to look for: the client comes again until it is there.
    rping_left=50
    until timeout 20 rping -c -a "$1" -p 7174 -C 20 -V; do
        rping_left=$((rping_left - 1))
        [ $rping_left -gt 0 ] && kill -0 $rping_server || break
        usleep 100000
    done
    wait $rping_server
    rping_status=$?
    cat /tmp/rping.server
    [ "$rping_status" -eq 0 ] && grep -q "server ping data: rdma-ping-19" /tmp/rping.server
}

dmesg -c >/dev/null
check "siw: rping with itself" rping_self 10.9.0.1
check "rdma_rxe: rping with itself" rping_self 10.9.1.1
