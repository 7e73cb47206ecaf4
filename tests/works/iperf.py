"""iperf, version 2: a thread for each stream, and servers that connect back."""


import shim
from matrix import CLIENTS, HANG, Wrong, entry

VERSION = ["iperf", "--version"]


def totals(text, role):
    """Octets of each stream by iperf's -y C: {(local port, other port): octets}, sums left out."""
    found = {}
    for line in text.splitlines():
        field = line.split(",")
        if len(field) == 9 and int(field[5]) >= 0 and field[4] != "0":
            found[tuple(sorted((field[2], field[4])))] = int(field[7])
    if not found:
        raise Wrong("iperf's %s reports nothing: %s" % (role, text))
    return found


class Refused(Exception):
    """The server connected back before iperf's client listened, which waits for ever then."""


def said_in(log):
    with open(log, encoding="ascii", errors="replace") as f:
        return f.read()


def transfer(run, *options, streams):
    port, other = shim.free_port(), shim.free_port()
    server = run.serve(port, "iperf", "-s", "-B", "127.0.0.1", "-p", str(port), "-y", "C")
    log = run.logs[-1]
    client = run.start("iperf", "-c", "127.0.0.1", "-p", str(port), "-y", "C", "-L", str(other), *options,
                       side=CLIENTS)
    near_log = run.logs[-1]

    def refused():
        return "tcp connect failed: Connection refused" in said_in(log)
    ended = shim.until(lambda: client.poll() is not None or refused(), HANG, 0.02)
    if refused():
        client.kill()
        client.wait()
        run.stop(server, status=None)
        raise Refused
    run.must(ended and client.returncode == 0, "iperf's client: status %s" % client.returncode, said_in(near_log))

    def both():
        text = said_in(log)
        return totals(text, "server") if len(text.splitlines()) >= streams else None
    far = shim.until(both, HANG)
    run.must(far, "the server's report is not complete", said_in(near_log))
    near = totals(said_in(near_log), "client")
    run.stop(server, status=None)
    run.same(len(near) >= streams, True, "streams (client: %r)" % near)
    run.same({key: near[key] for key in far}, far, "octets that either end reports")
    return near


def transfer_back(run, *options, streams):
    """By a client that the server connects back to."""
    for _ in range(10):
        try:
            return transfer(run, *options, streams=streams)
        except Refused:
            print("# RETRY iperf %s: %s" % (" ".join(options), Refused.__doc__), flush=True)
    raise Wrong("ten times: " + Refused.__doc__)


def amount(run):
    return "2000M" if run.long else "200M"


# (Its clients send without waiting as soon as they are connected: where the server has not accepted by then, plainly.)
@entry("iperf", "-P 4 --no-connect-sync", needs=["iperf"], version=VERSION, at_least=2, stays_plain={"withdrawn": 6})
def iperf_parallel(run):
    transfer(run, "-P", "4", "--no-connect-sync", "-n", amount(run), streams=4)
    return "both ends count the same"


# The client sends nothing before all are connected, the server accepts nothing before the first has sent something: TCP
# connects without the server. Those that it does not accept soon do without the upgrade.
@entry("iperf", "-P 4: connects all before it sends", needs=["iperf"], version=VERSION, at_least=1,
       stays_plain={"withdrawn": 6})
def iperf_barrier(run):
    transfer(run, "-P", "4", "-n", amount(run), streams=4)
    return "both ends count the same"


@entry("iperf", "-r: there, then the server connects back", needs=["iperf"], version=VERSION, at_least=2)
def iperf_tradeoff(run):
    transfer_back(run, "-r", "-n", amount(run), streams=2)
    return "both ends count the same"


@entry("iperf", "-d: both ways at once, the server connects back", needs=["iperf"], version=VERSION, at_least=2)
def iperf_dual(run):
    transfer_back(run, "-d", "-n", amount(run), streams=2)
    return "both ends count the same"
