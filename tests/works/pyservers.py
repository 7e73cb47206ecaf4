"""The servers in Python's library: a process for each connection, a thread for each, and asyncio."""

import signal
import sys

import shim
from matrix import blob, digest, entry

VERSION = [sys.executable, "--version"]

SERVER = r"""
import hashlib, os, signal, socketserver, sys
kind, port = sys.argv[1], int(sys.argv[2])

class Handler(socketserver.StreamRequestHandler):
    # A line says how many octets follow; they come back, and behind them their digest.
    def handle(self):
        while line := self.rfile.readline():
            left, whole = int(line), hashlib.sha256()
            while left > 0:
                data = self.rfile.read1(min(left, 100000))
                left -= len(data)
                whole.update(data)
                self.wfile.write(data)
            self.wfile.write(whole.digest())

class Server(getattr(socketserver, kind)):
    allow_reuse_address = True
    request_queue_size = 64
    daemon_threads = False
    block_on_close = True

server = Server(("127.0.0.1", port), Handler)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
with server:
    server.serve_forever()
"""

ASYNC_SERVER = r"""
import asyncio, hashlib, signal, sys

async def handle(reader, writer):
    while line := await reader.readline():
        left, whole = int(line), hashlib.sha256()
        while left > 0:
            data = await reader.read(min(left, 100000))
            left -= len(data)
            whole.update(data)
            writer.write(data)
            await writer.drain()
        writer.write(whole.digest())
    writer.close()

async def main():
    server = await asyncio.start_server(handle, "127.0.0.1", int(sys.argv[2]), backlog=64)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, server.close)
    try:
        await server.serve_forever()
    except asyncio.CancelledError:
        pass

asyncio.run(main())
"""

# Threads, with a connection each, that write in one thread and read in the other.
CLIENT = r"""
import hashlib, random, socket, sys, threading
from concurrent.futures import ThreadPoolExecutor
port, clients = int(sys.argv[1]), int(sys.argv[2])

def client(number):
    rng = random.Random(number)
    parts = [rng.randbytes(rng.choice((0, 1, 1000, 65536, 1000000))) for _ in range(6)]
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.settimeout(60)
        def write():
            for part in parts:
                sock.sendall(b"%d\n" % len(part))
                sock.sendall(part)
            sock.shutdown(socket.SHUT_WR)
        writer = threading.Thread(target=write)
        writer.start()
        got = b"".join(iter(lambda: sock.recv(200000), b""))
        writer.join()
    return got == b"".join(part + hashlib.sha256(part).digest() for part in parts)

with ThreadPoolExecutor(clients) as pool:
    print(sum(pool.map(client, range(clients))))
"""


def echo(run, source, kind):
    port = shim.free_port()
    child = run.serve(port, sys.executable, "-c", source, kind, str(port))
    count = 200 if run.long else 30
    run.same(run.call(sys.executable, "-c", CLIENT, str(port), str(count)), "%d\n" % count,
             "clients that got what they sent")
    run.stop(child)
    return "%d clients, octets and digests right" % count


@entry("Python", "socketserver.ForkingTCPServer, 30 clients at once", needs=[], version=VERSION, at_least=30)
def python_forking(run):
    return echo(run, SERVER, "ForkingTCPServer")


@entry("Python", "socketserver.ThreadingTCPServer, 30 clients at once", needs=[], version=VERSION, at_least=30)
def python_threading(run):
    return echo(run, SERVER, "ThreadingTCPServer")


@entry("Python", "asyncio.start_server, 30 clients at once", needs=[], version=VERSION, at_least=30)
def python_asyncio(run):
    return echo(run, ASYNC_SERVER, "asyncio")


@entry("Python", "http.server; curl, urllib", needs=[], version=VERSION, at_least=5)
def python_http(run):
    data = blob(50_000_000, 16)
    run.write("file", data)
    port = shim.free_port()
    child = run.serve(port, sys.executable, "-m", "http.server", "--bind", "127.0.0.1", "-d", run.folder, str(port))
    url = "http://127.0.0.1:%d/file" % port
    for _ in range(3):
        run.same(digest(run.curl(url)), digest(data), "octets by curl")
    fetch = "import hashlib, sys, urllib.request as u; print(hashlib.sha256(u.urlopen(sys.argv[1]).read()).hexdigest())"
    for _ in range(2):
        run.same(run.call(sys.executable, "-c", fetch, url).strip(), digest(data), "octets by urllib")
    run.stop(child, signal.SIGINT)
    return "checksums of 250 MB equal"
