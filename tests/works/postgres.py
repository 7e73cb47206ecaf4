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


def start(run, port, data, more):
    """A server that listens before it is ready, which it says."""
    return run.serve(int(port), "postgres", "-D", data, "-p", str(port), "-h", "127.0.0.1", "-k", "", "-c", "fsync=off",
                     "-c", "max_connections=50", says="system is ready to accept", **more)


class Server:
    def __init__(self, run):
        self.run = run
        self.port = shim.free_port()
        self.more = {**account(), "cwd": "/", "env": {"HOME": run.folder, "PGUSER": "tester", "PGHOST": "127.0.0.1",
                                                      "PGPORT": str(self.port), "PGSSLMODE": "disable"}}
        os.chmod(run.folder, 0o777)
        run.call("initdb", "-D", run.path("data"), "-U", "tester", "-A", "trust", "-N", "--locale=C", "-E", "UTF8",
                 plain=True, **self.more)
        self.child = start(run, self.port, run.path("data"), self.more)

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


@entry("PostgreSQL", "streaming replication: pg_basebackup, a standby that follows pgbench, and is promoted",
       needs=[*NEEDS, "pg_basebackup"], version=["postgres", "--version"], at_least=15,
       stays_plain={"no-local-shim": 3})  # the standby asks in vain once the first one has stopped
def postgres_replication(run):
    server = Server(run)
    server.call("pgbench", "-i", "-q", "-s", "2", "postgres")
    port = str(shim.free_port())
    server.call("pg_basebackup", "-D", run.path("standby"), "-R", "-X", "stream", "-c", "fast")
    standby = start(run, port, run.path("standby"), server.more)
    said = server.call("pgbench", "-c", "4", "-j", "2", "-t", "300", "-n", "postgres")
    run.must("actually processed: 1200/1200\n" in said, "transactions are missing", said)
    at = server.sql("select pg_current_wal_lsn()")
    follows = "select pg_last_wal_replay_lsn() >= '%s'" % at
    run.must(shim.until(lambda: server.sql(follows, "-p", port) == "t", HANG, 0.1), "the standby does not follow")
    state = "select count(*), md5(string_agg(h::text, ',' order by h::text)) from pgbench_history h"
    accounts = "select md5(string_agg(aid || ':' || abalance, ',' order by aid)) from pgbench_accounts"
    want = [server.sql(question) for question in (state, accounts)]
    run.must(want[0].startswith("1200|"), "transactions in the history", want)
    run.same([server.sql(question, "-p", port) for question in (state, accounts)], want, "what the standby has")
    server.stop()
    run.same(server.sql("select pg_promote()", "-p", port), "t", "the promotion")
    server.sql("insert into pgbench_history (tid) values (1)", "-p", port)
    run.same(server.sql("select count(*) from pgbench_history", "-p", port), "1201", "rows of the promoted one")
    run.stop(standby, number=2)
    return "1,200 transactions, equal on both; the standby goes on alone"
