"""dovecot: a master that starts its login processes, which accept, with an environment of their own. Python's imaplib as the client."""

import os
import pwd
import sys

import shim
from matrix import blob, digest, entry

NEEDS = ["dovecot"]
CLIENT = """
import hashlib, imaplib, sys
port, path, count = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
message = open(path, "rb").read()
for n in range(count):
    with imaplib.IMAP4("127.0.0.1", port) as box:
        box.login("somebody", "secret")
        if n == 0:
            box.append("INBOX", None, None, message)
        box.select("INBOX")
        got = box.fetch("1", "(BODY[])")[1][0][1]
        print(hashlib.sha256(got).hexdigest())
"""


def configure(run, port):
    for folder in "base", "state", "mail":
        os.mkdir(run.path(folder))
        os.chmod(run.path(folder), 0o777)
    run.write("users", "somebody:{PLAIN}secret\n")
    me = pwd.getpwuid(os.geteuid()).pw_name
    rootless = "" if os.geteuid() == 0 else """
default_internal_user = %s
default_login_user = %s
service anvil {
  chroot =
}
""" % (me, me)
    return run.write("dovecot.conf", """
protocols = imap
listen = 127.0.0.1
base_dir = %s
state_dir = %s
log_path = %s
ssl = no
disable_plaintext_auth = no
mail_location = maildir:%s/%%u
%s
passdb {
  driver = passwd-file
  args = %s
}
userdb {
  driver = static
  args = uid=%d gid=%d home=%s
}
service imap-login {
  chroot =
  inet_listener imap {
    port = %d
  }
  inet_listener imaps {
    port = 0
  }
}
""" % (run.path("base"), run.path("state"), run.path("dovecot.log"), run.path("mail"), rootless, run.path("users"),
        os.geteuid() or 65534, os.getegid() or 65534, run.path("mail"), port))


def sessions(run, count):
    port = shim.free_port()
    config = configure(run, port)
    run.logs.append(run.path("dovecot.log"))
    child = run.serve(port, "dovecot", "-F", "-c", config)
    message = b"Subject: octets\r\n\r\n" + blob(3_000_000, 21).hex().encode() + b"\r\n"
    said = run.call(sys.executable, "-c", CLIENT, str(port), run.write("message", message), str(count))
    run.same(said.split(), [digest(message)] * count, "the message, as often as it was fetched")
    run.stop(child)
    return "checksums of %d messages of 6 MB equal" % count


@entry("dovecot", "imap; its login processes start without the library", needs=NEEDS, version=["dovecot", "--version"], at_least=0,
       stays_plain={"no-local-shim": 5})
def dovecot_imap(run):
    return sessions(run, 5)
