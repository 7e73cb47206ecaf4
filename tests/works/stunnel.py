"""stunnel: TLS between a client's stunnel and a server's, nginx behind it."""

import nginx
import shim
from matrix import digest, entry

CERTIFICATE = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=here"]


@entry("stunnel", "curl, stunnel as TLS client, stunnel as TLS server, nginx", needs=["stunnel", "nginx", "openssl"],
       version=["stunnel", "-version"], at_least=9)
def stunnel_pair(run):
    tls, front = shim.free_port(), shim.free_port()
    back, first, _ = nginx.files(run)
    run.call(*CERTIFICATE, "-keyout", run.path("key"), "-out", run.path("cert"), plain=True)
    common = "foreground = yes\npid =\ndebug = 4\n"
    server = run.write("server", common + "[s]\naccept = 127.0.0.1:%d\nconnect = 127.0.0.1:%d\ncert = %s\nkey = %s\n" %
                       (tls, back, run.path("cert"), run.path("key")))
    client = run.write("client", common + "[c]\nclient = yes\naccept = 127.0.0.1:%d\nconnect = 127.0.0.1:%d\n" % (front, tls))
    children = [first, run.serve(tls, "stunnel", server), run.serve(front, "stunnel", client)]
    for name, want in ("small", nginx.SMALL), ("big", nginx.BIG), ("small", nginx.SMALL):
        run.same(digest(run.curl("http://127.0.0.1:%d/%s" % (front, name))), digest(want), "octets of /" + name)
    for child in children[:0:-1]:
        run.stop(child, status=None)
    run.stop(children[0], number=3)
    return "checksums of 1 kB and 50 MB equal"
