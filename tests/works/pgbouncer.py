"""pgbouncer between psql or pgbench and PostgreSQL."""

import re

import postgres
import shim
from matrix import entry


@entry("pgbouncer", "between pgbench and PostgreSQL: transactions, and connecting anew", needs=["pgbouncer", *postgres.NEEDS],
       version=["pgbouncer", "--version"], at_least=5,
       stays_plain={"defer-accept": 1000, "no-local-shim": 1000})  # its listener sets TCP_DEFER_ACCEPT
def pgbouncer(run):
    server = postgres.Server(run)
    port = shim.free_port()
    run.write("users", '"tester" ""\n')
    config = run.write("pgbouncer.ini", """
[databases]
postgres = host=127.0.0.1 port=%d dbname=postgres user=tester
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
auth_file = %s
pool_mode = transaction
default_pool_size = 5
ignore_startup_parameters = extra_float_digits
""" % (server.port, port, run.path("users")))
    child = run.serve(port, "pgbouncer", config, **server.more)
    server.call("pgbench", "-i", "-q", "-s", "1", "postgres")
    done = 0
    for count, options in (100, []), (3, ["-C"]):
        said = server.call("pgbench", "-p", str(port), "-c", "4", "-j", "2", "-t", str(count), "-n", *options, "postgres")
        found = re.search(r"actually processed: (\d+)/(\d+)\n", said)
        run.must(found and found.group(1) == found.group(2) == str(4 * count), "transactions are missing", said)
        done += 4 * count
    run.same(server.sql("select count(*) from pgbench_history"), str(done), "transactions in the history")
    run.stop(child, number=2, status=None)
    server.stop()
    return "%d transactions, none failed" % done
