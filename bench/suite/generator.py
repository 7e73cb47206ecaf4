"""sockwarp-bench's workloads."""

import contextlib
import functools
import json
import subprocess
import sys

from suite import places, proof
from suite.failure import Failure
from suite.workload import (ALL_PLACES, BOTH, GB_S, LO, LO_FREE, PER_S, PINNED_PLACES, Workload, at_least, at_most,
                            latencies, measure, octets)


class Bench(Workload):
    """sockwarp-bench: a command with its server."""

    server = ("server",)

    def __init__(self, name, title, measures, command, **more):
        super().__init__(name, title, measures, **more)
        self.command = command

    def run(self, session, seconds):
        bench, congestion = session.tools.bench, ("--congestion", session.place.congestion)
        port = session.serve(bench, *self.server, "-a", session.place.address, "-p", "0", *congestion)
        with self.beside(session, port):
            text = session.call(bench, self.command[0], "-c", session.place.address, "-p", port, "-t", "%g" % seconds, "-j",
                                *congestion, *self.command[1:], seconds=seconds + 60)
        session.stop()
        report = json.loads(text)
        for end in "congestion", "server_congestion":
            if report.get(end, session.place.congestion) != session.place.congestion:
                raise Failure("%s is %s, not %s" % (end, report[end], session.place.congestion))
        return dict(self.take(report), congestion=report["congestion"])

    def beside(self, session, port):
        """What else its server has while it runs."""
        return contextlib.nullcontext()

    def take(self, report):
        if report["mode"] in ("pingpong", "crowd"):
            rtt = report["rtt_us"]
            return {"values": {key: rtt[key] for key in ("p50", "p99", "p999", "mean")}, "messages": rtt["count"]}
        return {"values": {key: report[key] for key in ("bytes_per_s", "blocks_per_s")}, "bytes": report["bytes"],
                "messages": report["bytes"] // report["len"]}


class Connect(Bench):
    """by: the way in which the server accepts."""

    apart = True

    def __init__(self, *args, by="turn", **more):
        super().__init__(*args, **more)
        self.server = ("answer", "--by", by)

    def take(self, report):
        times = report["connection_us"]
        return {"values": {"connections_per_s": report["connections_per_s"], "p50": times["p50"], "p99": times["p99"]},
                "messages": report["connections"]}


class Busy(Bench):
    """Beside processes that compute all the time, more than there are processors."""

    processes = 4
    LIVES = 600

    @contextlib.contextmanager
    def around(self):
        code = "import signal; signal.alarm(%d)\nwhile True: pass" % self.LIVES
        children = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(self.processes)]
        try:
            yield
        finally:
            for child in children:
                child.kill()
                child.wait()


def await_step(crowd, step):
    said = crowd.line(120)
    if said != step:
        raise Failure("crowd said %r, not %r" % (said, step))


class Crowd(Bench):
    """10,000 idle connections beside 100 busy ones; what an idle one takes in memory, at either end."""

    server = ("echo",)
    rounds = 2
    least_s = 4

    def run(self, session, seconds):
        bench, congestion = session.tools.bench, ("--congestion", session.place.congestion)
        port = session.serve(bench, *self.server, "-a", session.place.address, "-p", "0", *congestion)
        client = session.talk(bench, "crowd", "-c", session.place.address, "-p", port, "-t", "%g" % seconds, "-j", "--steps",
                              *congestion, *self.command[1:])
        ends = {places.SERVER: session.server_child, places.CLIENT: client}
        memory = {}
        for step in "ready", "open":
            await_step(client, step)
            memory[step] = {end: child.memory() for end, child in ends.items()}
            client.say()
        report = json.loads(session.hang_up(client))
        session.stop()
        count = report["idle"] + report["active"]
        values = {"blocks_per_s": report["blocks_per_s"], "opened_per_s": report["opened_per_s"],
                  "p99": report["rtt_us"]["p99"]}
        for end in ends:
            for kind in "rss", "pss":
                values["%s_%s" % (end, kind)] = (memory["open"][end][kind] - memory["ready"][end][kind]) / count
        # Neither bytes nor messages: most of the processor time is for connections.
        return {"values": values, "congestion": report["congestion"], "memory": memory}


class File(Bench):
    """No socket at all."""

    SIZE = 1 << 20

    def prepare(self, tools, place):
        with open(tools.path("file"), "wb") as f:
            f.write(bytes(self.SIZE))

    def run(self, session, seconds):
        report = json.loads(session.call(session.tools.bench, *self.command, "-f", session.tools.path("file"), "-t",
                                         "%g" % seconds, "-j", seconds=seconds + 60, look=True))
        return {"values": {"reads_per_s": report["reads_per_s"]}, "messages": report["reads"],
                "bytes": report["reads"] * report["len"], "congestion": session.place.congestion}


KIB = {"64": 64, "256": 256, "1K": 1 << 10, "4K": 4 << 10, "16K": 16 << 10, "64K": 64 << 10, "128K": 128 << 10,
       "1M": 1 << 20}
OFF = functools.partial(proof.plain, least=1, reasons=("policy-off",))
CPU_BAR = 1.15


class Silent(Bench):
    """Beside connections of a plain client to the same server that say nothing; all are in one epoll set there."""

    server = ("echo",)
    count = 15000
    rounds = 2
    least_s = 6

    @contextlib.contextmanager
    def beside(self, session, port):
        crowd = session.talk(session.tools.bench, "crowd", "-c", session.place.address, "-p", port, "-t", "0.01", "-j", "--steps",
                             "--idle", str(self.count), "--active", "1", plain=True)
        await_step(crowd, "ready")
        crowd.say()
        await_step(crowd, "open")
        yield
        crowd.say()
        crowd.output()
        crowd.leave()


def bulk():
    bars = {"128K": at_least(1.0, cpu=CPU_BAR), "1M": at_least(0.95)}
    where = {("128K", 1): ALL_PLACES, ("128K", 4): (LO, LO_FREE), ("128K", 16): (LO, LO_FREE),
             ("1M", 1): (LO, LO_FREE, *PINNED_PLACES[1:]), ("4K", 1): (LO, PINNED_PLACES[1]),
             ("16K", 1): (LO, PINNED_PLACES[1])}
    for size in "4K", "16K", "64K", "128K", "1M":
        for streams in 1, 4, 16:
            yield Bench("bulk-%s" % size + ("" if streams == 1 else "-%d-streams" % streams),
                        "bulk, %s writes" % octets(size) + ("" if streams == 1 else ", %d streams" % streams),
                        [measure("bytes_per_s", GB_S, bars.get(size) if streams == 1 else None)],
                        ["stream", "-l", size, "-b", size if KIB[size] > KIB["128K"] else "128K", "-P", str(streams)],
                        places=where.get((size, streams), (LO,)), least=streams)
    yield Bench("bulk-128K-reverse", "bulk, 128 KiB writes, from server to client", [measure("bytes_per_s", GB_S)],
                ["stream", "-l", "128K", "-R"])
    yield Bench("bulk-128K-crc-off", "bulk, 128 KiB writes, CRC off", [measure("bytes_per_s", GB_S, at_least(1.1))],
                ["stream", "-l", "128K"], places=(LO, LO_FREE, *PINNED_PLACES[1:]), rules="any * auto crc=off")


def round_trips():
    bars = {"64": at_most(1.03), "64K": at_most(1.05)}
    for size in "1", "64", "1K", "16K", "64K":
        yield Bench("pingpong-%s" % size, "request and answer, %s" % octets(size), latencies(bars.get(size)),
                    ["pingpong", "-l", size], places=(LO, LO_FREE, *PINNED_PLACES[1:]) if size in bars else (LO,))
    yield Bench("pingpong-64-spin", "request and answer, 64 B, spinning allowed", latencies(at_most(0.6)),
                ["pingpong", "-l", "64"], places=(LO, LO_FREE), env={"SOCKWARP_SPIN_US": "200"})
    yield Busy("pingpong-64-busy", "request and answer, 64 B, beside 4 busy processes", latencies(p99=at_most(1.2)),
               ["pingpong", "-l", "64"], places=(LO_FREE,))
    yield Silent("pingpong-64-silent", "request and answer, 64 B, beside 15,000 connections that say nothing",
                 latencies(at_most(1.2)), ["crowd", "--idle", "0", "--active", "1"], places=(LO, PINNED_PLACES[1]),
                 prove=functools.partial(proof.mixed, least=1, reasons=("peer-plain", "spoke-first", "closed")))


def small_writes():
    bars = {("64", True): at_least(25), ("64", False): at_least(5), ("1K", True): at_least(5)}
    for size in "64", "256", "1K", "4K", "16K":
        for nodelay in True, False:
            bar = bars.get((size, nodelay))
            yield Bench("small-%s%s" % (size, "-nodelay" if nodelay else ""),
                        "%s writes, %s" % (octets(size), "TCP_NODELAY" if nodelay else "Nagle"),
                        [measure("blocks_per_s", PER_S, bar)],
                        ["stream", "-l", size] + (["--nodelay"] if nodelay else []),
                        places=(LO, LO_FREE, *PINNED_PLACES[1:]) if bar else (LO,))


def connections():
    yield Connect("connect", "connections, both ends shimmed", [measure("connections_per_s", PER_S, at_least(0.4))],
                  ["connect"], places=(LO, LO_FREE, PINNED_PLACES[1]), least=10)
    yield Connect("connect-unmarked", "connections to a plain server of another host",
                  [measure("connections_per_s", PER_S, at_least(0.95))], ["connect"], places=(PINNED_PLACES[1],),
                  shims=(places.CLIENT,), hosts=2,
                  prove=functools.partial(proof.plain, least=10, reasons=("unmarked",)))
    yield Connect("connect-no-shim", "connections to a listener of this host without sockwarp",
                  [measure("connections_per_s", PER_S, at_least(0.95))], ["connect"], places=(LO,),
                  shims=(places.CLIENT,), hosts=1,
                  prove=functools.partial(proof.plain, least=10, reasons=("no-local-shim",)))


def accepts():
    """Servers that accept in different ways: with a plain client of this host, and with both ends under sockwarp."""
    for by, title in ("turn", "in turn"), ("prefork", "by four children"), ("threads", "a thread each"), ("epoll", "from a set"):
        yield Connect("accept-%s-plain" % by, "plain client, server accepts %s" % title,
                      [measure("connections_per_s", PER_S, at_least(0.97))], ["connect", "-P", "4"], by=by, places=(LO, LO_FREE),
                      shims=(places.SERVER,),
                      prove=functools.partial(proof.plain, least=10, reasons=("peer-plain",)))
        yield Connect("accept-%s" % by, "both ends, server accepts %s" % title,
                      [measure("connections_per_s", PER_S, at_least(0.6))], ["connect", "-P", "4"], by=by, places=(LO, LO_FREE),
                      least=10)


def overhead():
    """What is not upgraded: with the library and without it."""
    for name, title, rules, prove in (
            ("off", "rule: off", "any * off", OFF),
            ("no-rule", "no rule matches", "any 192.0.2.1 auto", proof.nothing)):
        yield Bench("overhead-%s" % name, "plain by sockwarp's rules (%s), request and answer, 64 B" % title,
                    latencies(at_most(1.02)), ["pingpong", "-l", "64"], rules=rules, prove=prove)
    for size in "64", "4K":
        yield File("overhead-file-%s" % size, "reads of a file, %s" % octets(size),
                   [measure("reads_per_s", PER_S, at_least(0.98))], ["file", "-l", size], prove=proof.nothing)


def nulls():
    """Plain against plain: what the noise of this run is."""
    yield Bench("null-bulk-128K", "plain against plain: bulk, 128 KiB writes", [measure("bytes_per_s", GB_S)],
                ["stream", "-l", "128K"], places=(LO, LO_FREE), null=True)
    yield Bench("null-pingpong-64", "plain against plain: request and answer, 64 B", latencies(), ["pingpong", "-l", "64"],
                places=(LO, LO_FREE), null=True)


def crowds():
    memory = [measure("%s_rss" % end, ("KiB", 1024), {"value": ["<=", 16384]}, "memory of one, %s" % end, True, compared=False)
              for end in BOTH]
    yield Crowd("crowd", "10,000 idle and 100 active connections:",
                [measure("blocks_per_s", PER_S, None, "blocks of 64 B there and back"),
                 measure("opened_per_s", PER_S, None, "opened"), *memory],
                ["crowd", "--idle", "10000", "--active", "100"], least=10100)


def workloads():
    return [w for group in (nulls, bulk, round_trips, small_writes, connections, accepts, overhead, crowds) for w in group()]
