"""stress-ng: its socket stressors, which check the octets that they receive. It is both ends itself, and ends its clients by SIGKILL."""

import re

import shim
from matrix import entry

VERSION = ["stress-ng", "--version"]
# The server writes all it has and closes at once, now and then before the client, on a busy machine, has asked: of thousands of
# connections up to one in twenty, as the machine has it.
SPOKE_FIRST = {"spoke-first": 150, "mpa-failed": 30, "hello-closed": 30}


def stress(run, *options):
    ops = "20000" if run.long else "1000"
    said = run.call("stress-ng", "--verify", "--metrics-brief", "--stdout", "--temp-path", run.folder, *options,
                    "--sock-ops", ops)
    run.must(not re.search("fail|error|unexpected", said), "stress-ng found something", said)
    found = re.search(r"\bsock +(\d+) ", said)
    run.must(found and int(found.group(1)) >= int(ops), "operations are missing", said)
    return int(found.group(1))


@entry("stress-ng", "--sock 2 --verify: send, sendmsg, sendmmsg, random", needs=["stress-ng"], version=VERSION,
       at_least=8, killed=8, stays_plain=SPOKE_FIRST, sides=())
def stress_opts(run):
    count = sum(stress(run, "--sock", "2", "--sock-opts", kind, "--sock-port", str(shim.free_port()))
                for kind in ("send", "sendmsg", "sendmmsg", "random"))
    return "%d operations verified" % count


@entry("stress-ng", "--sock 2 --verify: IPv4 and IPv6, --sock-nodelay, --sock-zerocopy", needs=["stress-ng"],
       version=VERSION,
       at_least=4, killed=6, stays_plain=SPOKE_FIRST, sides=())
def stress_domains(run):
    count = 0
    for options in (["--sock-domain", "ipv4", "--sock-nodelay"], ["--sock-domain", "ipv6"], ["--sock-zerocopy"]):
        if "ipv6" not in options or shim.has_ipv6():
            count += stress(run, "--sock", "2", "--sock-port", str(shim.free_port()), *options)
    return "%d operations verified" % count
