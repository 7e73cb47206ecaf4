"""Servers that others ask: named by TCP, slapd, and smbd's files."""

import os
import signal

import shim
from matrix import entry, file_digest

HOSTS = 2000


@entry("BIND", "named by TCP: a zone transfer, questions one after the other and on connections of their own", needs=["named", "dig"],
       version=["named", "-v"], at_least=10)
def named(run):
    port = shim.free_port()
    os.chmod(run.folder, 0o777)
    hosts = "".join("h%d A 10.0.%d.%d\n" % (n, n // 250, n % 250) for n in range(HOSTS))
    run.write("zone", "$TTL 60\n@ SOA ns a 1 60 60 60 60\n NS ns\nns A 127.0.0.1\n" + hosts)
    conf = run.write("conf", """
options { directory "%s"; pid-file none; session-keyfile none; listen-on port %d { 127.0.0.1; }; listen-on-v6 { none; };
          recursion no; allow-transfer { any; }; dnssec-validation no; managed-keys-directory "%s"; };
controls {};
zone "t" { type master; file "%s"; };
""" % (run.folder, port, run.folder, run.path("zone")))
    child = run.serve(port, "named", "-g", "-c", conf, "-n", "2", says="all zones loaded")
    ask = ["dig", "+tcp", "+tries=1", "+time=60", "@127.0.0.1", "-p", str(port)]
    zone = run.call(*ask, "t", "axfr")
    run.same(sum(line.startswith("h") for line in zone.splitlines()), HOSTS, "hosts of the transferred zone")
    many = run.write("many", "".join("h%d.t\n" % n for n in range(100)))
    run.same(len(run.call(*ask, "+keepopen", "+short", "-f", many).split()), 100, "answers on one connection")
    for n in range(8):
        run.same(run.call(*ask, "+short", "h%d.t" % n).strip(), "10.0.0.%d" % n, "an answer")
    run.stop(child, number=signal.SIGTERM)
    return "%d hosts, 108 answers" % HOSTS


@entry("OpenLDAP", "slapd; ldapadd and ldapsearch, 100 entries", needs=["slapd", "ldapadd", "ldapsearch"],
       version=["dpkg-query", "-W", "slapd"], at_least=2)
def slapd(run):
    port = shim.free_port()
    os.mkdir(run.path("db"))
    conf = run.write("conf", """
include /etc/ldap/schema/core.schema
pidfile %s
modulepath /usr/lib/ldap
moduleload back_mdb
database mdb
suffix "dc=t"
rootdn "cn=a,dc=t"
rootpw x
directory %s
sizelimit unlimited
dbnosync
""" % (run.path("pid"), run.path("db")))
    url = "ldap://127.0.0.1:%d" % port
    child = run.serve(port, "slapd", "-d", "0", "-h", url, "-f", conf)
    entries = "".join("dn: cn=p%d,dc=t\nobjectClass: person\nsn: s\ncn: p%d\ndescription: %s\n\n" % (n, n, "x" * 500) for n in range(100))
    run.call("ldapadd", "-x", "-H", url, "-D", "cn=a,dc=t", "-w", "x",
             input="dn: dc=t\nobjectClass: dcObject\nobjectClass: organization\no: t\ndc: t\n\n" + entries)
    found = run.call("ldapsearch", "-x", "-LLL", "-H", url, "-b", "dc=t", "-o", "ldif-wrap=no")
    run.same(found.count("description: " + "x" * 500 + "\n"), 100, "entries found")
    run.stop(child, number=signal.SIGTERM)
    return "100 entries found"


@entry("Samba", "smbd; smbclient puts and gets 20 MB", needs=["smbd", "smbclient"], version=["smbd", "--version"], at_least=1)
def samba(run):
    port = shim.free_port()
    for name in ("share", "state"):
        os.mkdir(run.path(name), 0o777)
        os.chmod(run.path(name), 0o755 if name == "state" else 0o777)
    conf = run.write("conf", """
[global]
smb ports = %d
interfaces = 127.0.0.1
bind interfaces only = yes
log file = %s
map to guest = Bad User
guest account = root
server min protocol = SMB2
disable netbios = yes
load printers = no
disable spoolss = yes
%s
[s]
path = %s
guest ok = yes
read only = no
force user = root
""" % (port, run.path("log"), "\n".join("%s = %s" % (what, run.path("state")) for what in (
        "private dir", "lock directory", "state directory", "cache directory", "pid directory", "ncalrpc dir")), run.path("share")))
    sent = run.write("sent", os.urandom(20 << 20))
    child = run.serve(port, "smbd", "-F", "--no-process-group", "-s", conf, start_new_session=True)
    run.call("smbclient", "-N", "-p", str(port), "-s", conf, "//127.0.0.1/s", "-c", "put %s f; get f %s" % (sent, run.path("got")))
    run.same({file_digest(run.path(name)) for name in ("sent", "got", "share/f")}, {file_digest(sent)}, "checksums")
    run.stop(child, number=signal.SIGTERM, status=None)  # (it ends its process group, by that signal)
    return "checksums equal both ways"
