"""Apache's web server, in its ways to have processes and threads; graceful restarts."""

import os
import signal

import nginx
import shim
import webservers
from matrix import HANG, digest, entry

MODULES = "/usr/lib/apache2/modules"


def configure(run, port, mpm, more):
    os.mkdir(run.path("logs"))
    return run.write("httpd.conf", """
ServerRoot %s
ServerName localhost
Listen 127.0.0.1:%d
PidFile %s
Mutex file:%s
User nobody
Group nogroup
LoadModule mpm_%s_module %s/mod_mpm_%s.so
LoadModule authz_core_module %s/mod_authz_core.so
%s
MaxConnectionsPerChild 0
KeepAlive On
MaxKeepAliveRequests 0
ErrorLog %s
LogLevel notice
DocumentRoot %s
""" % (run.folder, port, run.path("pid"), run.path("logs"), mpm, MODULES, mpm, MODULES, more, run.path("error.log"), nginx.www(run)))


def serve(run, mpm, more):
    """Files by curl, requests by ab and wrk; and files once more behind a graceful restart."""
    port = shim.free_port()
    run.logs.append(run.write("error.log", "", mode=0o666))
    child = run.serve(port, "apache2", "-DFOREGROUND", "-f", configure(run, port, mpm, more),
                      start_new_session=True)  # (it ends its process group)

    def started():
        with open(run.path("error.log"), encoding="utf-8") as f:
            return f.read().count("resuming normal operations")
    nginx.fetch_all(run, port)
    webservers.bench(run, "http://127.0.0.1:%d/small" % port)
    child.send_signal(signal.SIGUSR1)
    run.must(shim.until(lambda: started() == 2, HANG), "it does not start again")
    for name, want in (("small", nginx.SMALL), ("big", nginx.BIG)) * 3:
        run.same(digest(run.curl("http://127.0.0.1:%d/%s" % (port, name))), digest(want), "octets of /" + name)
    run.stop(child)
    return "checksums of 1 kB and 50 MB, 600 requests and wrk's without errors"


NEEDS = ["apache2", "ab", "wrk", MODULES + "/mod_mpm_event.so"]
VERSION = ["apache2", "-v"]
# A process whose threads are all busy closes its kept connections, also by plain TCP: it has more threads than wrk has connections.
EVENT = "StartServers 2\nThreadsPerChild 64\nMinSpareThreads 1\nMaxSpareThreads 128\nMaxRequestWorkers 128\n"
AT_ONCE = "AcceptFilter http none\n"


@entry("Apache httpd", "MPM event, AcceptFilter none, restarted gracefully; curl, ab and wrk", needs=NEEDS, version=VERSION,
       at_least=330, stays_plain=nginx.CUT_SHORT)
def httpd_event(run):
    return serve(run, "event", EVENT + AT_ONCE)


@entry("Apache httpd", "MPM event, restarted gracefully; curl, ab and wrk", needs=NEEDS, version=VERSION, at_least=0,
       stays_plain={"defer-accept": 1000, "no-local-shim": 1000})  # its listener sets TCP_DEFER_ACCEPT
def httpd_defer(run):
    return serve(run, "event", EVENT)


# With one listener it waits in accept(), and not in its epoll set, in which the listener is. (A child whose first client is there already
# is taken for a program that waits unseen.)
@entry("Apache httpd", "MPM prefork, AcceptFilter none, restarted gracefully; curl, ab and wrk", needs=NEEDS, version=VERSION,
       at_least=200,
       stays_plain={"epoll-kind": 60, "hello-nak": 60, **nginx.CUT_SHORT})
def httpd_prefork(run):
    return serve(run, "prefork", "StartServers 40\nMinSpareServers 30\nMaxSpareServers 60\nMaxRequestWorkers 60\n" + AT_ONCE)
