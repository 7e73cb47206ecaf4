"""inetd: the connection as standard input and output of the programs that it starts; the listener, for those that accept."""

import os
import pwd

import shim
from matrix import PYTHON, blob, digest, entry

SCRIPT = """#!/bin/sh
while read -r line; do echo "<$line>"; done
"""
WAITS = """
import socket
l = socket.socket(fileno=0)
for _ in range(3):
    c = l.accept()[0]
    while data := c.recv(65536):
        c.sendall(data)
    c.close()
"""
DATA = blob(3_000_000, 61)


@entry("inetd", "OpenBSD's: cat and a script of sh get connections, a Python program the listener",
       needs=["inetd", "socat", PYTHON], version=["dpkg-query", "-W", "openbsd-inetd"], at_least=18)
def inetd(run):
    cat, script, waits = ports = [shim.free_port() for _ in range(3)]
    me = pwd.getpwuid(os.geteuid()).pw_name
    config = run.write("inetd.conf", "".join("127.0.0.1:%d stream tcp %s %s %s\n" % (port, wait, me, what) for port, wait, what in (
        (cat, "nowait", "/bin/cat cat"),
        (script, "nowait", "%s script" % run.write("script", SCRIPT, 0o755)),
        (waits, "wait", "%s python3 %s" % (PYTHON, run.write("waits.py", WAITS))))))
    child = run.serve(ports[-1], "inetd", "-i", config)
    lines = "".join("line %d\n" % n for n in range(300))
    for n in range(6):
        for port in cat, waits:
            got = run.call("socat", "-t", "60", "-", "TCP:127.0.0.1:%d" % port, input=DATA[:(n + 1) * 500_000], text=False)
            run.same(digest(got), digest(DATA[:(n + 1) * 500_000]), "octets")
        got = run.call("socat", "-t", "60", "-", "TCP:127.0.0.1:%d" % script, input=lines)
        run.same(got, "".join("<%s>\n" % line for line in lines.splitlines()), "lines")
    run.stop(child, status=None)
    return "21 MB and 1800 lines right"
