"""haproxy between curl or wrk and nginx: splicing, and with TLS at either side."""

import shim
import nginx
import stunnel
from matrix import digest, entry


def through(run, mode):
    front = shim.free_port()
    back, first, upstream = nginx.files(run)
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
    children = [first, run.serve(front, "haproxy", "-db", "-f", config)]
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


COMMON = """
global
    nbthread 1
    maxconn 500
    hard-stop-after 1s
defaults
    mode http
    timeout connect 20s
    timeout client 60s
    timeout server 60s
listen one
"""


@entry("haproxy", "TLS before nginx, and between two of it; curl (also by HTTP/2) and wrk", needs=["haproxy", "nginx", "wrk", "openssl"],
       version=["haproxy", "-v"], at_least=70, stays_plain=nginx.CUT_SHORT)
def haproxy_tls(run):
    tls, front = shim.free_port(), shim.free_port()
    run.call(*stunnel.CERTIFICATE, "-keyout", run.path("pem"), "-out", run.path("cert"), plain=True)
    with open(run.path("pem"), "ab") as pem, open(run.path("cert"), "rb") as cert:
        pem.write(cert.read())
    back, first, _ = nginx.files(run)
    outer = run.write("outer.cfg", COMMON + "    bind 127.0.0.1:%d\n    server one 127.0.0.1:%d ssl verify none\n" % (front, tls))
    inner = run.write("inner.cfg", COMMON + "    bind 127.0.0.1:%d ssl crt %s alpn h2,http/1.1\n    server one 127.0.0.1:%d\n" %
                      (tls, run.path("pem"), back))
    children = [first, run.serve(tls, "haproxy", "-db", "-f", inner),
                run.serve(front, "haproxy", "-db", "-f", outer)]
    for version in "--http1.1", "--http2":
        for name, want in ("small", nginx.SMALL), ("big", nginx.BIG):
            got = run.curl("https://127.0.0.1:%d/%s" % (tls, name), version, "--insecure")
            run.same(digest(got), digest(want), "octets of /" + name)
    nginx.wrk(run, "https://127.0.0.1:%d/small" % tls)
    nginx.fetch_all(run, front)
    for child in children[:0:-1]:
        run.stop(child, number=10)
    run.stop(children[0], number=3)
    return "checksums of 1 kB and 50 MB; wrk without errors"
