"""
tcpdump of one port. It has begun when it has seen a packet, sent for that purpose; and it says itself whether it lost any. A
capture that lost some is no verdict: what was captured is done again.
"""

import os
import re
import signal
import subprocess
import sys

import shim
import tap

ATTEMPTS = 5
PROBE = "import socket, sys; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'', (sys.argv[1], int(sys.argv[2])))"


class Capture:
    """On a device, of what is from or to a port; probe: an address that packets go to by that device."""

    def __init__(self, name, device, port, probe, *options, prefix=()):
        self.file = shim.path("%s-%d.pcap" % (name, port))
        # (The ring holds as many packets as fit with the longest that is kept.)
        self.child = shim.start(*prefix, "tcpdump", "-i", device, "-U", "--immediate-mode", "-B", "32768", *options,
                                "-w", self.file, "port", str(port), stderr=subprocess.PIPE, text=True)
        text = ""
        while "listening on" not in text:
            text = self.child.stderr.readline()
            if not text:
                tap.skip_all("tcpdump cannot capture: %r" % self.child.poll())

        def seen():
            shim.run(*prefix, sys.executable, "-c", PROBE, probe, str(port))
            return os.path.getsize(self.file) > 24  # the file's own header
        if not shim.until(seen, 60, 0.1):
            raise RuntimeError("tcpdump sees no packet on " + device)

    def rows(self, show, *fields):
        """The columns of the packets that tshark's filter shows. (The stream's segments are left as they are.)"""
        result = shim.run("tshark", "-r", self.file, "-o", "tcp.desegment_tcp_streams:FALSE", "-Y", show, "-T", "fields",
                          *(word for field in fields for word in ("-e", field)), text=True, timeout=300)
        return [line.split("\t") for line in result.stdout.splitlines()]

    def lost(self, ends):
        """Stops once the ends of so many directions are there. Why it is of no use, or ""."""
        shim.until(lambda: len({tuple(row) for row in self.rows("tcp.flags.fin==1", "tcp.srcport")}) >= ends, 60, 0.2)
        self.child.send_signal(signal.SIGINT)
        report = self.child.communicate()[1]
        if not re.search(r"^0 packets dropped by kernel", report, re.MULTILINE):
            return " ".join(report.split())
        if len({tuple(row) for row in self.rows("tcp.flags.syn==1", "tcp.srcport")}) < ends:
            return "the handshake was not seen"
        return ""


def whole(name, converse):
    """
    converse() returns captures with the number of directions in each, and something. Done again until no capture lost
    anything. Returns the captures and the something, or None when none was of use: that is told as a skipped point.
    """
    why = ""
    for attempt in range(ATTEMPTS):
        captures, something = converse()
        why = "; ".join(filter(None, [each.lost(ends) for each, ends in captures]))
        if not why:
            return [each for each, _ in captures], something
        print("# RETRY %s, attempt %d: %s" % (name, attempt + 1, why), flush=True)
    tap.skip(name + ": the capture", "tcpdump lost packets %d times: %s" % (ATTEMPTS, why))
    return None
