"""Servers that are stopped or busy while their clients come, and servers that take just one connection."""

import os
import signal
import time

import nginx
import postgres
import redis
import shim
from matrix import CLIENTS, HANG, PYTHON, blob, digest, entry, file_digest

DATA = blob(1_000_000, 12)


def begin(run, count, *command):
    """So many clients in the background."""
    return [run.start(*command, side=CLIENTS) for _ in range(count)]


def await_end(run, clients, what):
    run.same([shim.finish(child, HANG) for child in clients], [0] * len(clients), what)


def made(port):
    """How many connections to the port are there, accepted or not."""
    with open("/proc/net/tcp", encoding="ascii") as f:
        rows = [line.split() for line in list(f)[1:]]
    return sum(row[1].endswith(":%04X" % port) and row[3] == "01" for row in rows)


def await_made(run, port, count):
    run.must(shim.until(lambda: made(port) >= count, HANG), "%d connections to port %d are wanted" % (count, port), made(port))


@entry("redis", "redis-cli 20 times while the server sleeps, and the server afterwards", needs=["redis-server", "redis-cli"],
       version=redis.VERSION, at_least=22)
def redis_sleeps(run):
    port = shim.free_port()
    child = redis.server(run, port)
    clients = begin(run, 1, "redis-cli", "-h", "127.0.0.1", "-p", str(port), "debug", "sleep", "3")
    await_made(run, port, 1)
    clients += [run.start("redis-cli", "-h", "127.0.0.1", "-p", str(port), "incrby", "n", "7", side=CLIENTS) for _ in range(20)]
    await_end(run, clients, "how redis-cli ends")
    run.same(redis.cli(run, port, "get", "n"), "140", "what they have added")
    run.stop(child)
    return "20 of 20 answered after the sleep"


def workers_of(child):
    with open("/proc/%d/task/%d/children" % (child.pid, child.pid), encoding="ascii") as f:
        return [int(pid) for pid in f.read().split()]


def tell(pids, number):
    for pid in pids:
        os.kill(pid, number)


@entry("nginx", "as a proxy to an upstream whose workers are stopped and go on; curl 10 times", needs=["nginx", "curl"],
       version=["nginx", "-v"], at_least=20)
def nginx_upstream_stopped(run):
    front = shim.free_port()
    back, first, upstream = nginx.files(run)
    folder = nginx.configure(run, "front", "server { listen 127.0.0.1:%d; location / { proxy_pass http://127.0.0.1:%d; } }" % (front, back))
    second = nginx.serve(run, front, folder)
    run.must(shim.until(lambda: len(workers_of(first)) == 2), "the upstream's workers")
    stopped = workers_of(first)
    tell(stopped, signal.SIGSTOP)
    clients = [run.start("curl", "-sS", "--fail", "--noproxy", "*", "-o", run.path("got-%d" % n), "http://127.0.0.1:%d/small" % front,
                         side=CLIENTS) for n in range(10)]
    await_made(run, back, 10)
    time.sleep(2)  # what is tried: how long they are stopped
    tell(stopped, signal.SIGCONT)
    await_end(run, clients, "how curl ends")
    for n in range(10):
        with open(run.path("got-%d" % n), "rb") as f:
            run.same(digest(f.read()), digest(nginx.SMALL), "octets of /small")
    for child in second, first:
        run.stop(child, number=3)
    nginx.check_log(run, upstream, 10, "nginx")
    return "10 of 10 right after 2 s"


CHECKED = """
global
    stats socket %s
defaults
    mode http
    timeout connect 300ms
    timeout client 60s
    timeout server 60s
    timeout check 300ms
listen web
    bind 127.0.0.1:%d
    option httpchk HEAD /small
    server one 127.0.0.1:%d check inter 200ms fall 2 rise 2
listen sql
    mode tcp
    bind 127.0.0.1:%d
    option pgsql-check user tester
    server one 127.0.0.1:%d check inter 200ms fall 2 rise 2
"""


def status(run, proxy):
    """What haproxy says of the proxy's server."""
    said = run.call("socat", "-", "UNIX-CONNECT:" + run.path("haproxy"), input="show stat\n", plain=True)
    return [row[17].split()[0] for row in (line.split(",") for line in said.splitlines()) if row[:2] == [proxy, "one"]]


@entry("haproxy", "health checks (HTTP, PostgreSQL) of servers that are stopped and go on; curl, psql",
       needs=["haproxy", "nginx", "curl", "socat", *postgres.NEEDS], version=["haproxy", "-v"], at_least=3,
       stays_plain={"delayed-ack": 1000, "peer-plain": 1000, "closed": 1000})  # its checks clear TCP_QUICKACK, and are given up
def haproxy_checks(run):
    web, sql = shim.free_port(), shim.free_port()
    back, first, _ = nginx.files(run)
    base = postgres.Server(run)
    config = run.write("haproxy.cfg", CHECKED % (run.path("haproxy"), web, back, sql, base.port))
    third = run.serve(web, "haproxy", "-db", "-f", config)

    def both_are(want):
        run.must(shim.until(lambda: status(run, "web") == [want] and status(run, "sql") == [want], HANG), "both are " + want,
                 status(run, "web"), status(run, "sql"))

    both_are("UP")
    stopped = [*workers_of(first), base.child.pid]
    tell(stopped, signal.SIGSTOP)
    both_are("DOWN")
    tell(stopped, signal.SIGCONT)
    both_are("UP")
    run.same(digest(run.curl("http://127.0.0.1:%d/small" % web)), digest(nginx.SMALL), "octets of /small")
    run.same(base.sql("select 6 * 7", "-p", str(sql)), "42", "what PostgreSQL answers")
    run.stop(third, number=10, status=None)
    run.stop(first, number=3)
    base.stop()
    return "up, down while stopped, up again, both"


SINGLE = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = sys.argv[2]
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(b"x" * 1000)
        self.close_connection = self.close_connection or len(sys.argv) > 3
    def log_message(self, *a):
        pass
class Server(http.server.HTTPServer):
    request_queue_size = 128
Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


@entry("Python's http.server", "one thread, one connection after the other; ab with 20 and wrk with 8 connections",
       needs=[PYTHON, "ab", "wrk"], version=[PYTHON, "-V"], at_least=400, stays_plain={"closed": 20})
def single_threaded(run):
    port = shim.free_port()
    child = run.serve(port, PYTHON, run.write("server.py", SINGLE), str(port), "HTTP/1.0")
    said = run.call("ab", "-q", "-n", "500", "-c", "20", "http://127.0.0.1:%d/" % port)
    run.must("Complete requests:      500\n" in said and "Failed requests:        0\n" in said, "ab saw failures", said)
    said = run.call("wrk", "-t", "1", "-c", "8", "-d", "1s", "--timeout", "20s", "http://127.0.0.1:%d/" % port)
    run.must("requests in" in said and "Non-2xx" not in said, "wrk was not served", said)
    run.stop(child, status=None)
    return "500 of 500 by ab; wrk without errors"


LATE_SERVER = """
import socket, sys, time
l = socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=512)
time.sleep(2)
conns = [l.accept()[0] for _ in range(201)]
for c in conns[::-1]:
    c.settimeout(60)
    c.sendall(c.recv(100)[::-1])
for c in conns:
    c.close()
"""
LATE_CLIENT = """
import asyncio, sys
async def one(n):
    reader, writer = await asyncio.open_connection("127.0.0.1", int(sys.argv[1]))
    writer.write(b"%06d" % n)
    answer = await reader.read(100)
    writer.close()
    await writer.wait_closed()
    return answer == (b"%06d" % n)[::-1]
async def all_of_them():
    print(sum(await asyncio.gather(*[one(n) for n in range(int(sys.argv[2]))])))
asyncio.run(all_of_them())
"""


@entry("Python", "200 connections of asyncio at once, and curl, to a server that accepts after 2 s", needs=[PYTHON, "curl"],
       version=[PYTHON, "-V"], at_least=201)
def asyncio_late(run):
    port = shim.free_port()
    child = run.serve(port, PYTHON, run.write("server.py", LATE_SERVER), str(port))
    clients = begin(run, 1, "curl", "-sS", "--http0.9", "--noproxy", "*", "-o", run.path("got"), "http://127.0.0.1:%d/" % port)
    said = run.call(PYTHON, run.write("client.py", LATE_CLIENT), str(port), "200")
    run.same(said.strip(), "200", "right answers")
    await_end(run, clients, "how curl ends")
    with open(run.path("got"), "rb") as f:
        run.must(b"1.0.0.721 :tsoH" in f.read(), "curl's request backwards")
    run.same(shim.finish(child, HANG), 0, "how the server ends")
    return "200 of 200 right, and curl's"


ONE = """
import socket, sys
l = socket.create_server(("127.0.0.1", int(sys.argv[1])))
c = l.accept()[0]
l.close()
while data := c.recv(65536):
    c.sendall(data)
c.close()
"""


def one_shot(run, server):
    """A server that takes one connection and ends: the client gets its octets, the next one is refused."""
    port = shim.free_port()
    child = run.serve(port, *[word.replace("%d", str(port)) for word in server])
    talk = ["socat", "-t", "30", "-", "TCP:127.0.0.1:%d" % port]
    got = run.call(*talk, input=DATA, text=False)
    run.same(digest(got), digest(DATA), "octets")
    run.same(shim.finish(child, HANG), 0, "how the server ends")
    run.call(*talk, input=b"", text=False, status=1)


@entry("nc", "-l for one connection, with a file each way", needs=["nc", "socat", "sh"], version=["nc", "-h"])
def nc_one(run):
    # (Through a pipe from its output to its input nc loses octets, by plain TCP as well.)
    run.write("data", DATA)
    one_shot(run, ["sh", "-c", "cd %s; nc -l -N 127.0.0.1 %%d <data >got" % run.folder])
    run.same(file_digest(run.path("got")), digest(DATA), "octets at the server")
    return "1 MB each way; the next one is refused"


@entry("socat", "TCP-LISTEN without fork: one connection", needs=["socat"], version=["socat", "-V"])
def socat_one(run):
    one_shot(run, ["socat", "-t", "30", "TCP-LISTEN:%d,bind=127.0.0.1,reuseaddr", "EXEC:cat"])
    return "1 MB back; the next one is refused"


@entry("Python", "a server that closes its listener behind the first connection", needs=[PYTHON, "socat"], version=[PYTHON, "-V"])
def python_one(run):
    one_shot(run, [PYTHON, run.write("one.py", ONE), "%d"])
    return "1 MB back; the next one is refused"
