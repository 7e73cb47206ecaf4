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
