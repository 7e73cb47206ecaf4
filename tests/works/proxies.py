"""HTTP proxies between curl and nginx: privoxy, a thread for each connection, and tinyproxy."""

import shim
import nginx
from matrix import digest, entry


def through(run, command, config):
    """Both files over each of some connections, and two over one."""
    front = shim.free_port()
    back, first, _ = nginx.files(run)
    children = [first, run.serve(front, *command, run.write("config", config % front))]
    url, proxy = "http://127.0.0.1:%d/" % back, ("--proxy", "http://127.0.0.1:%d" % front, "--noproxy", "")
    for _ in range(2):
        for name, want in ("small", nginx.SMALL), ("big", nginx.BIG):
            run.same(digest(run.curl(url + name, *proxy)), digest(want), "octets of /" + name)
    twice = run.curl(url + "small", url + "small", url + "big", *proxy)
    run.same(digest(twice), digest(nginx.SMALL + nginx.BIG + nginx.SMALL), "octets of three requests")
    run.stop(children[1], status=None)
    run.stop(children[0], number=3)
    return "checksums of 150 MB equal"


@entry("privoxy", "between curl and nginx", needs=["privoxy", "nginx"], version=["privoxy", "--version"], at_least=8)
def privoxy(run):
    return through(run, ("privoxy", "--no-daemon"), "listen-address 127.0.0.1:%d\ntoggle 0\nkeep-alive-timeout 5\n")


@entry("tinyproxy", "between curl and nginx", needs=["tinyproxy", "nginx"], version=["tinyproxy", "-v"], at_least=8)
def tinyproxy(run):
    return through(run, ("tinyproxy", "-d", "-c"), "Listen 127.0.0.1\nPort %d\nTimeout 60\nMaxClients 50\nAllow 127.0.0.1\n")
