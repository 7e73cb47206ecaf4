"""twemproxy between clients and two redis servers, over which it spreads the keys."""

import signal
import sys

import redis
import shim
from matrix import entry

CLIENT = r"""
import random, socket, sys, threading
from concurrent.futures import ThreadPoolExecutor

def client(seed):
    sock = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    stream = sock.makefile("rb")
    rng = random.Random(seed)

    def bulk(*words):
        return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)

    def answer():
        line = stream.readline()
        if line[:1] == b"*":
            return [answer() for _ in range(int(line[1:]))]
        if line[:1] == b"$":
            return stream.read(int(line[1:]) + 2)[:-2]
        return line

    values = {b"%d-%d" % (seed, n): rng.randbytes(rng.choice((0, 1, 100, 5000, 70000))) for n in range(150)}
    writer = threading.Thread(target=sock.sendall, args=(b"".join(bulk(b"SET", *pair) for pair in values.items()),))
    writer.start()  # a pipeline of them
    good = all(answer() == b"+OK\r\n" for _ in values)
    writer.join()
    for key, value in values.items():
        sock.sendall(bulk(b"GET", key))
        good &= answer() == value
    sock.sendall(bulk(b"MGET", *values))
    return good and answer() == list(values.values())

with ThreadPoolExecutor(6) as pool:
    print(sum(pool.map(client, range(6))))
"""

CONFIG = """
front:
  listen: 127.0.0.1:%d
  hash: fnv1a_64
  distribution: ketama
  redis: true
  timeout: 60000
  server_connections: 2
  servers:
   - 127.0.0.1:%d:1
   - 127.0.0.1:%d:1
"""


@entry("twemproxy", "before two redis servers; 6 clients, pipelines, values up to 70 kB, gets of 150 keys at once",
       needs=["nutcracker", "redis-server", "redis-cli"], version=["nutcracker", "-V"], at_least=8)
def twemproxy(run):
    front, *back = [shim.free_port() for _ in range(3)]
    servers = [redis.server(run, port) for port in back]
    child = run.serve(front, "nutcracker", "-c", run.write("nutcracker.yml", CONFIG % (front, *back)), "-s", str(shim.free_port()),
                      "-a", "127.0.0.1")
    run.same(run.call(sys.executable, "-c", CLIENT, str(front)).strip(), "6", "clients that got what they had set")
    sizes = [int(redis.cli(run, port, "dbsize")) for port in back]
    run.must(sum(sizes) == 900 and all(sizes), "keys of the servers", sizes)
    run.stop(child, number=signal.SIGINT, status=None)
    for one in servers:
        run.stop(one)
    return "900 keys right, on both servers"
