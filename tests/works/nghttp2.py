"""HTTP/2 by nghttp2: its server, its proxy before nginx, its client and its load generator."""

import re

import nginx
import shim
from matrix import digest, entry


def load(run, url):
    said = run.call("h2load", "-n", "2000", "-c", "10", "-m", "10", url)
    found = re.search(r"requests: 2000 total, 2000 started, 2000 done, 2000 succeeded, 0 failed, 0 errored", said)
    run.must(found, "not all requests succeeded", said)


@entry("nghttpd", "HTTP/2 without TLS: nghttp and h2load", needs=["nghttpd", "nghttp", "h2load"], version=["nghttpd", "--version"],
       at_least=11)
def nghttpd(run):
    port = shim.free_port()
    child = run.serve(port, "nghttpd", "--no-tls", "-a", "127.0.0.1", "-d", nginx.www(run), str(port))
    url = "http://127.0.0.1:%d/" % port
    run.same(digest(run.call("nghttp", url + "big", text=False)), digest(nginx.BIG), "octets of /big")
    load(run, url + "small")
    run.stop(child, status=None)
    return "checksum of 50 MB; 2,000 requests without errors"


@entry("nghttpx", "HTTP/2 to HTTP/1.1 before nginx: nghttp and h2load", needs=["nghttpx", "nghttp", "h2load", "nginx"],
       version=["nghttpx", "--version"], at_least=12,
       stays_plain={"defer-accept": 1000, "no-local-shim": 1000})  # its listener sets TCP_DEFER_ACCEPT
def nghttpx(run):
    front = shim.free_port()
    back, first, _ = nginx.files(run)
    children = [first,
                run.serve(front, "nghttpx", "--conf=/dev/null", "-f127.0.0.1,%d;no-tls" % front, "-b127.0.0.1,%d" % back,
                          "--workers=2", "--errorlog-file=/dev/stderr", "--accesslog-file=/dev/null")]
    url = "http://127.0.0.1:%d/" % front
    run.same(digest(run.call("nghttp", url + "big", text=False)), digest(nginx.BIG), "octets of /big")
    load(run, url + "small")
    run.stop(children[1], status=None)
    run.stop(children[0], number=3)
    return "checksum of 50 MB; 2,000 requests without errors"
