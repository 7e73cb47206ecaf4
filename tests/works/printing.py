"""CUPS: its scheduler, the programs that print and ask by IPP over TCP."""

import os

import shim
from matrix import HANG, blob, entry, file_digest

FILES = """
FileDevice Yes
ServerRoot %(folder)s
CacheDir %(folder)s/cache
StateDir %(folder)s/state
RequestRoot %(folder)s/spool
TempDir %(folder)s/spool/tmp
ErrorLog stderr
AccessLog %(folder)s/access
PageLog %(folder)s/page
Printcap
SystemGroup %(group)s
"""
CUPSD = """
LogLevel warn
PreserveJobFiles Yes
Listen 127.0.0.1:%d
Browsing Off
DefaultAuthType None
WebInterface No
<Location />
  Order allow,deny
  Allow all
</Location>
<Location /admin>
  Order allow,deny
  Allow all
</Location>
<Policy default>
  <Limit All>
    Order deny,allow
  </Limit>
</Policy>
"""


@entry("CUPS", "cupsd; lpadmin, lp of 5 MB, lpstat, ipptool", needs=["cupsd", "lpadmin", "lp", "lpstat", "ipptool"],
       version=["dpkg-query", "-W", "cups-daemon"], at_least=5)
def cups(run):
    port = shim.free_port()
    for name in "cups", "cups/cache", "cups/state", "cups/spool", "cups/spool/tmp":
        os.mkdir(run.path(name))
    config = run.write("cups/cupsd.conf", CUPSD % port)
    files = run.write("cups/cups-files.conf", FILES % {"folder": run.path("cups"), "group": "root"})
    child = run.serve(port, "cupsd", "-f", "-c", config, "-s", files)
    where = ["-h", "127.0.0.1:%d" % port]
    run.call("lpadmin", *where, "-p", "p", "-E", "-v", "file:///dev/null")
    sent = run.write("sent", blob(5_000_000, 91))
    run.must("request id" in run.call("lp", *where, "-d", "p", "-o", "raw", sent), "lp")
    run.must(shim.until(lambda: "p-1" in run.call("lpstat", *where, "-W", "all", "-o"), HANG, 0.1), "the job is there")
    run.same(file_digest(run.path("cups/spool/d00001-001")), file_digest(sent), "the file that was sent")
    said = run.call("ipptool", "-t", "ipp://127.0.0.1:%d/printers/p" % port, "get-jobs.test")
    run.must("[PASS]" in said and "FAIL" not in said, "ipptool", said)
    run.stop(child)
    return "5 MB in the queue"
