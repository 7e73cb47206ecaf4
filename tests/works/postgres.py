"""PostgreSQL: a process for each connection. It refuses to run as root, so it runs as nobody then."""

import os
import pwd
import re

import shim
from matrix import CLIENTS, HANG, blob, digest, entry

NEEDS = ["initdb", "postgres", "pgbench", "psql"]


def account():
    """Popen's arguments for a user that is not root."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


class Server:
    def __init__(self, run):
        self.run = run
        self.port = shim.free_port()
        self.more = {**account(), "cwd": "/", "env": {"HOME": run.folder, "PGUSER": "tester", "PGHOST": "127.0.0.1",
                                                      "PGPORT": str(self.port), "PGSSLMODE": "disable"}}
        os.chmod(run.folder, 0o777)
        run.call("initdb", "-D", run.path("data"), "-U", "tester", "-A", "trust", "-N", "--locale=C", "-E", "UTF8",
                 plain=True, **self.more)
        self.child = run.serve(self.port, "postgres", "-D", run.path("data"), "-p", str(self.port), "-h", "127.0.0.1",
                               "-k", "", "-c", "fsync=off", "-c", "max_connections=50", **self.more)

    def call(self, *command, **more):
        return self.run.call(*command, **{**self.more, **more})

    def sql(self, text, *options):
        return self.call("psql", "-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", *options, "-c", text,
                         "postgres").strip()

    def stop(self):
        self.run.stop(self.child, number=2)


@entry("PostgreSQL", "pgbench: initialised, 8 clients, 2 threads, prepared and connecting anew", needs=NEEDS,
       version=["postgres", "--version"], at_least=60)
def postgres_pgbench(run):
    server = Server(run)
    scale = 20 if run.long else 3
    server.call("pgbench", "-i", "-q", "-s", str(scale), "postgres")
    done = 0
    for count, options in (500, []), (500, ["-M", "prepared"]), (5, ["-C"]):
        count *= 10 if run.long else 1
        said = server.call("pgbench", "-c", "8", "-j", "2", "-t", str(count), "-n", *options, "postgres")
        found = re.search(r"actually processed: (\d+)/(\d+)\n", said)
        run.must(found and found.group(1) == found.group(2) == str(8 * count), "transactions are missing", said)
        run.must("number of failed transactions: 0 " in said, "transactions failed", said)
        done += 8 * count
    run.same(server.sql("select count(*) from pgbench_history"), str(done), "transactions in the history")
    run.same(server.sql("select (select sum(abalance) from pgbench_accounts) = "
                        "(select sum(delta) from pgbench_history)"), "t",
             "the balances are the sums of what was booked")
    server.stop()
    return "%d transactions, none failed, balances right" % done


@entry("PostgreSQL", "COPY of 30 MB in and out, a large row, a cancelled query", needs=NEEDS,
       version=["postgres", "--version"], at_least=5)
def postgres_copy(run):
    server = Server(run)
    line = blob(480, 7).hex()
    data = "".join("%d\t%s\n" % (n, line) for n in range(300000 if run.long else 31000)).encode()
    source = run.write("in", data)
    server.sql("create table t (n int, v text)")
    server.sql("\\copy t from '%s'" % source)
    server.sql("\\copy (select * from t order by n) to '%s'" % run.path("out"))
    with open(run.path("out"), "rb") as f:
        run.same(digest(f.read()), digest(data), "octets copied out")
    row = server.sql("select md5(string_agg(v, '')), length(string_agg(v, '')), string_agg(v, '') "
                     "from t where n < 10000")
    md5, length, text = row.split("|")
    run.same((int(length), len(text), text == line * 10000), (9600000, 9600000, True), "the large row")
    run.must(len(md5) == 32, "md5", md5)
    # psql cancels by a second connection when it is interrupted.
    psql = run.start("psql", "-X", "-c", "select pg_sleep(600)", "postgres", side=CLIENTS, **server.more)
    sleeping = "select count(*) from pg_stat_activity where wait_event = 'PgSleep'"
    asleep = shim.until(lambda: server.sql(sleeping) == "1", HANG, 0.1)
    run.must(asleep, "the query does not run")
    psql.send_signal(2)
    run.same(shim.finish(psql, 20), 1, "status of psql after its query was cancelled")
    with open(run.logs[-1], encoding="utf-8") as f:
        run.must("canceling statement due to user request" in f.read(), "no word of the cancellation")
    server.stop()
    return "checksums equal, query cancelled"
