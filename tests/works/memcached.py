"""memcached with libmemcached's load generator, which verifies what it gets, and a client for large values."""

import re
import sys

import shim
from matrix import entry

# Sets and gets values of all sizes up to 900 kB, many at a time, by the text protocol.
CLIENT = r"""
import hashlib, random, socket, sys
sock = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
stream = sock.makefile("rb")
rng = random.Random(12)
values = {b"key%d" % n: rng.randbytes(rng.choice((0, 1, 100, 5000, 70000, 900000))) for n in range(60)}
for key, value in values.items():
    sock.sendall(b"set %s 0 0 %d\r\n%s\r\n" % (key, len(value), value))
    assert stream.readline() == b"STORED\r\n", key
for _ in range(3):
    sock.sendall(b"get " + b" ".join(values) + b"\r\n")
    for _ in values:
        word = stream.readline().split()
        assert word[0] == b"VALUE", word
        assert stream.read(int(word[3]) + 2) == values[word[1]] + b"\r\n", word
    assert stream.readline() == b"END\r\n"
sock.sendall(b"stats\r\n")
while (line := stream.readline()) != b"END\r\n":
    print(line.decode().strip())
"""


@entry("memcached", "4 threads; memcaslap, 32 connections, a tenth verified; values up to 900 kB",
       needs=["memcached", "memcaslap"],
       version=["memcached", "-V"], at_least=33)
def memcached(run):
    port = shim.free_port()
    child = run.serve(port, "memcached", "-l", "127.0.0.1", "-p", str(port), "-U", "0", "-t", "4", "-m", "256", "-u",
                      "nobody")
    count = 1000000 if run.long else 60000
    said = run.call("memcaslap", "-s", "127.0.0.1:%d" % port, "-T", "2", "-c", "32", "-x", str(count), "-v", "0.1")
    found = dict(re.findall(r"^(\w+): (\d+)", said, re.M))
    run.must(int(found.get("cmd_get", 0)) + int(found.get("cmd_set", 0)) >= count, "operations are missing", said)
    run.same([found.get(name) for name in ("get_misses", "verify_misses", "verify_failed")], ["0"] * 3,
             "gets missed, verifications missed, failed")
    stats = run.call(sys.executable, "-c", CLIENT, str(port))
    found = dict(re.findall(r"^STAT (\w+) (\S+)", stats, re.M))
    run.same(found.get("get_misses"), "0", "misses of the server")
    run.stop(child)
    return "%d operations, no miss, none wrong" % count
