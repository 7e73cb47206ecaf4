# What the scripts of tests share, sourced by init.sh in the virtual machine. A test point is a line "ok - NAME" or "not ok - NAME";
# lines that begin with "#" tell more.

only=$(cat /only)

# What sockwarp's library logs.
export SOCKWARP_LOG=info,/tmp/log

# check NAME COMMAND...: one test point; what the command, the library and the kernel say is shown if it fails. What it writes to
# descriptor 3 is always shown.
check()
{
    check_name=$1
    shift
    case $check_name in
    *"$only"*) ;;
    *) return ;;
    esac
    dmesg -c >/dev/null
    rm -f /tmp/log
    if "$@" 3>&1 >/tmp/out 2>&1; then
        echo "ok - $check_name"
    else
        echo "not ok - $check_name"
        sed "s/^/# /" /tmp/out
        [ ! -e /tmp/log ] || tail -n 40 /tmp/log | sed "s/^/# log: /"
        dmesg | tail -n 12 | sed "s/^/# kernel: /"
    fi
}

# listening PORT: waits until a device's program listens there, which no event tells; at most two minutes.
listening()
{
    for listening_try in $(seq 2400); do
        rdma resource show cm_id | grep -q "state LISTEN .* src-addr [0-9.]*:$1 " && break
        usleep 50000
    done
}
