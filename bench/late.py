#!/usr/bin/env python3
"""
How long connect() takes, and the answer to the first request, to servers on another host that accept after a pause, plain and under
sockwarp; then many connections at once, and more than the backlog holds. As root: the two hosts are network namespaces. The delay is
this program's, between two tun devices (a kernel without netem will do). Prints a table.
"""

import argparse
import fcntl
import heapq
import os
import resource
import select
import struct
import sys
import threading
import time

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "tests", "lib"))
parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--build", default=".", help="build folder with sockwarp (default: here)")
os.environ.setdefault("SW_BUILDDIR", os.path.realpath(parser.parse_args().build))

import netns
import shim

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 1, 0x1000
PAUSES_S = 0, 0.3, 2, 10
FAR = "10.77.0.2"


def tun():
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH22x", b"sw0", IFF_TUN | IFF_NO_PI))
    return fd


def slow_cable(left, right, one_way_s):
    """Two tun devices, and a thread that carries packets from one to the other, each so much later."""
    ends = [space.within(tun) for space in (left, right)]
    for number, space in (1, left), (2, right):
        space.run("ip", "addr", "add", "10.77.0.%d/24" % number, "dev", "sw0")
        space.run("ip", "link", "set", "sw0", "up")

    def carry():
        queue, count = [], 0
        while True:
            wait = max(0, queue[0][0] - time.monotonic()) if queue else None
            for fd in select.select(ends, [], [], wait)[0]:
                try:
                    packet = os.read(fd, 65536)
                except BlockingIOError:
                    continue
                count += 1
                heapq.heappush(queue, (time.monotonic() + one_way_s, count, ends[1 - ends.index(fd)], packet))
            while queue and queue[0][0] <= time.monotonic():
                try:
                    os.write(queue[0][2], queue[0][3])
                except OSError:
                    pass  # lost
                heapq.heappop(queue)

    threading.Thread(target=carry, daemon=True).start()


SERVER = """
import time
l = socket.create_server((%r, 0), backlog=2048)
l.getsockname()[1]
"""
SERVE = """
select.select([l], [], [], 60)
time.sleep(%r)
a = l.accept()[0]
a.settimeout(60)
r = a.recv(100)
a.sendall(b'answer')
r += recv_end(a)[0]
a.close()
r
"""
CLIENT = """
import time
def timed():
    c = socket.socket()
    c.setblocking(%r)
    start = time.monotonic()
    c.connect_ex((%r, %d))
    select.select([], [c], [], 60)
    error = c.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    done = time.monotonic()
    c.setblocking(True)
    c.settimeout(60)
    c.sendall(b'question')
    answer = c.recv(100)
    end = time.monotonic()
    c.sendall(b' and more')
    c.close()
    return error, answer, (done - start) * 1000, (end - done) * 1000
"""


def cell(left, right, shimmed, blocking, pause_s, rows):
    server = shim.Agent(shim=shimmed, name="server", prefix=right.prefix)
    port = server.do(SERVER % FAR)
    client = shim.Agent(shim=shimmed, name="client", prefix=left.prefix)
    client.do(CLIENT % (blocking, FAR, port))
    server.begin(SERVE % pause_s)
    error, answer, connect_ms, answer_ms = client.do("timed()")
    served = server.end()
    good = error == 0 and answer == b"answer" and served == b"question and more"
    how = ",".join(sorted({line["reason"] for line in client.stats(1)})) if shimmed else "plain"
    rows.append((pause_s, blocking, shimmed, connect_ms, answer_ms - pause_s * 1000, how, good))
    client.quit()
    server.quit()


def many(left, right, count):
    """So many in the backlog of a server that accepts after 5 s: reasons and how often."""
    server = shim.Agent(name="server", prefix=right.prefix)
    port = server.do(SERVER % FAR)
    client = shim.Agent(name="client", prefix=left.prefix)
    start = time.monotonic()
    client.do("made = [socket.create_connection((%r, %d), 60) for _ in range(%d)]\nfor c in made:\n    c.sendall(b'question')" %
              (FAR, port, count))
    took = time.monotonic() - start
    time.sleep(5)
    server.do("many = [l.accept()[0] for _ in range(%d)]\nfor a in many:\n    a.recv(100)\n    a.sendall(b'answer')" % count)
    good = client.do("[c.settimeout(60) for c in made]; all(c.recv(6) == b'answer' for c in made)")
    client.do("[c.close() for c in made]")
    server.do("[a.close() for a in many]")
    reasons = [line["reason"] for line in client.stats(count)]
    print("%d in the backlog for 5 s: connected in %.1f s, all answered: %s, %s" %
          (count, took, good, ", ".join("%d %s" % (reasons.count(r), r) for r in sorted(set(reasons)))))
    client.quit()
    server.quit()


CROWD = """
import collections, threading
counts = collections.Counter()
def one():
    try:
        with socket.create_connection((%r, %d), 60) as c:
            c.sendall(b'question')
            counts[c.recv(6).decode()] += 1
    except OSError as e:
        counts[errno.errorcode.get(e.errno, str(e))] += 1
threads = [threading.Thread(target=one) for _ in range(100)]
for t in threads:
    t.start()
for t in threads:
    t.join()
dict(counts)
"""


def full(left, right, shimmed):
    """100 clients at once, each sends once, of a server with a backlog of 16 that accepts after 1.2 s: what they get."""
    server = shim.Agent(shim=shimmed, name="server", prefix=right.prefix)
    port = server.do("import threading, time\nl = socket.create_server((%r, 0), backlog=16); l.getsockname()[1]" % FAR)
    client = shim.Agent(shim=shimmed, name="client", prefix=left.prefix)
    client.begin(CROWD % (FAR, port))
    server.do("""
def serve(a):
    try:
        a.recv(100)
        a.sendall(b'answer')
        a.recv(1)
    except OSError:
        pass
    a.close()
def accept():
    while True:
        threading.Thread(target=serve, args=(l.accept()[0],), daemon=True).start()
time.sleep(1.2)
threading.Thread(target=accept, daemon=True).start()
""")
    print("100 clients of a backlog of 16, %s: %s" % ("sockwarp" if shimmed else "plain", client.end(120)))
    client.quit()
    server.quit()


def main():
    reason = netns.why_not("veth")
    if reason:
        sys.exit("late.py: " + reason)
    for name, one_way_s in ("a cable", 0), ("50 ms", 0.025):
        left, right = netns.Space(), netns.Space()
        if one_way_s:
            slow_cable(left, right, one_way_s)
        else:
            netns.cable(left, right)
        rows = []
        threads = [threading.Thread(target=cell, args=(left, right, shimmed, blocking, pause_s, rows))
                   for pause_s in PAUSES_S for blocking in (True, False) for shimmed in (False, True)]
        for thread in threads:
            thread.start()
            if not one_way_s:
                time.sleep(0.5)  # (little at a time: what is measured is short)
        for thread in threads:
            thread.join()
        print("%s; ms: connect(), and the answer without the pause" % name)
        for pause_s, blocking, shimmed, connect_ms, answer_ms, how, good in sorted(rows, key=lambda row: row[:3]):
            print("  accepts after %4g s  %-12s  %-8s  %8.2f  %8.2f  %s%s" %
                  (pause_s, "blocking" if blocking else "not blocking", "sockwarp" if shimmed else "plain", connect_ms, answer_ms, how,
                   "" if good else "  WRONG"))
        many(left, right, 1000 if not one_way_s else 100)
        for shimmed in False, True:
            full(left, right, shimmed)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    main()
    sys.stdout.flush()
    shim._leave()
    os._exit(0)  # (without the complaint that this is no test)
