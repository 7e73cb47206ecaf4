"""HTTP caches before nginx: Varnish, and squid as the proxy that curl is told."""

import os
import pwd

import nginx
import proxies
import shim
from matrix import entry


@entry("Varnish", "before nginx, its cache in memory; curl and wrk", needs=["varnishd", "nginx", "wrk", "gcc"], version=["varnishd", "-V"],
       at_least=35, stays_plain=nginx.CUT_SHORT)
def varnish(run):
    front = shim.free_port()
    back, first, upstream = nginx.files(run)
    children = [first,
                run.serve(front, "varnishd", "-F", "-j", "none", "-n", run.path("varnish"), "-a", "127.0.0.1:%d" % front,
                          "-b", "127.0.0.1:%d" % back, "-s", "malloc,200m", "-T", "none")]
    nginx.fetch_all(run, front)
    run.stop(children[1])
    run.stop(children[0], number=3)
    with open(os.path.join(upstream, "access.log"), encoding="ascii") as f:
        asked = f.read().count('" 200 ')
    run.same(asked, 2, "requests that the cache did not answer")
    return "checksums of 1 kB and 50 MB; wrk without errors; each file fetched once"


SQUID = """
http_port 127.0.0.1:%%d
http_access allow all
pid_filename none
cache_log %(log)s
access_log none
cache_store_log none
coredump_dir %(folder)s
netdb_filename none
pinger_enable off
visible_hostname here
shutdown_lifetime 0 seconds
cache_mem 200 MB
maximum_object_size_in_memory 100 MB
cache_effective_user %(user)s
"""


# As root it makes its socket as root and listens as another user: its names are not that socket's owner's, so it is not asked.
@entry("squid", "between curl and nginx", needs=["squid", "nginx"], version=["squid", "-v"], at_least=1,
       stays_plain={"no-local-shim": 10, "peer-plain": 10})
def squid(run):
    run.logs.append(run.write("cache.log", "", mode=0o666))
    user = "nobody" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
    return proxies.through(run, ("squid", "-N", "-f"), SQUID % {"log": run.path("cache.log"), "folder": run.folder, "user": user})
