"""Queues of jobs: beanstalkd, and gearmand with its workers, which run programs."""

import os
import sys

import shim
from matrix import blob, digest, entry

JOBS = 400

# One puts, three others reserve at once, before there is anything.
BEANSTALK_CLIENT = r"""
import hashlib, random, socket, sys, threading
port, count = int(sys.argv[1]), int(sys.argv[2])
rng = random.Random(31)
jobs = [rng.randbytes(rng.choice((0, 1, 100, 5000, 65000))) for _ in range(count)]

class Client:
    def __init__(self):
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.stream = self.sock.makefile("rb")

    def ask(self, *parts):
        self.sock.sendall(b"".join(parts))
        return self.stream.readline().split()

got = {}
def work():
    me = Client()
    assert me.ask(b"watch jobs\r\n")[0] == b"WATCHING"
    while True:
        word = me.ask(b"reserve\r\n")
        assert word[0] == b"RESERVED", word
        body = me.stream.read(int(word[2]) + 2)[:-2]
        assert me.ask(b"delete %s\r\n" % word[1]) == [b"DELETED"]
        if body == b"end":
            return
        got[int(word[1])] = body

workers = [threading.Thread(target=work) for _ in range(3)]
for thread in workers:
    thread.start()
putter = Client()
assert putter.ask(b"use jobs\r\n") == [b"USING", b"jobs"]
put = {}
for job in jobs:
    put[int(putter.ask(b"put 5 0 600 %d\r\n" % len(job), job, b"\r\n")[1])] = job
for _ in workers:
    putter.ask(b"put 9 0 600 3\r\nend\r\n")
for thread in workers:
    thread.join()
print(got == put, len(got))
"""


@entry("beanstalkd", "three clients that wait for jobs of all sizes, one that puts them", needs=["beanstalkd"],
       version=["beanstalkd", "-v"], at_least=4)
def beanstalkd(run):
    port = shim.free_port()
    child = run.serve(port, "beanstalkd", "-l", "127.0.0.1", "-p", str(port))
    said = run.call(sys.executable, "-c", BEANSTALK_CLIENT, str(port), str(JOBS))
    run.same(said.split(), ["True", str(JOBS)], "the jobs")
    run.stop(child, status=None)
    return "%d jobs right, each once" % JOBS


@entry("Gearman", "gearmand, two workers that run sha256sum and cat, jobs of up to 3 MB, and in the background",
       needs=["gearmand", "gearman"], version=["gearmand", "--version"], at_least=7)
def gearman(run):
    port = shim.free_port()
    child = run.serve(port, "gearmand", "-L", "127.0.0.1", "-p", str(port), "-t", "4", "-l", "stderr", "-P", run.path("pid"),
                      *(["-u", "root"] if os.geteuid() == 0 else []))
    where = ["-h", "127.0.0.1", "-p", str(port)]
    workers = [run.start("gearman", *where, "-w", "-c", count, "-f", name, "--", *command)
               for name, count, command in (("sum", "3", ["sha256sum"]), ("back", "2", ["cat"]))]
    for size in 100_000, 3_000_000:
        data = blob(size, 40)
        said = run.call("gearman", *where, "-f", "sum", input=data, text=False).decode()
        run.same(said.split()[0], digest(data), "the worker's sum")
        got = run.call("gearman", *where, "-f", "back", input=data[:50_000], text=False)  # (it writes all before it reads)
        run.same(digest(got), digest(data[:50_000]), "what came back")
    run.call("gearman", *where, "-b", "-f", "sum", input="later")
    run.same([shim.finish(worker) for worker in workers], [0, 0], "how the workers end")
    run.stop(child)
    return "5 jobs right"
