"""systemd-socket-activate: the program gets the connection, or the listening socket, from the one that started it."""

import sys

import shim
from matrix import blob, digest, entry

NEEDS = ["systemd-socket-activate", "socat"]
VERSION = ["systemctl", "--version"]
DATA = blob(10_000_000, 11)


def talk(run, port, data):
    return run.call("socat", "-t", "30", "-", "TCP:127.0.0.1:%d" % port, input=data, text=False)


def check(run, port, child, count=3):
    for n in range(count):
        run.same(digest(talk(run, port, DATA)), digest(DATA), "10 MB, connection %d" % n)
    run.stop(child, status=None)
    return "checksums of %d MB equal" % (count * len(DATA) // 1_000_000)


@entry("systemd-socket-activate", "--accept --inetd cat: the connection as standard input and output", needs=NEEDS,
       version=VERSION, at_least=3)
def activate_inetd(run):
    port = shim.free_port()
    return check(run, port, run.serve(port, "systemd-socket-activate", "-l", "127.0.0.1:%d" % port, "-a", "--inetd",
                                      "cat"))


@entry("systemd-socket-activate", "--accept: the connection as descriptor 3 of a Python program", needs=NEEDS,
       version=VERSION, at_least=3)
def activate_accept(run):
    port = shim.free_port()
    script = run.write("one", """
import socket
conn = socket.socket(fileno=3)
conn.getpeername()
while data := conn.recv(100000):
    conn.sendall(data)
conn.shutdown(socket.SHUT_WR)
""")
    return check(run, port, run.serve(port, "systemd-socket-activate", "-l", "127.0.0.1:%d" % port, "-a", "-E", "PATH",
                                      sys.executable, script))


@entry("systemd-socket-activate", "the listening socket as descriptor 3 of a Python program", needs=NEEDS,
       version=VERSION, at_least=2, stays_plain={"withdrawn": 2})  # the first client is there before the program is
def activate_listener(run):
    port = shim.free_port()
    script = run.write("all", """
import os, socket
assert os.environ["LISTEN_FDS"] == "1" and os.environ["LISTEN_PID"] == str(os.getpid())
listener = socket.socket(fileno=3)
while True:
    conn, peer = listener.accept()
    while data := conn.recv(100000):
        conn.sendall(data)
    conn.close()
""")
    return check(run, port, run.serve(port, "systemd-socket-activate", "-l", "127.0.0.1:%d" % port, sys.executable,
                                      script))
