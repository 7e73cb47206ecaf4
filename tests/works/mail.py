"""Postfix: its master has the listeners, and starts smtpd, which accepts, and smtp, which connects, with an environment of their own."""

import os
import sys

import shim
from matrix import HANG, blob, digest, entry

NEEDS = ["postfix", "/root/."]  # (what root alone sees: its master must be root)

CLIENT = r"""
import smtplib, sys
port, count = int(sys.argv[1]), int(sys.argv[2])
body = open(sys.argv[3]).read()
for n in range(count):
    with smtplib.SMTP("127.0.0.1", port) as mail:
        for m in range(2):
            mail.sendmail("a@here.test", ["b@there.test"], "Subject: %d-%d\n\n%s" % (n, m, body))
"""

# The mails' end: what it got, digests of each.
SINK = r"""
import hashlib, re, socketserver, sys
class Mail(socketserver.StreamRequestHandler):
    def handle(self):
        def say(what):
            self.wfile.write(what + b"\r\n")
        say(b"220 there.test")
        while word := self.rfile.readline().split():
            if word[0] == b"DATA":
                say(b"354 go on")
                lines = []
                while (line := self.rfile.readline()) != b".\r\n":
                    lines.append(line)
                head, _, body = b"".join(lines).partition(b"\r\n\r\n")
                subject = re.search(rb"^Subject: (\S+)", head, re.M)[1].decode()
                print(subject, hashlib.sha256(body.replace(b"\r\n", b"\n")).hexdigest(), flush=True)
                say(b"250 taken")
            elif word[0] == b"QUIT":
                say(b"221 end")
                return
            else:
                say(b"250 yes")
socketserver.ThreadingTCPServer.allow_reuse_address = True
socketserver.ThreadingTCPServer(("127.0.0.1", int(sys.argv[1])), Mail).serve_forever()
"""

MAIN = """
compatibility_level = 3.6
queue_directory = %(folder)s/queue
data_directory = %(folder)s/data
maillog_file = %(folder)s/log
maillog_file_prefixes = /
myhostname = here.test
mydestination =
mynetworks = 127.0.0.0/8
inet_interfaces = 127.0.0.1
inet_protocols = ipv4
alias_maps =
alias_database =
local_recipient_maps =
message_size_limit = 50000000
smtpd_recipient_restrictions = permit_mynetworks, reject
smtpd_client_connection_rate_limit = 0
transport_maps = inline:{there.test=smtp:[127.0.0.1]:%(sink)d}
smtp_dns_support_level = disabled
smtp_host_lookup = native
import_environment = %(environment)s
"""

MASTER = """
127.0.0.1:%d inet n - n - - smtpd
pickup unix n - n 60 1 pickup
cleanup unix n - n - 0 cleanup
qmgr unix n - n 300 1 qmgr
rewrite unix - - n - - trivial-rewrite
bounce unix - - n - 0 bounce
defer unix - - n - 0 bounce
trace unix - - n - 0 bounce
verify unix - - n - 1 verify
flush unix n - n 1000? 0 flush
proxymap unix - - n - - proxymap
smtp unix - - n - - smtp
error unix - - n - - error
retry unix - - n - - error
anvil unix - - n - 1 anvil
scache unix - - n - 1 scache
postlog unix-dgram n - n - 1 postlogd
"""


def through(run, environment, count=3):
    port, sink = shim.free_port(), shim.free_port()
    for name in "etc", "queue", "data":
        os.mkdir(run.path(name))
    shim.run("chown", "postfix", run.path("data"))
    run.write("etc/main.cf", MAIN % {"folder": run.folder, "sink": sink, "environment": environment})
    run.write("etc/master.cf", MASTER % port)
    far = run.serve(sink, sys.executable, "-c", SINK, str(sink))
    log = run.logs[-1]
    run.logs.append(run.path("log"))
    with open(run.path("log"), "w"):
        pass
    run.call("postfix", "-c", run.path("etc"), "check", plain=True)
    near = run.serve(port, "/usr/lib/postfix/sbin/master", "-c", run.path("etc"), "-d", start_new_session=True)
    body = "".join(line + "\n" for line in blob(1_000_000, 71).hex("\n", 40).splitlines())
    run.call(sys.executable, "-c", CLIENT, str(port), str(count), run.write("body", body))
    want = sorted("%d-%d %s" % (n, m, digest(body.encode())) for n in range(count) for m in range(2))

    def got():
        with open(log, encoding="ascii") as f:
            return sorted(f.read().split("\n")[:-1])
    run.must(shim.until(lambda: len(got()) >= len(want), HANG, 0.05), "all mails arrive", got())
    run.same(got(), want, "mails that arrive")
    run.stop(near, status=None)
    run.stop(far, status=None)
    return "%d mails of 2 MB right" % len(want)


@entry("Postfix", "its processes start without the library; mails from smtplib, and on to another server", needs=NEEDS,
       version=["postconf", "-d", "mail_version"], at_least=0, stays_plain={"no-local-shim": 20, "peer-plain": 20})
def postfix(run):
    return through(run, "MAIL_CONFIG PATH")


@entry("Postfix", "with the library in all its processes; mails from smtplib, and on to another server", needs=NEEDS,
       version=["postconf", "-d", "mail_version"], at_least=1,
       stays_plain={"shared-fd": 20, "peer-plain": 20}, killed=20)  # its cache of connections takes some, as it likes
def postfix_inside(run):
    return through(run, "MAIL_CONFIG PATH LD_PRELOAD SOCKWARP_POLICY SOCKWARP_STATS")
