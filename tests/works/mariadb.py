"""MariaDB: a thread for each connection, and an io_uring for its files."""

import getpass
import os
import socket

import shim
from matrix import blob, digest, entry

NEEDS = ["mariadb-install-db", "mariadbd", "mariadb", "mariadb-slap"]


@entry("MariaDB", "16 MB in and out, mariadb-slap with 8 clients; its files go by io_uring", needs=NEEDS,
       version=["mariadbd", "--version"], at_least=20)
def mariadb(run):
    port = shim.free_port()
    # (Below /tmp: the path of a socket may not be long.)
    local = os.path.join("/tmp", "sw-mariadb-%d" % port)
    run.at_end(lambda: os.path.exists(local) and os.unlink(local))
    user = "--user=" + getpass.getuser()
    run.call("mariadb-install-db", "--no-defaults", "--datadir=" + run.path("data"), user,
             "--auth-root-authentication-method=normal", "--skip-test-db", plain=True)
    child = run.serve(port, "mariadbd", "--no-defaults", "--datadir=" + run.path("data"), user, "--port=%d" % port,
                      "--bind-address=127.0.0.1", "--socket=" + local, "--max-allowed-packet=64M", says="ready for connections")
    # It greets when it waits for clients. With a ring of its own it has a name only from then on.
    with socket.socket(socket.AF_UNIX) as early:
        early.settimeout(60)
        early.connect(local)
        early.recv(1)

    def sql(text, **more):
        return run.call("mariadb", "--no-defaults", "-h", "127.0.0.1", "-P", str(port), "-u", "root", "-N", "-B", "--raw",
                        "--max-allowed-packet=64M", **more, input=text).strip()

    sql("create database d; create table d.t (n int primary key, v longtext)")
    text = blob(8 << 20, 5).hex()
    sql("insert into d.t values (1, '%s')" % text)
    run.same(digest(sql("select v from d.t").encode()), digest(text.encode()), "octets that come back")
    queries = 20000 if run.long else 2000
    run.call("mariadb-slap", "--no-defaults", "-h", "127.0.0.1", "-P", str(port), "-u", "root", "--concurrency=8",
             "--iterations=2", "--number-of-queries=%d" % queries, "--auto-generate-sql",
             "--auto-generate-sql-load-type=mixed")
    run.stop(child)
    return "checksums equal, %d queries answered" % (2 * queries)
