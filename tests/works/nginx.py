"""nginx with two workers: static files in the ways it can send them, and as a proxy that keeps upstream connections."""

import collections
import os
import re

import shim
from matrix import blob, digest, entry

SMALL, BIG = blob(1000, 5), blob(50_000_000, 6)


def configure(run, name, servers, workers=2, sendfile="on", more=""):
    """Writes a configuration into a folder of its own; the folder's name."""
    folder = run.path(name)
    os.makedirs(os.path.join(folder, "tmp"))
    os.chmod(os.path.join(folder, "tmp"), 0o777)
    with open(os.path.join(folder, "nginx.conf"), "w", encoding="ascii") as f:
        f.write("""
daemon off;
worker_processes %d;
pid nginx.pid;
error_log stderr;
events { worker_connections 512; }
http {
    access_log access.log;
    sendfile %s;
    tcp_nopush %s;
    keepalive_requests 1000000;
    client_max_body_size 100m;
    client_body_temp_path tmp; proxy_temp_path tmp; fastcgi_temp_path tmp; uwsgi_temp_path tmp; scgi_temp_path tmp;
    %s
    %s
}
""" % (workers, sendfile, sendfile, more, servers))
    return folder


def www(run):
    os.makedirs(run.path("www"), exist_ok=True)
    run.write("www/small", SMALL)
    run.write("www/big", BIG)
    return run.path("www")


def serve(run, port, folder):
    return run.serve(port, "nginx", "-p", folder, "-c", "nginx.conf", "-e", "stderr")


def files(run):
    """An nginx that has both files: its port, itself, and its folder."""
    port = shim.free_port()
    folder = configure(run, "upstream", "server { listen 127.0.0.1:%d; root %s; }" % (port, www(run)))
    return port, serve(run, port, folder), folder


WRK_CONNECTIONS = 32
# wrk ends with requests under way: a proxy then gives up what it has begun for them.
CUT_SHORT = {"closed": WRK_CONNECTIONS}


def check_log(run, folder, count, what):
    """So many requests were logged, all of them with status 200, but for those that wrk did not wait for (499)."""
    with open(os.path.join(folder, "access.log"), encoding="ascii", errors="replace") as f:
        status = collections.Counter(line.split('" ')[1][:3] for line in f)
    run.must(status["200"] >= count and status["499"] <= WRK_CONNECTIONS and set(status) <= {"200", "499"},
             "%s: %d requests of status 200 are wanted" % (what, count), status)


def fetch_all(run, port):
    """Both files by curl, over one connection and by two, and wrk; how many requests wrk had answered."""
    url = "http://127.0.0.1:%d/" % port
    for name, want in ("small", SMALL), ("big", BIG):
        run.same(digest(run.curl(url + name)), digest(want), "octets of /" + name)
    twice = run.curl(url + "small", url + "small", url + "big")
    run.same(digest(twice), digest(SMALL + BIG + SMALL), "octets over one connection")
    return wrk(run, url + "small")


def wrk(run, url):
    said = run.call("wrk", "-t", "2", "-c", str(WRK_CONNECTIONS), "-d", "10s" if run.long else "1s", "--timeout",
                    "20s", url)
    found = re.search(r"(\d+) requests in", said)
    run.must(found and int(found.group(1)) > 0, "wrk was not served", said)
    run.must("Socket errors" not in said and "Non-2xx" not in said, "wrk saw errors", said)
    return int(found.group(1))


def static(run, sendfile, listen=""):
    port = shim.free_port()
    folder = configure(run, "nginx", "server { listen 127.0.0.1:%d %s; root %s; }" % (port, listen, www(run)),
                       sendfile=sendfile)
    child = serve(run, port, folder)
    count = fetch_all(run, port)
    run.stop(child, number=3)
    check_log(run, folder, count + 5, "nginx")
    return "checksums of 1 kB and 50 MB; wrk without errors"


@entry("nginx", "2 workers, sendfile on; curl and wrk", needs=["nginx", "wrk"], version=["nginx", "-v"], at_least=35)
def nginx_sendfile(run):
    return static(run, "on")


@entry("nginx", "2 workers, sendfile off; curl and wrk", needs=["nginx", "wrk"], version=["nginx", "-v"], at_least=35)
def nginx_no_sendfile(run):
    return static(run, "off")


@entry("nginx", "2 workers, listen with reuseport; curl and wrk", needs=["nginx", "wrk"], version=["nginx", "-v"],
       at_least=35)
def nginx_reuseport(run):
    return static(run, "on", "reuseport")


@entry("nginx", "as a proxy, 2 workers, keep-alive to an upstream that runs under sockwarp, too; curl and wrk",
       needs=["nginx", "wrk"], version=["nginx", "-v"], at_least=40, stays_plain=CUT_SHORT)
def nginx_proxy(run):
    front = shim.free_port()
    back, first, upstream = files(run)
    proxy = configure(run, "proxy", """
    upstream behind { server 127.0.0.1:%d; keepalive 16; }
    server {
        listen 127.0.0.1:%d;
        location / { proxy_pass http://behind; proxy_http_version 1.1; proxy_set_header Connection ""; }
    }""" % (back, front))
    children = [first, serve(run, front, proxy)]
    count = fetch_all(run, front)
    for child in children[::-1]:
        run.stop(child, number=3)
    check_log(run, proxy, count + 5, "proxy")
    check_log(run, upstream, count + 5, "upstream")
    return "checksums of 1 kB and 50 MB; wrk without errors"
