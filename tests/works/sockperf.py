"""sockperf over TCP: it numbers its messages and tells of lost, doubled and misordered ones."""

import re
import signal

import shim
from matrix import entry


@entry("sockperf", "--tcp: ping-pong, under-load, throughput", needs=["sockperf"],
       version=["sockperf", "--version"], at_least=3)
def sockperf(run):
    port = shim.free_port()
    address = ["-i", "127.0.0.1", "-p", str(port), "--tcp"]
    child = run.serve(port, "sockperf", "server", *address)
    seconds = "10" if run.long else "1"
    count = 0
    for command in (["ping-pong", "-m", "14"], ["under-load", "-m", "60000", "--mps", "2000", "--reply-every", "5"]):
        said = run.call("sockperf", *command, *address, "-t", seconds)
        for what in "dropped", "duplicated", "out-of-order":
            run.same(re.findall(r"# %s messages = (\d+)" % what, said), ["0"], what + " messages, " + " ".join(command))
        found = re.search(r"\[Valid Duration\].*ReceivedMessages=(\d+)", said)
        run.must(found and int(found.group(1)) > 0, "few messages arrive", said)
        count += int(found.group(1))
    said = run.call("sockperf", "throughput", "-m", "1472", *address, "-t", seconds)
    run.must(re.search(r"Message Rate is \d+", said), "no throughput", said)
    run.stop(child, signal.SIGINT, status=None)
    return "%d answers, none lost, doubled or misordered" % count
