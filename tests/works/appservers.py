"""Servers of web applications: uWSGI, gunicorn, aiohttp and Tornado, Starman and Mojolicious, PHP-FPM. curl and ab; an answer says
how many octets were sent, and what their digest is."""

import os

import nginx
import shim
from matrix import PACKAGES, PYTHON, blob, digest, entry
from webservers import bench

BODY = blob(3_000_000, 31)
ANSWER = b"answer " * 20000

WSGI = """
import hashlib

def application(environ, start_response):
    whole, left = hashlib.sha256(), int(environ.get("CONTENT_LENGTH") or 0)
    while left > 0 and (data := environ["wsgi.input"].read(min(left, 50000))):
        left -= len(data)
        whole.update(data)
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(140000 + 64))])
    return [b"answer " * 10000, b"answer " * 10000 + whole.hexdigest().encode()]
"""


def ab(run, url):
    bench(run, url, 100)
    return "200 requests"


def wrk(run, url):
    nginx.wrk(run, url)
    return "wrk"


def check(run, port, load):
    """A body is sent, ten times over one connection and once alone, and comes back as its digest; then the load."""
    url = "http://127.0.0.1:%d/" % port
    run.same(digest(run.curl(url)), digest(ANSWER + digest(b"").encode()), "the answer")
    sends = ["-H", "Expect:", "-H", "Content-Type: application/octet-stream", "--data-binary", "@" + run.write("body", BODY)]
    for times in 1, 10:
        got = run.curl(url, *sends, *[url] * (times - 1))
        run.same(digest(got), digest((ANSWER + digest(BODY).encode()) * times), "the answer to 3 MB")
    return "11 digests of 3 MB, %s without errors" % load(run, url)


def alone(run, *command, load=ab, **more):
    """A server whose command has %d where its port belongs."""
    port = shim.free_port()
    child = run.serve(port, *(word.replace("%d", str(port)) for word in command), cwd=run.folder, **more)
    said = check(run, port, load)
    run.stop(child, status=None)
    return said


def behind_nginx(run, location, back, child):
    """The same behind nginx, which speaks another protocol to it."""
    front = shim.free_port()
    folder = nginx.configure(run, "front", "server { listen 127.0.0.1:%d; location / { %s } }" % (front, location % back))
    proxy = nginx.serve(run, front, folder)
    said = check(run, front, ab)
    run.stop(proxy, number=3)
    run.stop(child, status=None)
    return said


UWSGI = ["uwsgi", "--plugin", "python3", "--wsgi-file", "app.py", "--master", "--processes", "2", "--threads", "2", "--die-on-term",
         "--disable-logging", "--need-app"]
DEFERS = {"defer-accept": 1000, "no-local-shim": 1000}  # its listener sets TCP_DEFER_ACCEPT
UWSGI_NEEDS = ["uwsgi", "/usr/lib/uwsgi/plugins/python311_plugin.so", "ab"]


@entry("uWSGI", "behind nginx (uwsgi_pass); curl and ab", needs=[*UWSGI_NEEDS, "nginx"], version=["uwsgi", "--version"], at_least=100,
       stays_plain=DEFERS)
def uwsgi_nginx(run):
    back = shim.free_port()
    run.write("app.py", WSGI)
    with open("/etc/nginx/uwsgi_params", encoding="ascii") as f:
        run.write("uwsgi_params", f.read())
    child = run.serve(back, *UWSGI, "--socket", "127.0.0.1:%d" % back, cwd=run.folder)
    return behind_nginx(run, "include ../uwsgi_params; uwsgi_pass 127.0.0.1:%d;", back, child)


def gunicorn(run, *options):
    run.write("app.py", WSGI)
    return alone(run, "gunicorn", "--bind", "127.0.0.1:%d", "--workers", "2", "--log-level", "warning", "--worker-tmp-dir", run.folder,
                 *options, "app:application", env={"PYTHONDONTWRITEBYTECODE": "1"})


for worker, module, options in (("sync", None, []), ("gthread", None, ["--threads", "4"]), ("gevent", "gevent", []),
                                ("tornado", "tornado", [])):
    def one(run, words=("-k", worker, *options)):
        return gunicorn(run, *words)
    one.__name__ = "gunicorn_" + worker
    entry("gunicorn", "2 workers of kind %s; curl and ab" % worker, needs=["gunicorn", "ab", *([PACKAGES + module] if module else [])],
          version=["gunicorn", "--version"], at_least=100,
          # A worker of this kind accepts before it waits for the first time: a client may be there then.
          stays_plain={"epoll-kind": 2, "hello-nak": 2} if worker == "sync" else None)(one)


AIOHTTP = """
import hashlib, sys
import uvloop
from aiohttp import web

async def answer(request):
    whole = hashlib.sha256()
    async for data in request.content.iter_any():
        whole.update(data)
    return web.Response(body=b"answer " * 20000 + whole.hexdigest().encode())

uvloop.install()
app = web.Application()
app.add_routes([web.route("*", "/", answer)])
web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), print=None)
"""


@entry("aiohttp", "by uvloop; curl and ab", needs=[PACKAGES + "aiohttp", PACKAGES + "uvloop", "ab"],
       version=[PYTHON, "-c", "import aiohttp; print(aiohttp.__version__)"], at_least=100)
def aiohttp_uvloop(run):
    return alone(run, PYTHON, run.write("app.py", AIOHTTP), "%d")


TORNADO = """
import hashlib, os, signal, sys
import tornado.httpserver, tornado.ioloop, tornado.process, tornado.netutil, tornado.web

@tornado.web.stream_request_body
class Answer(tornado.web.RequestHandler):
    def prepare(self):
        self.whole = hashlib.sha256()

    def data_received(self, data):
        self.whole.update(data)

    def get(self):
        self.write(b"answer " * 20000 + self.whole.hexdigest().encode())

    post = get

def end(*_):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.killpg(0, signal.SIGTERM)

os.setpgrp()
signal.signal(signal.SIGTERM, end)
sockets = tornado.netutil.bind_sockets(int(sys.argv[1]), "127.0.0.1")
tornado.process.fork_processes(2)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
tornado.httpserver.HTTPServer(tornado.web.Application([("/", Answer)])).add_sockets(sockets)
tornado.ioloop.IOLoop.current().start()
"""


@entry("Tornado", "2 processes with one listener; curl and ab", needs=[PACKAGES + "tornado", "ab"],
       version=[PYTHON, "-c", "import tornado; print(tornado.version)"], at_least=100)
def tornado(run):
    return alone(run, PYTHON, run.write("app.py", TORNADO), "%d")


PSGI = """
use Digest::SHA;
sub {
    my $env = shift;
    my ($whole, $left) = (Digest::SHA->new(256), $env->{CONTENT_LENGTH} || 0);
    while ($left > 0 && (my $got = $env->{"psgi.input"}->read(my $data, $left > 50000 ? 50000 : $left))) {
        $left -= $got;
        $whole->add($data);
    }
    return [200, ["Content-Type" => "text/plain", "Content-Length" => 140064], ["answer " x 20000, $whole->hexdigest]];
};
"""


@entry("Starman", "12 processes; curl and ab", needs=["starman", "ab"], version=["dpkg-query", "-W", "starman"], at_least=100)
def starman(run):
    return alone(run, "starman", "--listen", "127.0.0.1:%d", "--workers", "12", run.write("app.psgi", PSGI))


MOJOLICIOUS = """
use Mojolicious::Lite -signatures;
use Digest::SHA "sha256_hex";
app->log->level("error");
app->max_request_size(100_000_000);
any "/" => sub ($c) { $c->render(data => "answer " x 20000 . sha256_hex($c->req->body)) };
app->start;
"""


@entry("Mojolicious", "its daemon; curl and wrk", needs=["perl", "/usr/share/perl5/Mojolicious.pm", "wrk"],
       version=["dpkg-query", "-W", "libmojolicious-perl"], at_least=30)
def mojolicious(run):
    return alone(run, "perl", run.write("app.pl", MOJOLICIOUS), "daemon", "-l", "http://127.0.0.1:%d",
                 load=wrk, env={"MOJO_TMPDIR": run.folder})


PHP = """<?php
$whole = hash_init("sha256");
$in = fopen("php://input", "rb");
while (($data = fread($in, 50000)) !== false && $data !== "") hash_update($whole, $data);
echo str_repeat("answer ", 20000), hash_final($whole);
"""


def fpm():
    """The name has PHP's version."""
    return next((name for name in sorted(os.listdir("/usr/sbin")) if name.startswith("php-fpm")), "php-fpm")


@entry("PHP-FPM", "4 processes behind nginx (fastcgi_pass); curl and ab", needs=[fpm(), "nginx", "ab"],
       version=[fpm(), "-v"], at_least=200)
def php_fpm(run):
    back = shim.free_port()
    script = run.write("app.php", PHP)
    run.logs.append(run.write("fpm.log", "", mode=0o666))
    config = run.write("fpm.conf", """
[global]
error_log = %s
daemonize = no
[www]
user = nobody
group = nogroup
listen = 127.0.0.1:%d
pm = static
pm.max_children = 4
""" % (run.path("fpm.log"), back))
    child = run.serve(back, fpm(), "-n", "-F", "-y", config)
    fields = ("QUERY_STRING $query_string", "REQUEST_METHOD $request_method", "CONTENT_TYPE $content_type",
              "CONTENT_LENGTH $content_length", "SCRIPT_FILENAME " + script)
    return behind_nginx(run, " ".join("fastcgi_param %s;" % field for field in fields) + " fastcgi_pass 127.0.0.1:%d;", back, child)
