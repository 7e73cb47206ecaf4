"""OpenSSH: a server on a high port, with keys made for the test. sshd executes itself for each connection."""

import getpass
import os
import shutil

import shim
from matrix import CLIENTS, HANG, Wrong, blob, digest, file_digest, entry, find

NEEDS = ["sshd", "ssh", "scp", "ssh-keygen"]
# One that was not decided when sshd executed itself: it is standard input then.
DECLINED = {"std-fd": 3, "hello-nak": 3}


class Server:
    def __init__(self, run):
        self.run = run
        self.port = shim.free_port()
        if os.geteuid() == 0 and not os.path.exists("/run/sshd"):
            os.mkdir("/run/sshd", 0o755)  # an empty root for its unprivileged child
            run.at_end(os.rmdir, "/run/sshd")
        for key in "host", "user":
            run.call("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", run.path(key), plain=True)
        shutil.copy(run.path("user.pub"), run.path("authorized"))
        config = run.write("sshd_config", """
Port %d
ListenAddress 127.0.0.1
HostKey %s
AuthorizedKeysFile %s
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin yes
Subsystem sftp internal-sftp
""" % (self.port, run.path("host"), run.path("authorized")))
        with open(run.path("host.pub"), encoding="ascii") as f:
            run.write("known", "[127.0.0.1]:%d %s" % (self.port, f.read()))
        self.options = ["-F", "none", "-i", run.path("user"), "-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes",
                        "-o", "StrictHostKeyChecking=yes", "-o", "UserKnownHostsFile=" + run.path("known"),
                        "-o", "LogLevel=ERROR"]
        self.child = run.serve(self.port, find("sshd"), "-D", "-e", "-f", config)

    def ssh(self, command, **more):
        return self.run.call("ssh", *self.options, "-p", str(self.port), getpass.getuser() + "@127.0.0.1", command,
                             **more)

    def stop(self):
        # It kills itself by the signal after cleaning up, or exits with 255.
        self.run.stop(self.child, status=None)


@entry("OpenSSH", "sshd on a loopback port; ssh: commands, 20 MB through cat, exit status; ten at once", needs=NEEDS,
       version=["ssh", "-V"], at_least=11, stays_plain=DECLINED)
def ssh_commands(run):
    server = Server(run)
    data = blob(20_000_000, 8)
    try:
        run.same(server.ssh("echo hello; uname"), "hello\nLinux\n", "what a command prints")
        run.same(digest(server.ssh("cat", input=data, text=False)), digest(data), "20 MB through cat")
        server.ssh("exit 42", status=42)
        run.same(server.ssh("wc -c", input=data, text=False).strip(), b"20000000", "octets that wc counts")
        many = [run.start("ssh", *server.options, "-p", str(server.port), getpass.getuser() + "@127.0.0.1",
                          "head -c 1000000 /dev/zero | wc -c; exit %d" % n, side=CLIENTS) for n in range(10)]
        run.same([shim.finish(child, HANG) for child in many], list(range(10)), "exit status of ten at once")
    finally:
        server.stop()
    return "octets and exit status right"


@entry("OpenSSH", "scp of 200 MB there and back", needs=NEEDS, version=["ssh", "-V"], at_least=2)
def ssh_scp(run):
    server = Server(run)
    data = blob(200_000_000, 9)
    source = run.write("source", data)
    target = "%s@127.0.0.1:%s" % (getpass.getuser(), run.path("there"))
    try:
        for a, b in (source, target), (target, run.path("back")):
            run.call("scp", "-q", *server.options, "-P", str(server.port), a, b)
        if file_digest(run.path("there")) != digest(data) or file_digest(run.path("back")) != digest(data):
            raise Wrong("the copy differs")
    finally:
        server.stop()
    return "checksums equal"
