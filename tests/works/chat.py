"""Chat servers: ngircd, two of it that are one network, and Prosody (Lua)."""

import os
import sys

import shim
from matrix import entry

IRC = """
[Global]
Name = %(name)s.here
Info = x
Ports = %(port)d
Listen = 127.0.0.1
[Options]
DNS = no
Ident = no
PAM = no
SyslogFacility = local1
[Limits]
MaxConnections = 0
MaxConnectionsIP = 0
PingTimeout = 600
ConnectRetry = 1
[Server]
Name = %(other)s.here
Host = 127.0.0.1
MyPassword = p
PeerPassword = p
%(more)s
"""

# Ten on each server; each says four things that all others must hear in order.
IRC_CLIENT = r"""
import collections, selectors, socket, sys
ports, each, said = [int(word) for word in sys.argv[1:3]], 10, 4
class Client:
    pass
clients = []
for n in range(2 * each):
    c = Client()
    c.name, c.sock = "u%d" % n, socket.create_connection(("127.0.0.1", ports[n % 2]))
    c.rest, c.joined, c.heard = b"", set(), collections.defaultdict(list)
    c.sock.sendall(b"NICK %s\r\nUSER %s 0 * :x\r\n" % (c.name.encode(), c.name.encode()))
    clients.append(c)
selector = selectors.DefaultSelector()
for c in clients:
    selector.register(c.sock, selectors.EVENT_READ, c)
def turn(done):
    while not all(done(c) for c in clients):
        for key, _ in selector.select():
            c = key.data
            data = c.sock.recv(65536)
            assert data, c.name
            *lines, c.rest = (c.rest + data).split(b"\r\n")
            for line in lines:
                word = line.decode().split(" ")
                if word[0] == "PING":
                    c.sock.sendall(b"PONG " + word[1].encode() + b"\r\n")
                elif word[1] == "001":
                    c.sock.sendall(b"JOIN #c\r\n")
                elif word[1] == "JOIN":
                    c.joined.add(word[0][1:].split("!")[0])
                elif word[1] == "353":
                    c.joined |= {name.lstrip("@:+") for name in word[5:] if name.strip(":")}
                elif word[1] == "PRIVMSG":
                    c.heard[word[0][1:].split("!")[0]].append(word[3])
                elif word[1][0] in "45" and word[1] not in ("422",):
                    raise SystemExit(line)
turn(lambda c: len(c.joined) == 2 * each)
for c in clients:
    for n in range(said):
        c.sock.sendall(b"PRIVMSG #c :%d\r\n" % n)
turn(lambda c: sum(map(len, c.heard.values())) == (2 * each - 1) * said)
print(sum(words == [":%d" % n for n in range(said)] for c in clients for words in c.heard.values()))
"""


@entry("ngIRCd", "two servers, linked; 20 clients that all hear what the others say", needs=["ngircd"],
       version=["ngircd", "--version"], at_least=21, stays_plain={"no-local-shim": 3})
def ngircd(run):
    ports = [shim.free_port() for _ in range(2)]
    children = []
    for n, name in enumerate(("one", "two")):
        config = run.write(name + ".conf", IRC % {"name": name, "port": ports[n], "other": ("two", "one")[n],
                                                  "more": "" if n == 0 else "Port = %d" % ports[0]})
        os.chmod(config, 0o644)
        children.append(run.serve(ports[n], "ngircd", "-n", "-f", config))
    said = run.call(sys.executable, "-c", IRC_CLIENT, *map(str, ports))
    run.same(said.strip(), "380", "what is heard in order")
    for child in children[::-1]:
        run.stop(child)
    return "1,520 lines heard, in order"


PROSODY = """
pidfile = "%(folder)s/pid"
data_path = "%(folder)s/data"
modules_enabled = { "roster"; "saslauth"; "disco"; "ping" }
modules_disabled = { "s2s", "tls" }
run_as_root = true
interfaces = { "127.0.0.1" }
c2s_ports = { %(port)d }
c2s_require_encryption = false
allow_unencrypted_plain_auth = true
authentication = "internal_plain"
log = { info = "*console" }
VirtualHost "here.test"
"""

# Eight, each of which writes to the next.
XMPP_CLIENT = r"""
import base64, re, socket, sys, threading
from concurrent.futures import ThreadPoolExecutor
together = threading.Barrier(8)
HEAD = (b"<?xml version='1.0'?><stream:stream to='here.test' version='1.0' xmlns='jabber:client' "
        b"xmlns:stream='http://etherx.jabber.org/streams'>")

def client(n):
    sock, rest = socket.create_connection(("127.0.0.1", int(sys.argv[1]))), b""

    def until(pattern):
        nonlocal rest
        while not (found := re.search(pattern, rest, re.S)):
            data = sock.recv(65536)
            assert data, (pattern, rest)
            rest += data
        got, rest = rest[:found.end()], rest[found.end():]
        return got

    def ask(what, pattern):
        sock.sendall(what)
        return until(pattern)

    ask(HEAD, b"</stream:features>")
    secret = base64.b64encode(b"\0u%d\0p" % n)
    ask(b"<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='PLAIN'>" + secret + b"</auth>", b"<success[^>]*>")
    ask(HEAD, b"</stream:features>")
    ask(b"<iq type='set' id='b'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'><resource>r</resource></bind></iq>", b"</iq>")
    ask(b"<presence/>", b"<presence[^>]*>")
    together.wait()
    texts = [b"z" * (200 * m + 1) for m in range(30)]
    for text in texts:
        sock.sendall(b"<message to='u%d@here.test/r' type='chat'><body>%s</body></message>" % ((n + 1) % 8, text))
    good = True
    for text in texts:
        got = until(b"<message.*?</message>")
        good &= b"<body>" + text + b"</body>" in got and b"from='u%d@" % ((n - 1) % 8) in got
    ask(b"</stream:stream>", b"</stream:stream>")
    return good

with ThreadPoolExecutor(8) as pool:
    print(sum(pool.map(client, range(8))))
"""


@entry("Prosody", "XMPP without TLS: 8 clients that write to each other", needs=["prosody"],
       version=["dpkg-query", "-W", "prosody"], at_least=8)
def prosody(run):
    port = shim.free_port()
    os.makedirs(run.path("data/here%2etest/accounts"))
    for n in range(8):
        run.write("data/here%%2etest/accounts/u%d.dat" % n, 'return { ["password"] = "p"; };\n')
    child = run.serve(port, "prosody", "-F", "--config", run.write("prosody.lua", PROSODY % {"folder": run.folder, "port": port}))
    run.same(run.call(sys.executable, "-c", XMPP_CLIENT, str(port)).strip(), "8", "clients that got all that was for them")
    run.stop(child, status=None)
    return "240 messages right and in order"
