"""
One run of iperf3 with both ends under sockwarp, and what must hold of it.

iperf3 keeps a control connection apart from the data connections. Its receiver stops reading when the time is over, with
octets still under way: what was sent on a data connection may exceed what was received, by no more than buffers hold. With
-R it reads on without counting. And each data connection begins with the client's cookie, which is not counted either.
"""

import json

import shim
import tap

COOKIE_LEN = 37


def in_flight_max():
    """What buffers of both sockets and both programs may hold."""
    total = 4 << 20
    for name in "rmem", "wmem":
        with open("/proc/sys/net/ipv4/tcp_" + name, encoding="ascii") as f:
            total += int(f.read().split()[2])
    return total


def check(name, *options, address="127.0.0.1", server_prefix=(), client_prefix=(), streams=1, both=False):
    port = shim.free_port()
    ours, theirs = shim.stats_file("iperf3-client"), shim.stats_file("iperf3-server")
    with open(shim.path("iperf3-server.out"), "w+b") as out:
        server = shim.start(*server_prefix, *shim.under(theirs, "iperf3", "-s", "-1", "-J", "-p", str(port)),
                            stdout=out, stderr=out)
        shim.await_listener(server, port)
        client = shim.run(*client_prefix, *shim.under(ours, "iperf3", "-c", address, "-p", str(port), "-J", *options, patient=True),
                          text=True, timeout=shim.HANG)
        status = shim.finish(server)
        out.seek(0)
        served = out.read().decode(errors="replace")
    if not tap.same((client.returncode, status), (0, 0), name + ": both iperf3 end well",
                    client.stdout[-600:], client.stderr, served[-600:]):
        return
    report = json.loads(client.stdout)
    count = streams * (2 if both else 1) + 1
    near, far = shim.await_stats(ours, count), shim.await_stats(theirs, count)
    shim.ok_upgraded(near, far, name + ": every connection is upgraded on both ends, without errors", count)
    check_totals(name, report, near, far)


def by_ports(lines):
    def port(address):
        return int(address.rsplit(":", 1)[1])
    return {(port(line["local"]), port(line["peer"])): line for line in lines}


def check_totals(name, report, near, far):
    wrong = []
    data = set()
    moved = 0
    near_by, far_by = by_ports(near), by_ports(far)
    connected = {c["socket"]: (c["local_port"], c["remote_port"]) for c in report["start"]["connected"]}
    for stream in report["end"]["streams"]:
        ports = connected[stream["sender"]["socket"]]
        data.add(ports)
        client_sends = stream["sender"]["sender"]
        mine, its = near_by.get(ports), far_by.get(ports[::-1])
        if mine is None or its is None:
            wrong.append("no statistics for %s" % (ports,))
            continue
        tx, rx = (mine, its) if client_sends else (its, mine)
        cookie = COOKIE_LEN if client_sends else 0
        sent, received = tx["tx_bytes"] - cookie, rx["rx_bytes"] - cookie
        moved += received
        if sent != stream["sender"]["bytes"] or not stream["receiver"]["bytes"] <= received <= sent:
            wrong.append("%s: iperf3 says %d sent, %d received; statistics %d, %d" %
                         (ports, stream["sender"]["bytes"], stream["receiver"]["bytes"], sent, received))
        if received != stream["receiver"]["bytes"] and client_sends:
            wrong.append("%s: iperf3 says %d received; statistics %d" % (ports, stream["receiver"]["bytes"], received))
        if sent - received > in_flight_max():
            wrong.append("%s: %d sent and %d received" % (ports, sent, received))
    tap.ok(not wrong and moved > 0, name + ": iperf3's totals agree with the statistics", *wrong, "moved %d" % moved)
    control = [(n, f) for n, f in shim.mates(near, far)[0]
               if tuple(by_ports([n]))[0] not in data]
    good = len(control) == 1 and all(n["tx_bytes"] == f["rx_bytes"] > 0 and f["tx_bytes"] == n["rx_bytes"] > 0
                                     for n, f in control)
    tap.ok(good, name + ": what one end of the control connection sends the other receives",
           *(shim.brief(pair) for pair in control))
