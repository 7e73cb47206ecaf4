"""Go makes system calls without libc: its programs are not reached, stay plain, and talk to others that are."""

import os

import shim
import nginx
from matrix import CLIENTS, SERVERS, Wrong, digest, entry

CLIENT = r"""
package main

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"os"
)

func main() {
	seen := map[string]int{}
	for n := 0; n < 100; n++ {
		path := "/small"
		if n%50 == 49 {
			path = "/big"
		}
		answer, err := http.Get("http://127.0.0.1:" + os.Args[1] + path)
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		whole := sha256.New()
		if _, err := io.Copy(whole, answer.Body); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		answer.Body.Close()
		seen[fmt.Sprintf("%s %x", path, whole.Sum(nil))]++
	}
	for what, count := range seen {
		fmt.Println(what, count)
	}
}
"""

SERVER = r"""
package main

import (
	"net/http"
	"os"
)

func main() {
	panic(http.ListenAndServe("127.0.0.1:"+os.Args[1], http.FileServer(http.Dir(os.Args[2]))))
}
"""

built = {}


def build(run, name, source):
    """Compiles it, once, without cgo: statically linked."""
    if name not in built:
        folder = shim.path("go")
        os.makedirs(os.path.join(folder, name), exist_ok=True)
        with open(os.path.join(folder, name, "main.go"), "w", encoding="ascii") as f:
            f.write(source)
        out = os.path.join(folder, name, name)
        run.call("go", "build", "-o", out, os.path.join(folder, name, "main.go"), plain=True,
                 env={"CGO_ENABLED": "0", "GOCACHE": os.path.join(folder, "cache"), "GOPATH": folder,
                      "GO111MODULE": "off",
                      "GOFLAGS": "", "HOME": folder})
        built[name] = out
    return built[name]


def static(path):
    with open(path, "rb") as f:
        return b"/ld-linux" not in f.read(4096)


@entry("Go", "static http client, from nginx under sockwarp: plain", needs=["go", "nginx"], version=["go", "version"],
       at_least=0,
       stays_plain={"peer-plain": 100})
def go_client(run):
    client = build(run, "client", CLIENT)
    run.must(static(client), "the client is not static")
    port, child, _ = nginx.files(run)
    said = run.call(client, str(port))
    run.same(sorted(said.splitlines()), ["/big %s 2" % digest(nginx.BIG), "/small %s 98" % digest(nginx.SMALL)],
             "digests")
    run.stop(child, number=3)
    lines = shim.stats(run.stats)
    if run.shims(SERVERS) and (not lines or [line for line in lines if line["program"] != "nginx" or line["reason"] != "peer-plain"]):
        raise Wrong("nginx's statistics: " + shim.brief(lines))
    return "checksums of 100 answers equal"


@entry("Go", "static http server, curl under sockwarp: plain", needs=["go"], version=["go", "version"], at_least=0,
       stays_plain={"no-local-shim": 3})
def go_server(run):
    server = build(run, "server", SERVER)
    port = shim.free_port()
    folder = nginx.www(run)
    child = run.serve(port, server, str(port), folder)
    for name, want in ("small", nginx.SMALL), ("big", nginx.BIG), ("small", nginx.SMALL):
        run.same(digest(run.curl("http://127.0.0.1:%d/%s" % (port, name))), digest(want), "octets of " + name)
    if run.shims(CLIENTS):
        run.same([line["reason"] for line in shim.stats(run.stats)], ["no-local-shim"] * 3, "curl's statistics")
    run.stop(child, status=None)
    return "checksums equal"
