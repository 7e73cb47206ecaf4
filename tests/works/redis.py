"""redis: the benchmark, and a replica that takes over a database and follows."""

import re

import shim
from matrix import HANG, Wrong, blob, entry

VERSION = ["redis-server", "--version"]


def server(run, port, *options):
    return run.serve(port, "redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly",
                     "no",
                     "--enable-debug-command", "local", "--dir", run.folder,
                     "--dbfilename", "dump-%d.rdb" % port, *options)


def cli(run, port, *words, **more):
    return run.call("redis-cli", "-h", "127.0.0.1", "-p", str(port), *words, **more).strip()


@entry("redis", "redis-benchmark, 50 connections, -P 1 and -P 16",
       needs=["redis-server", "redis-benchmark", "redis-cli"],
       version=VERSION, at_least=202)
def redis_benchmark(run):
    port = shim.free_port()
    child = server(run, port)
    count = 500000 if run.long else 50000
    total = 0
    for depth in "1", "16":
        cli(run, port, "config", "resetstat")
        run.call("redis-benchmark", "-h", "127.0.0.1", "-p", str(port), "-c", "50", "-n", str(count), "-P", depth,
                 "-r", "1000",
                 "-d", "100", "-t", "set,get", "--csv", "-e")
        stats = cli(run, port, "info", "commandstats")
        for command in "set", "get":
            found = re.search(r"cmdstat_%s:calls=(\d+),.*failed_calls=(\d+)" % command, stats)
            run.must(found, "the server counts no " + command, stats)
            run.same([int(n) for n in found.groups()], [count, 0], "calls of %s, failed ones" % command)
            total += count
    run.stop(child)
    return "%d requests answered" % total


@entry("redis", "two replicas take over 24 MB (by pipe and by file) and follow writes",
       needs=["redis-server", "redis-benchmark", "redis-cli"], version=VERSION, at_least=20)
def redis_replica(run):
    value = blob(12000, 3).hex().encode()
    first = b"".join(b"*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n" % (len(key), key, len(value), value)
                     for key in (b"key:%d" % i for i in range(10000 if run.long else 1000)))
    port = shim.free_port()
    master = server(run, port, "--repl-diskless-sync-delay", "0", "--rdbcompression", "no")
    said = run.call("redis-cli", "-h", "127.0.0.1", "-p", str(port), "--pipe", input=first, text=False).decode()
    run.must("errors: 0, replies: %d" % (10000 if run.long else 1000) in said, "the database is not filled", said)
    replicas = []
    for diskless in "yes", "no":
        cli(run, port, "config", "set", "repl-diskless-sync", diskless)
        replicas.append(shim.free_port())
        server(run, replicas[-1], "--replicaof", "127.0.0.1", str(port), "--repl-diskless-load",
               "swapdb" if diskless == "yes" else "disabled")
        if not shim.until(lambda: "master_link_status:up" in cli(run, replicas[-1], "info", "replication"), HANG, 0.1):
            raise Wrong("a replica does not come up: " + cli(run, replicas[-1], "info", "replication"))
    run.call("redis-benchmark", "-h", "127.0.0.1", "-p", str(port), "-c", "20", "-n", "20000", "-P", "4", "-r", "5000",
             "-d",
             "500", "-t", "set,incr,lpush,sadd", "--csv", "-e")
    # The same connection writes and waits.
    said = cli(run, port, input="set last one\nwait 2 20000\n")
    run.same(said.split(), ["OK", "2"], "replicas that have the last write")
    digests = {cli(run, p, "debug", "digest") for p in [port, *replicas]}
    run.must(len(digests) == 1 and "0" * 40 not in digests, "the databases differ", *digests)
    for child in run.running[::-1]:
        run.stop(child)
    return "%d MB and 80001 writes, the same digest on all three" % (len(first) // 1_000_000)
