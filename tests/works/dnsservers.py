"""More name servers, by TCP: Knot, PowerDNS; unbound and dnsdist before Knot."""

import os

import shim
from matrix import HANG, entry

HOSTS = 2000
ZONE = "$ORIGIN t.\n$TTL 60\n@ SOA ns a 1 60 60 60 60\n NS ns\nns A 127.0.0.1\n" + "".join(
    "h%d A 10.0.%d.%d\n" % (n, n // 250, n % 250) for n in range(HOSTS))
DIG = ["dig", "+tcp", "+tries=1", "+time=60", "+short", "@127.0.0.1", "-p"]
KDIG = ["kdig", "+tcp", "+time=60", "+retry=0"]


def questions(run, port, keepopen="+keepopen"):
    """A hundred, on one connection if the server allows that, and eight on connections of their own."""
    said = run.call(*KDIG, "@127.0.0.1", "-p", str(port), keepopen, "+short", *["h%d.t" % n for n in range(100)])
    run.same(said.split(), ["10.0.0.%d" % n for n in range(100)], "answers on one connection")
    for n in range(8):
        run.same(run.call(*DIG, str(port), "h%d.t" % n).strip(), "10.0.0.%d" % n, "an answer")


def transfer(run, port):
    said = run.call(*KDIG, "@127.0.0.1", "-p", str(port), "t", "AXFR")
    run.same(sum(line.startswith("h") for line in said.splitlines()), HOSTS, "hosts of the transferred zone")


KNOT = """
server:
    rundir: %(folder)s
    listen: 127.0.0.1@%(port)d
    user: %(user)s
    tcp-workers: 2
log:
  - target: stderr
    any: info
database:
    storage: %(folder)s/db
remote:
  - id: other
    address: 127.0.0.1@%(other)d
acl:
  - id: all
    address: 127.0.0.1
    action: [transfer, notify, update]
zone:
  - domain: t
    storage: %(folder)s
    acl: all
    %(zone)s
"""


def knot(run, name, port, other, zone):
    folder = run.path(name)
    os.makedirs(folder + "/db")
    if zone.startswith("file"):
        run.write(name + "/zone", ZONE)
    config = run.write(name + "/conf", KNOT % {"folder": folder, "port": port, "other": other, "zone": zone, "user": "root"
                                               if os.geteuid() == 0 else ""})
    return run.serve(port, "knotd", "-c", config, says="server started")


@entry("Knot DNS", "two of it, of which one takes over the zone and follows an update; kdig, dig, knsupdate by TCP",
       needs=["knotd", "kdig", "dig", "knsupdate"], version=["knotd", "--version"], at_least=20,
       stays_plain={"no-local-shim": 3})  # the first notifies the second before that listens
def knot_dns(run):
    first, second = shim.free_port(), shim.free_port()
    children = [knot(run, "first", first, second, "file: zone\n    notify: other"),
                knot(run, "second", second, first, "master: other")]

    def both_know(name):
        return run.call(*DIG, str(second), name).strip() == "10.9.9.9"
    run.must(shim.until(lambda: "10.0.0.1" in run.call(*DIG, str(second), "h1.t"),
                        HANG, 0.1), "the second has the zone")
    for port in first, second:
        transfer(run, port)
        questions(run, port)
    run.call("knsupdate", "-v", input="server 127.0.0.1 %d\nzone t\nupdate add new.t. 60 A 10.9.9.9\nsend\n" % first)
    run.must(shim.until(lambda: both_know("new.t"), HANG, 0.1), "the second has what was added")
    for child in children:
        run.stop(child)
    return "2000 hosts on both, 216 answers, an update"


PDNS = """
launch=bind
bind-config=%s
local-address=127.0.0.1
local-port=%d
socket-dir=%s
allow-axfr-ips=127.0.0.1
guardian=no
daemon=no
zone-cache-refresh-interval=0
receiver-threads=2
"""


@entry("PowerDNS", "a zone of BIND's kind; kdig, dig by TCP", needs=["pdns_server", "kdig", "dig"],
       version=["dpkg-query", "-W", "pdns-server"], at_least=10)
def powerdns(run):
    port = shim.free_port()
    os.mkdir(run.path("pdns"))
    zone = run.write("pdns/zone", ZONE)
    named = run.write("pdns/named.conf", 'zone "t" { type master; file "%s"; };\n' % zone)
    run.write("pdns/pdns.conf", PDNS % (named, port, run.path("pdns")))
    child = run.serve(port, "pdns_server", "--config-dir=" + run.path("pdns"))
    transfer(run, port)
    questions(run, port)
    run.stop(child, status=None)
    return "2000 hosts, 108 answers"


UNBOUND = """
server:
    directory: "%(folder)s"
    chroot: ""
    username: ""
    pidfile: ""
    use-syslog: no
    interface: 127.0.0.1@%(port)d
    do-not-query-localhost: no
    num-threads: 2
    tcp-upstream: yes
    module-config: "iterator"
    local-zone: "t." nodefault
    incoming-num-tcp: 20
remote-control:
    control-enable: no
stub-zone:
    name: "t."
    stub-addr: 127.0.0.1@%(back)d
"""


@entry("unbound", "2 threads, before Knot, which it asks by TCP; kdig, dig", needs=["unbound", "knotd", "kdig", "dig"],
       version=["unbound", "-V"],
       at_least=9, stays_plain={"fastopen": 20, "peer-plain": 20})  # it opens its own connections by TCP Fast Open
def unbound(run):
    front, back = shim.free_port(), shim.free_port()
    first = knot(run, "first", back, front, "file: zone")
    config = run.write("unbound.conf", UNBOUND % {"folder": run.folder, "port": front, "back": back})
    child = run.serve(front, "unbound", "-d", "-c", config)
    questions(run, front)
    run.stop(child)
    run.stop(first)
    return "108 answers"


@entry("dnsdist", "before two of Knot, by TCP only; kdig, dig", needs=["dnsdist", "knotd", "kdig", "dig"], version=["dnsdist", "--version"],
       at_least=1, killed=30, stays_plain={"defer-accept": 20, "no-local-shim": 20})  # a signal ends it
def dnsdist(run):
    front, *back = [shim.free_port() for _ in range(3)]
    servers = [knot(run, "knot-%d" % n, port, front, "file: zone") for n, port in enumerate(back)]
    config = run.write("dnsdist.conf", "setLocal('127.0.0.1:%d', {reusePort=false})\n" % front + "".join(
        "newServer({address='127.0.0.1:%d', checkName='h1.t.', tcpOnly=true})\n" % port for port in back))
    child = run.serve(front, "dnsdist", "--supervised", "--disable-syslog", "-C", config)
    questions(run, front)
    run.stop(child, status=None)
    for one in servers:
        run.stop(one)
    return "108 answers"
