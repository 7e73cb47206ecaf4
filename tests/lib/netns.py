"""Network namespaces that vanish with the test: each is held by a child that waits for the end of its input."""

import ctypes
import os
import subprocess

import pinned
import shim
import tap


LIBC = ctypes.CDLL(None, use_errno=True)

# What a test may want beyond a namespace, tried in one of its own. (A kernel may lack it, or be no longer the one whose modules are there.)
TRIALS = {
    "veth": "ip link add sw0 type veth peer name sw1",
    "nft": "echo 'table inet t { chain c { type filter hook input priority 0; tcp dport 1 reject with icmp host-unreachable; }; }' | "
           "nft -f -",
    "random": "echo 'table inet t { chain c { type filter hook input priority 0; numgen random mod 100 < 1 drop; }; }' | nft -f -",
}


def need(*trials):
    """Skips the whole test where namespaces cannot be made, or not with all of this in them."""
    reason = why_not(*trials)
    if reason:
        tap.skip_all(reason)


def why_not(*trials):
    if os.geteuid() != 0:
        return "network namespaces need root"
    result = shim.run("unshare", "-n", "true", text=True)
    if result.returncode:
        return "no network namespaces: " + result.stderr.strip()
    for trial in trials:
        result = shim.run("unshare", "-n", "sh", "-c", TRIALS[trial], text=True)
        if result.returncode:
            return "no %s here: %s" % (trial, " ".join(result.stderr.split()))
    return None


class Space:
    """One namespace, with lo up, and TCP's settings as in our own."""

    def __init__(self):
        self.child = shim.start("unshare", "-n", "cat", stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        ours = os.readlink("/proc/self/ns/net")
        if not shim.until(lambda: os.readlink("/proc/%d/ns/net" % self.child.pid) != ours):
            raise RuntimeError("unshare did not make a namespace")
        self.prefix = ["nsenter", "-t", str(self.child.pid), "-n", "--"]
        self.run("ip", "link", "set", "lo", "up")
        for name in pinned.PINNED:  # a namespace inside the test's begins with the machine's
            with open("/proc/sys/net/ipv4/" + name, encoding="ascii") as f:
                self.sysctl("net.ipv4." + name, f.read().strip())

    def run(self, *command, **more):
        more.setdefault("text", True)
        result = shim.run(*self.prefix, *command, **more)
        if result.returncode:
            raise RuntimeError("%s: %s" % (" ".join(command), result.stderr))
        return result.stdout

    def within(self, call):
        """What call gives in this namespace."""
        with open("/proc/self/ns/net", "rb") as home, open("/proc/%d/ns/net" % self.child.pid, "rb") as there:
            if LIBC.setns(there.fileno(), 0):
                raise OSError(ctypes.get_errno(), "setns")
            try:
                return call()
            finally:
                LIBC.setns(home.fileno(), 0)

    def sysctl(self, name, value):
        self.run("sh", "-c", "echo %s >/proc/sys/%s" % (value, name.replace(".", "/")))

    def nft(self, rules):
        self.run("nft", "-f", "-", input=rules)


def cable(left, right, mtu=1500, net="10.77.0.%d", net6="fd77::%d"):
    """A veth pair between two namespaces; the addresses end in 1 and 2."""
    left.run("ip", "link", "add", "sw0", "mtu", str(mtu), "type", "veth", "peer", "name", "sw0", "mtu", str(mtu),
             "netns", str(right.child.pid))
    for number, space in (1, left), (2, right):
        space.run("ip", "addr", "add", net % number + "/24", "dev", "sw0")
        space.run("ip", "-6", "addr", "add", net6 % number + "/64", "dev", "sw0", "nodad")
        space.run("ip", "link", "set", "sw0", "up")
    return net % 1, net % 2
