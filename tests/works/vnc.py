"""An X server for VNC: pictures of its screen, and X clients by TCP."""

import sys

import shim
from matrix import entry

# Draws lines by X11's own protocol, asks for the picture, and says what it is.
X_CLIENT = r"""
import hashlib, random, socket, struct, sys
sock = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
stream = sock.makefile("rb")
sock.sendall(struct.pack("<BxHHHHxx", 0x6c, 11, 0, 0, 0))
head = stream.read(8)
assert head[0] == 1, head
setup = stream.read(4 * struct.unpack("<H", head[6:])[0])
base, = struct.unpack("<I", setup[4:8])
vendor, = struct.unpack("<H", setup[16:18])
root, = struct.unpack("<I", setup[32 + (vendor + 3) // 4 * 4 + 8 * setup[21]:][:4])
gc = base + 1
sock.sendall(struct.pack("<BxHIII", 55, 4, gc, root, 0))
rng = random.Random(81)
for n in range(400):
    sock.sendall(struct.pack("<BxHIII", 56, 4, gc, 4, rng.randrange(1 << 24)))
    points = b"".join(struct.pack("<HH", rng.randrange(640), rng.randrange(480)) for _ in range(50))
    sock.sendall(struct.pack("<BBHII", 65, 0, 3 + 50, root, gc) + points)
sock.sendall(struct.pack("<BBHIHHHHI", 73, 2, 5, root, 0, 0, 640, 480, 0xffffffff))
while (reply := stream.read(32))[0] != 1:
    assert reply[0] != 0, reply
picture = stream.read(4 * struct.unpack("<I", reply[4:8])[0])
print(hashlib.sha256(b"".join(picture[n:n + 3] for n in range(0, len(picture), 4))).hexdigest())
"""

# The same picture by RFB, raw.
RFB_CLIENT = r"""
import hashlib, socket, struct, sys
sock = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
stream = sock.makefile("rb")
sock.sendall(stream.read(12))
assert 1 in stream.read(stream.read(1)[0])
sock.sendall(b"\1")
assert stream.read(4) == bytes(4)
sock.sendall(b"\1")
width, height = struct.unpack(">HH", stream.read(4))
stream.read(16)
stream.read(struct.unpack(">I", stream.read(4))[0])
sock.sendall(struct.pack(">BxxxBBBBHHHBBBxxx", 0, 32, 24, 0, 1, 255, 255, 255, 16, 8, 0) + struct.pack(">BxHi", 2, 1, 0))
screen = bytearray(4 * width * height)
for incremental in 0, 0:
    sock.sendall(struct.pack(">BBHHHH", 3, incremental, 0, 0, width, height))
    left = width * height
    while left:
        kind, count = struct.unpack(">BxH", stream.read(4))
        assert kind == 0, kind
        for _ in range(count):
            x, y, w, h, encoding = struct.unpack(">HHHHi", stream.read(12))
            for row in range(y, y + h):
                screen[4 * (row * width + x):4 * (row * width + x + w)] = stream.read(4 * w)
            left -= w * h
print(hashlib.sha256(b"".join(screen[n:n + 3] for n in range(0, len(screen), 4))).hexdigest())
"""


@entry("TigerVNC", "Xtigervnc: an X client draws by TCP, the picture is fetched by RFB", needs=["Xtigervnc"],
       version=["dpkg-query", "-W", "tigervnc-standalone-server"], at_least=3)
def tigervnc(run):
    # (X11's ports are 6000 and more; the display's number is what makes it.)
    x11 = shim.free_port()
    rfb = shim.free_port()
    child = run.serve(rfb, "Xtigervnc", ":%d" % (x11 - 6000), "-listen", "tcp", "-nolisten", "local", "-nolisten", "unix", "-ac",
                      "-geometry", "640x480", "-depth", "24", "-rfbport", str(rfb), "-localhost", "-SecurityTypes", "None", "-AlwaysShared")
    drawn = run.call(sys.executable, "-c", X_CLIENT, str(x11)).strip()
    seen = run.call(sys.executable, "-c", RFB_CLIENT, str(rfb)).strip()
    run.same(seen, drawn, "the picture")
    run.same(run.call(sys.executable, "-c", X_CLIENT, str(x11)).strip(), drawn, "the picture, drawn once more")
    run.stop(child)
    return "a picture of 1.2 MB the same by X11 and by RFB"
