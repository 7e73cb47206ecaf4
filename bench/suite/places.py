"""
Where the two ends run: loopback, or two network namespaces with a cable between them; on a processor each, or wherever
the kernel puts them.

      namespace left (client)               namespace right (server)
   +------------------------+   veth,   +------------------------+
   |  sw0 10.77.0.1         +-----------+         10.77.0.2 sw0  |
   +------------------------+  MTU n    +------------------------+

The congestion control is the same at both ends: sockwarp-bench asks for it, for other programs it is the namespaces'
default. Loopback has the machine's default, which is not changed.
"""

import os
import random
import shutil
import socket
import subprocess
import time

from suite.failure import Failure

CLIENT, SERVER = "client", "server"
CPU = {CLIENT: 0, SERVER: 1}
LINKS = {"lo": "loopback", "veth1500": "veth, MTU 1500", "veth9000": "veth, MTU 9000"}
PINNED = "pinned"


def read(path):
    with open(path, encoding="ascii") as f:
        return f.read().strip()


def default_congestion():
    return read("/proc/sys/net/ipv4/tcp_congestion_control")


def available_congestion():
    return read("/proc/sys/net/ipv4/tcp_available_congestion_control").split()


class Place:
    """Names are like "lo", "lo-pinned", "veth1500-pinned"."""

    def __init__(self, name, congestion):
        link, _, pin = name.partition("-")
        if link not in LINKS or pin not in ("", PINNED):
            raise Failure("no place '%s'; there are %s" % (name, ", ".join(NAMES)))
        self.name, self.link, self.pinned, self.congestion = name, link, bool(pin), congestion
        self.title = LINKS[link] + (", pinned" if pin else "")
        self.spaces = None
        self.address = "127.0.0.1"

    def why_not(self):
        """Why nothing can be run here, or None."""
        if self.pinned:
            if len(os.sched_getaffinity(0)) < 2 or not set(CPU.values()) <= os.sched_getaffinity(0):
                return "pinned runs need processors 0 and 1"
            if not shutil.which("taskset"):
                return "taskset is missing (Debian: util-linux)"
        if self.link == "lo":
            return None
        if os.geteuid() != 0:
            return "network namespaces need root"
        for program in "ip", "unshare", "nsenter":
            if not shutil.which(program):
                return "%s is missing (Debian: %s)" % (program, "iproute2" if program == "ip" else "util-linux")
        tried = subprocess.run(["unshare", "-n", "true"], capture_output=True, text=True, check=False)
        return "no network namespaces: " + tried.stderr.strip() if tried.returncode else None

    @property
    def hosts(self):
        return 1 if self.link == "lo" else 2

    def why_not_foreign(self):
        """Why programs that cannot choose their congestion control cannot be run here, or None."""
        if self.link == "lo" and self.congestion != default_congestion():
            return "on loopback other programs have the machine's congestion control, %s, not %s" % (
                default_congestion(), self.congestion)
        return None

    def open(self, cables):
        """Makes it usable. cables: where the namespaces are kept, {link: (left, right)}."""
        if self.link == "lo":
            return
        if self.link not in cables:
            cables[self.link] = cable(int(self.link.removeprefix("veth")))
        self.spaces = dict(zip((CLIENT, SERVER), cables[self.link]))
        for space in self.spaces.values():
            space.set("net.ipv4.tcp_congestion_control", self.congestion)
        self.address = self.spaces[SERVER].address

    def prefix(self, end):
        """What comes before a command of this end."""
        words = self.spaces[end].prefix if self.spaces else []
        return words + (["taskset", "-c", str(CPU[end])] if self.pinned else [])

    def free_port(self):
        """A port that nothing uses, below those that the kernel gives out."""
        for _ in range(1000):
            port = random.randrange(20000, 32000)
            if self.spaces:
                return port
            with socket.socket() as s:
                try:
                    s.bind(("", port))
                except OSError:
                    continue
                return port
        raise Failure("no free port")


NAMES = [link + pin for link in LINKS for pin in ("-" + PINNED, "")]


class Space:
    """A network namespace, which goes with the child that holds it."""

    def __init__(self):
        self.child = subprocess.Popen(["unshare", "-n", "cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        ours, end = os.readlink("/proc/self/ns/net"), time.monotonic() + 10
        while os.readlink("/proc/%d/ns/net" % self.child.pid) == ours:
            if self.child.poll() is not None or time.monotonic() > end:
                raise Failure("unshare made no network namespace")
            time.sleep(0.001)
        self.prefix = ["nsenter", "-t", str(self.child.pid), "-n", "--"]
        self.address = None
        self.run("ip", "link", "set", "lo", "up")

    def run(self, *command):
        done = subprocess.run(self.prefix + list(command), capture_output=True, text=True, check=False)
        if done.returncode:
            raise Failure("%s: %s" % (" ".join(command), done.stderr.strip()))

    def set(self, name, value):
        self.run("sh", "-c", 'echo "$1" >"/proc/sys/$0"', name.replace(".", "/"), value)

    def leave(self):
        self.child.stdin.close()
        self.child.wait()


def cable(mtu):
    left, right = Space(), Space()
    left.run("ip", "link", "add", "sw0", "mtu", str(mtu), "type", "veth", "peer", "name", "sw0", "mtu", str(mtu), "netns",
             str(right.child.pid))
    for space, address in (left, "10.77.0.1"), (right, "10.77.0.2"):
        space.address = address
        space.run("ip", "addr", "add", address + "/24", "dev", "sw0")
        space.run("ip", "link", "set", "sw0", "up")
    return left, right
