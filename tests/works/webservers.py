"""Other web servers, with curl and ab (a connection for each request, and kept ones)."""

import os
import re
import signal

import shim
from matrix import blob, digest, entry


def bench(run, url, count=300):
    """ab's requests, with and without connections that are kept."""
    for options in ([], ["-k"]):
        said = run.call("ab", "-q", *options, "-n", str(count), "-c", "10", url)
        found = dict(re.findall(r"^(Complete requests|Failed requests): +(\d+)", said, re.M))
        run.same(found, {"Complete requests": str(count), "Failed requests": "0"}, "ab's requests")


@entry("lighttpd", "curl, 4 MB; ab", needs=["lighttpd", "ab"], version=["lighttpd", "-v"], at_least=300)
def lighttpd(run):
    port = shim.free_port()
    os.mkdir(run.path("www"))
    run.write("www/big", blob(4 << 20))
    run.write("www/small", blob(1000))
    conf = run.write("conf", 'server.document-root = "%s"\nserver.port = %d\nserver.bind = "127.0.0.1"\n' % (run.path("www"), port))
    child = run.serve(port, "lighttpd", "-D", "-f", conf)
    run.same(digest(run.curl("http://127.0.0.1:%d/big" % port)), digest(blob(4 << 20)), "checksum")
    bench(run, "http://127.0.0.1:%d/small" % port)
    run.stop(child, number=signal.SIGINT, status=None)
    return "checksum of 4 MB, 600 requests without errors"


@entry("PHP", "its own server; ab", needs=["php", "ab"], version=["php", "-v"], at_least=600,
       stays_plain={"closed": 10})  # ab leaves some that it has not used
def php(run):
    port = shim.free_port()
    run.write("i.php", '<?php echo str_repeat("php ", 1000);')
    child = run.serve(port, "php", "-n", "-S", "127.0.0.1:%d" % port, "-t", run.folder)
    run.same(run.curl("http://127.0.0.1:%d/i.php" % port), b"php " * 1000, "the answer")
    bench(run, "http://127.0.0.1:%d/i.php" % port)
    run.stop(child, number=signal.SIGINT, status=None)
    return "600 requests without errors"


RACK = """
run lambda { |e| [200, { "content-type" => "text/plain" }, ["a" * 100000 + e["rack.input"].read.size.to_s]] }
"""


@entry("Puma", "4 threads; curl sends 3 MB; ab", needs=["puma", "ab"], version=["puma", "--version"], at_least=100)
def puma(run):
    port = shim.free_port()
    child = run.serve(port, "puma", "-t", "4:4", "-b", "tcp://127.0.0.1:%d" % port, run.write("config.ru", RACK))
    url = "http://127.0.0.1:%d/" % port
    run.same(run.curl(url, "--data-binary", "@" + run.write("b", bytes(3 << 20))), b"a" * 100000 + str(3 << 20).encode(), "the answer")
    bench(run, url, 100)
    run.stop(child, number=signal.SIGTERM, status=None)
    return "3 MB sent, 200 requests without errors"
