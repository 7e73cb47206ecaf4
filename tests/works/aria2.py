"""aria2: a file over eight connections at once."""

import nginx
from matrix import digest, entry, file_digest


@entry("aria2", "50 MB from nginx over 8 connections", needs=["aria2c", "nginx"], version=["aria2c", "--version"], at_least=8)
def aria2(run):
    port, child, _ = nginx.files(run)
    run.call("aria2c", "-q", "--no-conf", "-x", "8", "-s", "8", "-k", "1M", "-d", run.folder, "-o", "got",
             "http://127.0.0.1:%d/big" % port)
    run.same(file_digest(run.path("got")), digest(nginx.BIG), "the file")
    run.stop(child, number=3)
    return "checksum of 50 MB equal"
