"""redis: the benchmark, replicas that take over a database and follow, a cluster, and sentinels."""

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


def ports(count):
    return [shim.free_port() for _ in range(count)]


KEYS = 600


@entry("redis", "cluster: three masters, a client that follows them, redis-benchmark --cluster; slots move",
       needs=["redis-server", "redis-benchmark", "redis-cli"], version=VERSION, at_least=60,
       stays_plain={"no-local-shim": 6})  # when a node has ended, the others connect to it in vain
def redis_cluster(run):
    nodes = ports(3)
    for port, bus in zip(nodes, ports(3)):
        server(run, port, "--cluster-enabled", "yes", "--cluster-port", str(bus), "--cluster-config-file", "nodes-%d.conf" % port)
    run.call("redis-cli", "--cluster", "create", *("127.0.0.1:%d" % port for port in nodes), "--cluster-yes")
    run.must(shim.until(lambda: all("cluster_state:ok" in cli(run, port, "cluster", "info") for port in nodes), HANG, 0.1),
             "the cluster does not come up")
    said = cli(run, nodes[0], "-c", input="".join("set key:%d value-%d\n" % (n, n) for n in range(KEYS)))
    run.same(said.count("OK"), KEYS, "keys that were set")
    run.call("redis-benchmark", "-h", "127.0.0.1", "-p", str(nodes[0]), "--cluster", "-c", "12", "-n", "10000", "-r", "1000", "-t",
             "set,get", "--csv", "-e")
    for port in nodes[1], None:
        have = [int(cli(run, node, "eval", "return #redis.call('keys', 'key:?') + #redis.call('keys', 'key:??') + "
                                           "#redis.call('keys', 'key:???')", "0")) for node in nodes]
        run.must(sum(have) == KEYS and sorted(have)[1] > 100, "the keys are not spread over the nodes", have)
        said = cli(run, nodes[2], "-c", input="".join("get key:%d\n" % n for n in range(KEYS)))
        run.same([word for word in said.split() if word.startswith("value")], ["value-%d" % n for n in range(KEYS)], "values")
        if port:
            ids = {node: cli(run, node, "cluster", "myid") for node in nodes}
            run.call("redis-cli", "--cluster", "reshard", "127.0.0.1:%d" % nodes[0], "--cluster-from", ids[nodes[0]], "--cluster-to",
                     ids[port], "--cluster-slots", "2000", "--cluster-yes")
    run.must("[OK] All 16384 slots covered" in run.call("redis-cli", "--cluster", "check", "127.0.0.1:%d" % nodes[2]), "slots")
    for child in run.running:
        run.stop(child)
    return "%d keys right, before and behind the move" % KEYS


@entry("redis", "three sentinels make a replica the master when that ends", needs=["redis-server", "redis-benchmark", "redis-cli"],
       version=VERSION, at_least=20, stays_plain={"no-local-shim": 200})  # to the master that has ended, in vain
def redis_sentinel(run):
    first, second, *watching = ports(5)
    master = server(run, first)
    replica = server(run, second, "--replicaof", "127.0.0.1", str(first))
    for port in watching:
        config = run.write("sentinel-%d.conf" % port, """
port %d
bind 127.0.0.1
dir %s
sentinel monitor it 127.0.0.1 %d 2
sentinel down-after-milliseconds it 1000
""" % (port, run.folder, first))
        run.serve(port, "redis-server", config, "--sentinel")

    def known(what, count):
        return [cli(run, port, "sentinel", what, "it").count("runid") for port in watching] == [count] * 3
    run.must(shim.until(lambda: known("sentinels", 2) and known("replicas", 1), HANG, 0.1), "the sentinels do not find each other")
    cli(run, first, "set", "what", "stays")
    run.same(cli(run, first, input="set last one\nwait 1 20000\n").split(), ["OK", "1"], "replicas that have the last write")
    run.stop(master, number=15)
    want = ["127.0.0.1", str(second)]
    asked = ("sentinel", "get-master-addr-by-name", "it")
    run.must(shim.until(lambda: all(cli(run, port, *asked).split() == want for port in watching), HANG, 0.1), "no other master")
    run.must(shim.until(lambda: "role:master" in cli(run, second, "info", "replication"), HANG, 0.1), "it does not become one")
    run.same(cli(run, second, "mget", "what", "last").split(), ["stays", "one"], "what the new master has")
    for child in run.running[:0:-1]:
        run.stop(child)
    run.must(replica.returncode == 0, "the replica's status")
    return "the other is the master, with all that was written"
