"""
Other people's programs: redis, nginx with wrk and ab, privoxy between the two, or proxies that speak HTTP/2; PostgreSQL with pgbench, and
pgbouncer between these two.
"""

import csv
import functools
import os
import pwd
import re
import signal
import subprocess

from suite import places, proof
from suite.failure import Failure
from suite.process import find
from suite.workload import LO, LO_FREE, PER_S, PINNED_PLACES, US, Workload, at_least, measure, octets

WHERE = (LO, LO_FREE, PINNED_PLACES[1])


def version_of(command):
    """The first thing that looks like a version in what the command says; None if it is not there."""
    path = find(command[0])
    if path is None:
        return None
    done = subprocess.run([path, *command[1:]], capture_output=True, text=True, check=False, timeout=30)
    found = re.search(r"\d+(\.\d+)+", done.stdout + done.stderr)
    return found.group(0) if found else "?"


VERSIONS = {"redis": ["redis-server", "--version"], "nginx": ["nginx", "-v"], "wrk": ["wrk", "-v"], "ab": ["ab", "-V"],
            "privoxy": ["privoxy", "--version"], "h2load": ["h2load", "--version"], "nghttpx": ["nghttpx", "--version"],
            "haproxy": ["haproxy", "-v"], "PostgreSQL": ["postgres", "--version"], "pgbouncer": ["pgbouncer", "--version"]}


class Foreign(Workload):
    foreign = True

    def done(self, session, values, messages, length=None):
        result = {"values": values, "messages": messages, "congestion": session.place.congestion}
        return dict(result, bytes=length) if length else result


def end_front(session):
    """The server that was begun last, before the one that it fronts."""
    os.kill(session.server_child.pid, signal.SIGTERM)
    session.server_child.wait(20)  # its status may be the signal's
    session.add_cpu(places.SERVER, session.server_child)


class Redis(Foreign):
    """redis-benchmark counts requests, not time: as many as take about as long as the other workloads' runs."""

    needs = ("redis-server", "redis-benchmark")
    CLIENTS = 50
    FIRST = 20000

    def __init__(self, depth, bar):
        super().__init__("redis-P%d" % depth, "redis, GET and SET, 50 clients, pipelines of %d" % depth,
                         [measure("requests_per_s", PER_S, bar), measure("p99", US, None, "p99", True)], places=WHERE,
                         least=self.CLIENTS)
        self.depth = depth
        self.count = {}

    def run(self, session, seconds):
        port = str(session.place.free_port())
        session.serve(find("redis-server"), "--port", port, "--bind", session.place.address, "--protected-mode", "no",
                      "--save", "", "--appendonly", "no", "--dir", session.folder, port=port)
        count = self.count.get(session.place.name)
        if count is None:  # the first run in this place only finds out
            rate = self.ask(session, port, self.FIRST)["requests_per_s"]
            count = self.count[session.place.name] = max(int(rate * seconds / 2), self.FIRST)
            session.cpu.clear()
        values = self.ask(session, port, count)
        session.stop()
        return self.done(session, values, 2 * count)

    def ask(self, session, port, count):
        text = session.call(find("redis-benchmark"), "-h", session.place.address, "-p", port, "-c", str(self.CLIENTS), "-n",
                            str(count), "-P", str(self.depth), "-d", "64", "-r", "1000", "-t", "get,set", "--csv",
                            seconds=120)
        tests = list(csv.DictReader(line for line in text.splitlines() if line.startswith('"')))
        if {t["test"] for t in tests} != {"GET", "SET"}:
            raise Failure("redis-benchmark said something else:\n%s" % text)
        return {"requests_per_s": 2 * count / sum(count / float(t["rps"]) for t in tests),
                "p99": max(float(t["p99_latency_ms"]) for t in tests) * 1000}


class Files(Foreign):
    """nginx: one worker, files in the page cache."""

    CONFIGURATION = """
daemon off; worker_processes 1; pid nginx.pid; error_log stderr;
events { worker_connections 512; multi_accept on; }
http {
    access_log off; sendfile on; tcp_nopush on; keepalive_requests 1000000000; default_type application/octet-stream;
    client_body_temp_path tmp; proxy_temp_path tmp; fastcgi_temp_path tmp; uwsgi_temp_path tmp; scgi_temp_path tmp;
    server { listen %s:%s; root %s; }
}
"""

    def __init__(self, name, title, size, length, measures, **more):
        super().__init__(name, title, measures, **more)
        self.size, self.length = size, length

    def prepare(self, tools, place):
        os.makedirs(tools.path("www"), exist_ok=True)
        with open(tools.path("www", self.size), "wb") as f:
            f.write(bytes(self.length))

    def url(self, session, port):
        return "http://%s:%s/%s" % (session.place.address, port, self.size)

    def serve(self, session):
        """Its port."""
        port = str(session.place.free_port())
        temporary = os.path.join(session.folder, "tmp")
        os.mkdir(temporary)
        os.chmod(temporary, 0o777)
        with open(os.path.join(session.folder, "nginx.conf"), "w", encoding="ascii") as f:
            f.write(self.CONFIGURATION % (session.place.address, port, session.tools.path("www")))
        return session.serve(find("nginx"), "-p", session.folder, "-c", "nginx.conf", "-e", "stderr", port=port)


class Nginx(Files):
    """With keep-alive."""

    needs = ("nginx", "wrk")
    CONNECTIONS = 32
    least_s = 1

    def __init__(self, size, length, bar):
        super().__init__("nginx-%s" % size, "nginx, files of %s, wrk with 32 connections" % octets(size), size, length,
                         [measure("requests_per_s", PER_S, bar), measure("p99", US, None, "p99", True)],
                         places=WHERE, least=self.CONNECTIONS)

    def run(self, session, seconds):
        port = self.serve(session)
        whole = max(1, round(seconds))  # wrk knows whole seconds only
        text = session.call(find("wrk"), "-t", "1", "-c", str(self.CONNECTIONS), "-d", "%ds" % whole, "--latency",
                            self.url(session, port), seconds=whole + 60)
        session.stop(signal.SIGQUIT)
        count = re.search(r"(\d+) requests in", text)
        rate = re.search(r"Requests/sec:\s+([\d.]+)", text)
        late = re.search(r"99%\s+([\d.]+)(us|ms|s)\b", text)
        if not (count and rate and late) or "Socket errors" in text or "Non-2xx" in text:
            raise Failure("wrk was not served well:\n%s" % text)
        messages = int(count.group(1))
        return self.done(session, {"requests_per_s": float(rate.group(1)),
                                   "p99": float(late.group(1)) * {"us": 1, "ms": 1e3, "s": 1e6}[late.group(2)]},
                         messages, messages * self.length)


class Short(Files):
    """ab: a connection for each request. A line of statistics for each is part of what is measured, at both ends of it."""

    needs = ("nginx", "ab")
    apart = True
    least_s = 1

    def __init__(self, clients, bar):
        super().__init__("ab-%d" % clients, "nginx, a connection for each request, ab -c %d" % clients, "1K", 1 << 10,
                         [measure("requests_per_s", PER_S, bar)], places=(LO, LO_FREE),
                         prove=functools.partial(proof.mixed, least=clients, reasons=("withdrawn", "peer-plain")))  # (a late accept)
        self.clients = clients

    def run(self, session, seconds):
        port = self.serve(session)
        result = self.ask(session, port, seconds)
        session.stop(signal.SIGQUIT)
        return result

    def ask(self, session, port, seconds, *more):
        text = session.call(find("ab"), "-q", "-t", "%d" % max(1, round(seconds)), "-n", "10000000", "-c", str(self.clients), *more,
                            self.url(session, port), seconds=seconds + 60)
        count = re.search(r"Complete requests:\s+(\d+)", text)
        rate = re.search(r"Requests per second:\s+([\d.]+)", text)
        if not (count and rate) or "Failed requests:        0" not in text or "Non-2xx" in text:
            raise Failure("ab was not served well:\n%s" % text)
        return self.done(session, {"requests_per_s": float(rate.group(1))}, int(count.group(1)))


class Proxied(Short):
    """Through privoxy, which has a thread for each connection."""

    needs = ("nginx", "ab", "privoxy")

    def __init__(self, clients, bar):
        super().__init__(clients, bar)
        self.name, self.title = "privoxy-%d" % clients, "the same through privoxy, ab -c %d" % clients

    def run(self, session, seconds):
        port = self.serve(session)
        files, proxy = session.server_child, str(session.place.free_port())
        with open(os.path.join(session.folder, "privoxy.conf"), "w", encoding="ascii") as f:
            f.write("confdir /etc/privoxy\nlogdir %s\nlisten-address %s:%s\ntoggle 0\n" % (
                session.folder, session.place.address, proxy))
        session.serve(find("privoxy"), "--no-daemon", os.path.join(session.folder, "privoxy.conf"), port=proxy)
        result = self.ask(session, port, seconds, "-X", "%s:%s" % (session.place.address, proxy))
        end_front(session)
        files.stop(signal.SIGQUIT)
        return result


class Http2(Files):
    """h2load asks a proxy by HTTP/2 over ten connections that stay; it asks nginx by HTTP/1.1."""

    FRONTS = {
        "nghttpx": ("nghttpx", "--conf=/dev/null", "-f{address},{front};no-tls", "-b{address},{back}", "--workers=1",
                    "--errorlog-file=/dev/stderr", "--accesslog-file=/dev/null"),
        "haproxy": ("haproxy", "-db", "-f", "{folder}/haproxy.cfg"),
    }
    HAPROXY = """
global
    nbthread 1
    maxconn 500
defaults
    mode http
    http-reuse always
    timeout connect 20s
    timeout client 60s
    timeout server 60s
listen one
    bind {address}:{front} proto h2
    server one {address}:{back}
"""
    CONNECTIONS = 10
    least_s = 1

    def __init__(self, front, bar):
        super().__init__("h2load-%s" % front, "HTTP/2 to %s before nginx, h2load with 10 connections" % front, "1K", 1 << 10,
                         [measure("requests_per_s", PER_S, bar)], places=(LO, LO_FREE),
                         prove=functools.partial(proof.mixed, least=1, reasons=("defer-accept", "no-local-shim")))  # (nghttpx' listener)
        self.front = front
        self.needs = ("nginx", "h2load", front)

    def run(self, session, seconds):
        back = self.serve(session)
        files, front = session.server_child, str(session.place.free_port())
        words = {"address": session.place.address, "front": front, "back": back, "folder": session.folder}
        with open(os.path.join(session.folder, "haproxy.cfg"), "w", encoding="ascii") as f:
            f.write(self.HAPROXY.format(**words))
        program, *rest = (word.format(**words) for word in self.FRONTS[self.front])
        session.serve(find(program), *rest, port=front)
        whole = max(1, round(seconds))
        text = session.call(find("h2load"), "-c", str(self.CONNECTIONS), "-m", "10", "-D", str(whole), self.url(session, front),
                            seconds=whole + 60)
        end_front(session)
        files.stop(signal.SIGQUIT)
        count = re.search(r"requests: \d+ total, \d+ started, (\d+) done, \d+ succeeded, 0 failed, 0 errored", text)
        rate = re.search(r"finished in \S+, ([\d.]+) req/s", text)
        if not (count and rate):
            raise Failure("h2load was not served well:\n%s" % text)
        return self.done(session, {"requests_per_s": float(rate.group(1))}, int(count.group(1)))


class Postgres(Foreign):
    """pgbench -S; the server refuses to run as root, so it runs as nobody then."""

    needs = ("initdb", "postgres", "pgbench")
    CLIENTS = 8
    least_s = 1.5

    def __init__(self):
        super().__init__("pgbench-S", "PostgreSQL, pgbench -S, 8 clients, prepared",
                         [measure("transactions_per_s", PER_S), measure("mean", US, None, "mean latency", True)],
                         places=(LO, LO_FREE), least=self.CLIENTS)

    def missing(self):
        found = super().missing()
        return found + (["setpriv"] if os.geteuid() == 0 and not find("setpriv") else [])

    @staticmethod
    def as_nobody():
        if os.geteuid() != 0:
            return []
        nobody = pwd.getpwnam("nobody")
        return ["setpriv", "--reuid", str(nobody.pw_uid), "--regid", str(nobody.pw_gid), "--clear-groups", "--"]

    def prepare(self, tools, place):
        data = tools.path("postgres")
        if os.path.exists(data):
            return
        os.mkdir(data)
        os.chmod(data, 0o777)
        env = {"HOME": data, "LC_ALL": "C", "PATH": os.environ.get("PATH", os.defpath)}
        self.must([find("initdb"), "-D", data + "/data", "-U", "tester", "-A", "trust", "-N", "--locale=C", "-E", "UTF8"],
                  env)
        with open(data + "/data/pg_hba.conf", "a", encoding="ascii") as f:
            f.write("host all all all trust\n")

    def must(self, command, env, prefix=()):
        done = subprocess.run([*prefix, *self.as_nobody(), *command], capture_output=True, text=True, env=env, cwd="/",
                              check=False, timeout=120)
        if done.returncode:
            raise Failure("%s: status %d\n%s" % (" ".join(command), done.returncode, done.stderr[-1000:]))

    def serve(self, session):
        """Its port."""
        data, port = session.tools.path("postgres"), str(session.place.free_port())
        session.serve(find("postgres"), "-D", data + "/data", "-p", port, "-h", session.place.address, "-k", "", "-c",
                      "fsync=off", "-c", "max_connections=50", port=port, before=self.as_nobody(), env=self.env_of(session))
        session.server_child.await_said("ready to accept")  # it listens before
        if not os.path.exists(data + "/filled"):
            self.must([*self.client(session, port)[:-1], "-i", "-q", "-s", "2", "postgres"],
                      dict(session.side.env, **self.env_of(session)), session.place.prefix(places.CLIENT))
            with open(data + "/filled", "w", encoding="ascii"):
                pass
        return port

    @staticmethod
    def env_of(session):
        return {"HOME": session.tools.path("postgres"), "PGSSLMODE": "disable"}

    @staticmethod
    def client(session, port):
        return [find("pgbench"), "-h", session.place.address, "-p", port, "-U", "tester", "-n"]

    def ask(self, session, port, seconds, *more):
        whole = max(1, round(seconds))
        text = session.call(*self.client(session, port), "-S", *more, "-c", str(self.CLIENTS), "-j", "1", "-T", str(whole), "postgres",
                            seconds=whole + 60, env=self.env_of(session))
        count = re.search(r"actually processed: (\d+)", text)
        rate = re.search(r"tps = ([\d.]+)", text)
        mean = re.search(r"latency average = ([\d.]+) ms", text)
        if not (count and rate and mean) or "number of failed transactions: 0 " not in text:
            raise Failure("pgbench was not served well:\n%s" % text)
        return self.done(session, {"transactions_per_s": float(rate.group(1)), "mean": float(mean.group(1)) * 1000},
                         int(count.group(1)))

    def run(self, session, seconds):
        result = self.ask(session, self.serve(session), seconds, "-M", "prepared")
        session.stop(signal.SIGINT)
        return result


class PgBouncer(Postgres):
    """pgbench -C: a connection to pgbouncer for each transaction. Its connections to PostgreSQL stay."""

    needs = (*Postgres.needs, "pgbouncer")
    CONFIGURATION = """
[databases]
postgres = host={address} port={back} dbname=postgres user=tester
[pgbouncer]
listen_addr = {address}
listen_port = {front}
unix_socket_dir =
auth_type = any
auth_file = {folder}/users
pool_mode = transaction
default_pool_size = 5
log_connections = 0
log_disconnections = 0
"""

    def __init__(self, bar):
        super().__init__()
        self.name, self.title = "pgbouncer-C", "pgbouncer before PostgreSQL, pgbench -S -C, 8 clients"
        self.measures = [measure("transactions_per_s", PER_S, bar), measure("mean", US, None, "mean latency", True)]
        self.prove = functools.partial(proof.mixed, least=1, reasons=("defer-accept", "no-local-shim"))  # (its listener)

    def run(self, session, seconds):
        back = self.serve(session)
        base, front = session.server_child, str(session.place.free_port())
        words = {"address": session.place.address, "front": front, "back": back, "folder": session.folder}
        for name, text in ("pgbouncer.ini", self.CONFIGURATION.format(**words)), ("users", '"tester" ""\n'):
            with open(os.path.join(session.folder, name), "w", encoding="ascii") as f:
                f.write(text)
        session.serve(find("pgbouncer"), os.path.join(session.folder, "pgbouncer.ini"), port=front, before=self.as_nobody(),
                      env=self.env_of(session))
        result = self.ask(session, front, seconds, "-C")
        end_front(session)
        base.stop(signal.SIGINT)
        return result


def workloads():
    yield Redis(1, at_least(1.0))
    yield Redis(16, at_least(1.05))
    yield Nginx("1K", 1 << 10, at_least(0.97))
    yield Nginx("1M", 1 << 20, at_least(1.0))
    yield Short(1, None)
    yield Short(10, at_least(0.5))
    yield Short(50, at_least(0.5))
    yield Proxied(10, at_least(0.9))
    yield Http2("nghttpx", at_least(0.95))
    yield Http2("haproxy", at_least(0.95))
    yield Postgres()
    yield PgBouncer(at_least(0.9))
