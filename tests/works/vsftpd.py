"""vsftpd, which forks by system calls of its own, two processes for a session; Python's ftplib as the client. (Its processes are
in a jail, where they write no statistics.)"""

import os
import pwd
import sys

import shim
from matrix import blob, digest, entry

CLIENT = """
import ftplib, hashlib, io, sys
port, path = int(sys.argv[1]), sys.argv[2]
data = open(path, "rb").read()
for passive in True, False:
    ftp = ftplib.FTP()
    ftp.connect("127.0.0.1", port)
    ftp.login()
    ftp.set_pasv(passive)
    ftp.cwd("up")
    ftp.storbinary("STOR a", io.BytesIO(data))
    back = []
    ftp.retrbinary("RETR a", back.append)
    print(hashlib.sha256(b"".join(back)).hexdigest(), len(ftp.nlst()))
    ftp.delete("a")
    ftp.quit()
"""


def user():
    """The user of anonymous sessions: it needs a home."""
    return next((u.pw_name for u in pwd.getpwall() if u.pw_name == "ftp"), pwd.getpwuid(os.geteuid()).pw_name)


@entry("vsftpd", "anonymous sessions, passive and active, 20 MB there and back", needs=["vsftpd"], version=["dpkg", "-s", "vsftpd"],
       at_least=0, stays_plain={"no-local-shim": 8, "peer-plain": 8}, killed=8)
def vsftpd_anonymous(run):
    port = shim.free_port()
    os.makedirs(run.path("ftp", "up"))
    os.chmod(run.path("ftp", "up"), 0o777)
    os.mkdir(run.path("empty"))
    config = run.write("vsftpd.conf", """
listen=YES
listen_address=127.0.0.1
listen_port=%d
background=NO
anonymous_enable=YES
no_anon_password=YES
anon_root=%s
anon_upload_enable=YES
anon_mkdir_write_enable=YES
anon_other_write_enable=YES
anon_umask=022
anon_world_readable_only=NO
write_enable=YES
connect_from_port_20=NO
secure_chroot_dir=%s
ftp_username=%s
nopriv_user=nobody
run_as_launching_user=%s
""" % (port, run.path("ftp"), run.path("empty"), user(), "NO" if os.geteuid() == 0 else "YES"))
    child = run.serve(port, "vsftpd", config)
    data = blob(20_000_000, 22)
    said = run.call(sys.executable, "-c", CLIENT, str(port), run.write("data", data))
    run.same(said.split(), [digest(data), "1"] * 2, "the file, there and back")
    run.stop(child, status=None)
    return "checksums of 40 MB equal"
