"""haproxy between curl or wrk and nginx, splicing."""

import shim
import nginx
from matrix import entry


def through(run, mode):
    ports = set()
    while len(ports) < 2:
        ports.add(shim.free_port())
    back, front = ports
    upstream = nginx.configure(run, "upstream", "server { listen 127.0.0.1:%d; root %s; }" % (back, nginx.www(run)))
    config = run.write("haproxy.cfg", """
global
    nbthread 2
    maxconn 500
defaults
    mode %s
    option splice-auto
    timeout connect 20s
    timeout client 60s
    timeout server 60s
frontend front
    bind 127.0.0.1:%d
    default_backend behind
backend behind
    server one 127.0.0.1:%d
""" % (mode, front, back))
    children = [nginx.serve(run, back, upstream), run.serve(front, "haproxy", "-db", "-f", config)]
    count = nginx.fetch_all(run, front)
    run.stop(children[1], number=10)
    run.stop(children[0], number=3)
    nginx.check_log(run, upstream, count + 5, "nginx")
    return "checksums of 1 kB and 50 MB; wrk without errors"


@entry("haproxy", "mode tcp, option splice-auto, before nginx; curl and wrk", needs=["haproxy", "nginx", "wrk"],
       version=["haproxy", "-v"], at_least=70, stays_plain=nginx.CUT_SHORT)
def haproxy_tcp(run):
    return through(run, "tcp")


@entry("haproxy", "mode http, option splice-auto, before nginx; curl and wrk", needs=["haproxy", "nginx", "wrk"],
       version=["haproxy", "-v"], at_least=40, stays_plain=nginx.CUT_SHORT)
def haproxy_http(run):
    return through(run, "http")
