"""rsyslogd, that reads files and sends their lines on by TCP, to another that writes them to a file."""

import os

import shim
from matrix import HANG, entry

LINES = 20000

SENDER = """
global(workDirectory="%(folder)s")
main_queue(queue.type="LinkedList" queue.size="100000" queue.workerThreads="1")
module(load="imfile")
template(name="all" type="string" string="<13>Nov 10 10:00:00 here t: %%msg%%")
input(type="imfile" File="%(folder)s/in" Tag="t" ruleset="on")
ruleset(name="on") {
  action(type="omfwd" target="127.0.0.1" port="%(port)d" protocol="tcp" tcp_framing="%(framing)s" template="all"
         action.resumeRetryCount="-1" action.resumeInterval="1" queue.type="LinkedList" queue.size="100000" queue.workerThreads="1")
}
"""
RECEIVER = """
global(workDirectory="%(folder)s")
main_queue(queue.type="LinkedList" queue.size="100000" queue.workerThreads="1")
module(load="imtcp")
input(type="imtcp" address="127.0.0.1" port="%(port)d" ruleset="in")
template(name="bare" type="string" string="%%msg%%\\n")
ruleset(name="in") { action(type="omfile" file="%(folder)s/out" template="bare") }
"""


@entry("rsyslog", "a file's lines from one to the other by TCP, and logger's, with and without counted octets",
       needs=["rsyslogd", "logger"], version=["rsyslogd", "-v"], at_least=2)
def rsyslog(run):
    lines = ["line %d %s" % (n, "x" * (n % 700)) for n in range(LINES)]
    for framing in "traditional", "octet-counted":
        port = shim.free_port()
        names = {"folder": run.path(framing), "port": port, "framing": framing}
        os.mkdir(run.path(framing))
        config = run.write(framing + "/receiver", RECEIVER % names)
        run.write(framing + "/in", "\n".join(lines) + "\n")
        receiver = run.serve(port, "rsyslogd", "-n", "-f", config, "-i", run.path(framing, "pid-1"))
        sender = run.start("rsyslogd", "-n", "-f", run.write(framing + "/sender", SENDER % names), "-i", run.path(framing, "pid-2"))

        def out():
            try:
                with open(run.path(framing, "out"), encoding="ascii") as f:
                    return f.read().split("\n")[:-1]  # whole ones
            except FileNotFoundError:
                return []
        run.must(shim.until(lambda: len(out()) >= LINES, HANG, 0.05), "all lines arrive", len(out()))
        wrong = [pair for pair in zip(map(str.strip, out()), lines) if pair[0] != pair[1].strip()]
        run.same(wrong[:3], [], "lines that came in another's place")
        run.call("logger", "--tcp", "--server", "127.0.0.1", "--port", str(port), *["--octet-count"] * (framing != "traditional"),
                 "--tag", "me", "one more")
        run.must(shim.until(lambda: out()[-1].strip() == "one more", HANG, 0.05), "logger's line", out()[-1])
        for child in sender, receiver:
            run.stop(child)
    return "2 times %d lines right and in order" % (LINES + 1)
