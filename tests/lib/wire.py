"""
The wire formats written out by hand, for a peer that says exactly what a test wants said: Hello frames, MPA startup
(RFC 5044 section 7.1, RFC 6581), FPDUs (RFC 5044 section 4), DDP and RDMAP headers (RFC 5041, 5040), the stream's headers.
Nothing here is shared with the library under test.
"""

import os
import socket
import struct
import time

KEY = b"\xf5sockwarp\r\n\x00"
REQUEST_KEY = b"MPA ID Req Frame"
REPLY_KEY = b"MPA ID Rep Frame"
M, C, R, S = 0x80, 0x40, 0x20, 0x10
A, RTR_SEND, RTR_WRITE, RTR_READ = 0x80000000, 0x40000000, 0x8000, 0x4000
WRITE, READ_REQUEST, READ_RESPONSE, SEND, SEND_INV, SEND_SE, SEND_SE_INV, TERMINATE = range(8)
DATA, CREDIT, FIN, RESET = 1, 2, 3, 4
FLAG_LLP = 1

_table = []
for _n in range(256):
    for _ in range(8):
        _n = _n >> 1 ^ (0x82F63B78 if _n & 1 else 0)
    _table.append(_n)


def crc32c(data):
    crc = 0xFFFFFFFF
    for octet in data:
        crc = crc >> 8 ^ _table[(crc ^ octet) & 255]
    return crc ^ 0xFFFFFFFF


# ---- startup ----

def hello(kind, arg, nonce, streamed=0, tlv=b"", version=1, length=None, flags=0):
    head = KEY + kind + struct.pack(">BBHI16sQQI", version, flags, 64 + len(tlv) if length is None else length, arg, nonce,
                                    streamed, 0, 0)
    frame = head + bytes(4) + tlv
    return head + struct.pack(">I", crc32c(frame)) + tlv


def with_frame(frame):
    """What ends a Hello that carries a startup frame."""
    return struct.pack(">HH", 2, len(frame)) + frame


def parse_hello(frame):
    """Kind, arg, nonce, streamed; None for what is not a whole, valid Hello frame."""
    if len(frame) < 64 or frame[:12] != KEY:
        return None
    _, _, length, arg, nonce, streamed, _, _, crc = struct.unpack(">BBHI16sQQII", frame[16:64])
    if length != len(frame) or crc32c(frame[:60] + bytes(4) + frame[64:]) != crc:
        return None
    return frame[12:16], arg, nonce, streamed


def params(stag=0x1234567, ring=1 << 20, eager=32768, bufs=64, flags=FLAG_LLP, version=1):
    return struct.pack(">2sBBIIHH", b"SW", version, flags, stag, ring, eager, bufs)


def startup(key, flags=C | S, rev=2, word=A | RTR_SEND | 8 << 16 | 8, private=None, length=None):
    data = (struct.pack(">I", word) if flags & S else b"") + (params() if private is None else private)
    return key + struct.pack(">BBH", flags, rev, len(data) if length is None else length) + data


# ---- frames ----

def fpdu(ulpdu, crc=None, length=None):
    body = struct.pack(">H", len(ulpdu) if length is None else length) + ulpdu
    body += bytes(-len(body) % 4)
    return body + struct.pack("<I", crc32c(body) if crc is None else crc)


def tagged(opcode, stag, to, payload=b"", last=True, ddp=1, rdmap=1):
    return struct.pack(">BBIQ", 0x80 | (0x40 if last else 0) | ddp, rdmap << 6 | opcode, stag, to) + payload


def untagged(opcode, qn, msn, mo=0, payload=b"", last=True, ddp=1, rdmap=1, word=0):
    return struct.pack(">BBIIII", (0x40 if last else 0) | ddp, rdmap << 6 | opcode, word, qn, msn, mo) + payload


def read_request(msn, sink=(0, 0), size=0, source=(1, 0)):
    return untagged(READ_REQUEST, 1, msn, payload=struct.pack(">IQIIQ", *sink, size, *source))


def stream(kind, offset, payload=b"", flags=0, bufs=0, ring=0, aux=0):
    """A message of the byte stream: what a Send carries."""
    return struct.pack(">BBHIII", kind, flags, bufs, offset & 0xFFFFFFFF, ring, aux) + payload


class Closed(Exception):
    """The peer closed (args: "eof") or reset (args: "reset") the connection in the middle."""


class Peer:
    """One end, by hand, on a connected plain socket. Send MSNs and the stream's offset are kept here."""

    def __init__(self, sock):
        self.sock = sock
        self.sock.settimeout(60)
        self.buffer = b""
        self.msn = 1
        self.offset = 0
        self.got = 0        # stream octets received
        self.ring = None    # (STag, length) of the peer
        self.markers = False # the peer was asked for them
        self.pos = 0        # with them: octets of FPDUs taken so far
        self.to = 0

    # -- octets --

    def take(self, count):
        while len(self.buffer) < count:
            try:
                piece = self.sock.recv(65536)
            except ConnectionResetError:
                raise Closed("reset") from None
            if not piece:
                raise Closed("eof")
            self.buffer += piece
        data, self.buffer = self.buffer[:count], self.buffer[count:]
        return data

    def put(self, data):
        self.sock.sendall(data)

    def take_fpdu(self):
        """The next ULPDU; a wrong CRC, pad or marker is the peer's error."""
        if self.markers:
            return self.take_marked()
        head = self.take(2)
        length = struct.unpack(">H", head)[0]
        rest = self.take(length + -(2 + length) % 4 + 4)
        body, crc = head + rest[:-4], struct.unpack("<I", rest[-4:])[0]
        if crc32c(body) != crc:
            raise ValueError("the peer sent a wrong CRC")
        return rest[:length]

    def take_marked(self):
        """An octet at a time: a marker is at each multiple of 512 (RFC 5044 section 4.3)."""
        raw, body, field, want = b"", b"", None, 2
        while len(body) < want:
            if self.pos % 512 == 0:
                marker = self.take(4)
                if struct.unpack(">I", marker)[0] != (0 if field is None else self.pos - field):
                    raise ValueError("the peer sent a wrong marker at %d: %s" % (self.pos, marker.hex()))
                raw += marker
                self.pos += 4
            if field is None:
                field = self.pos
            octet = self.take(1)
            raw += octet
            body += octet
            self.pos += 1
            if len(body) == 2:
                length = struct.unpack(">H", body)[0]
                want = 2 + length + -(2 + length) % 4 + 4
        if crc32c(raw[:-4]) != struct.unpack("<I", body[-4:])[0]:
            raise ValueError("the peer sent a wrong CRC")
        return body[2:2 + length]

    def fin(self):
        self.sock.shutdown(socket.SHUT_WR)

    def reset(self):
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def close(self):
        self.sock.close()

    # -- startup --

    def take_startup(self):
        head = self.take(20)
        flags, rev, length = struct.unpack(">BBH", head[16:])
        data = self.take(length)
        word = struct.unpack(">I", data[:4])[0] if flags & S else 0
        private = data[4:] if flags & S else data
        if len(private) == 16 and private[:2] == b"SW":
            self.ring = struct.unpack(">II", private[4:12])
        return head[:16], flags, rev, word, private

    def say_hello(self):
        self.nonce = os.urandom(16)
        self.put(hello(b"HELO", 1, self.nonce))
        return self.hear_answer()

    def hear_answer(self):
        answer = parse_hello(self.take_hello())
        if answer is None or answer[2] != self.nonce:
            raise ValueError("not an answer to the Hello: %r" % (answer,))
        return answer

    def take_hello(self):
        """A Hello of any kind, with what it ends in."""
        head = self.take(64)
        return head + self.take(struct.unpack(">H", head[18:20])[0] - 64)

    def hear_hello(self):
        frame = self.take_hello()
        kind, _, self.nonce, _ = parse_hello(frame)
        if kind != b"HELO":
            raise ValueError("not a HELO: %r" % kind)
        return frame

    def connect(self, word=A | RTR_SEND | 8 << 16 | 8):
        """As initiator, up to and including the RTR (a Send of no octets)."""
        self.nonce = os.urandom(16)
        self.put(hello(b"HELO", 1, self.nonce))
        return self.answered(word)

    def answered(self, word=A | RTR_SEND | 8 << 16 | 8):
        """The same, the Hello being out."""
        if self.hear_answer()[0] != b"HACK":
            raise ValueError("declined")
        return self.request(word)

    def request(self, word=A | RTR_SEND | 8 << 16 | 8):
        """The same, the HelloAck having come."""
        self.put(startup(REQUEST_KEY, word=word))
        self.take_startup()
        return self.rtr()

    def rtr(self):
        """A Send of no octets; the Reply came."""
        self.put(fpdu(untagged(SEND, 0, 1)))
        self.msn = 2
        return self

    def accept(self, kind=RTR_SEND):
        """As responder, up to the Reply; the RTR is taken off as well."""
        self.hear_hello()
        self.put(hello(b"HACK", 1, self.nonce))
        self.take_startup()
        self.put(startup(REPLY_KEY, word=A | kind | 8 << 16 | 8))
        self.take_fpdu()
        return self

    # -- the byte stream --

    def send(self, payload):
        self.put(fpdu(self.message(payload)))

    def message(self, payload):
        """The ULPDU of the next octets of the stream as one Send."""
        self.offset += len(payload)
        self.msn += 1
        return untagged(SEND, 0, self.msn - 1, payload=stream(DATA, self.offset, payload))

    def write(self, payload):
        """The next octets of the stream as an RDMA Write into the peer's ring; no notify."""
        ulpdu = tagged(WRITE, self.ring[0], self.to % self.ring[1], payload)
        self.to += len(payload)
        self.offset += len(payload)
        self.put(fpdu(ulpdu))

    def recv(self, count):
        """Stream octets from Sends and Writes."""
        data = b""
        while len(data) < count:
            ulpdu = self.take_fpdu()
            opcode = ulpdu[1] & 15
            if opcode == WRITE:
                data += ulpdu[14:]
            elif opcode == SEND and len(ulpdu) >= 34:
                data += ulpdu[34:]
            elif opcode == TERMINATE:
                raise ValueError("Terminate %r" % (terminate(ulpdu),))
        return data

    def take_terminate(self, seconds=60):
        """Reads on until the connection ends: (layer, type, code) of the Terminate or None, and how it ended."""
        self.sock.settimeout(seconds)
        found = None
        end = time.monotonic() + seconds
        try:
            while time.monotonic() < end:
                ulpdu = self.take_fpdu()
                if found is not None:
                    return found, "something after the Terminate"
                if ulpdu[1] & 15 == TERMINATE:
                    found = terminate(ulpdu)
        except Closed as how:
            return found, how.args[0]
        except socket.timeout:
            pass
        return found, "open"


def terminate(ulpdu):
    """Layer, type and code of a Terminate message (RFC 5040 Figure 9); its segment must be QN 2, MSN 1, MO 0, last."""
    control, _, _, qn, msn, mo = struct.unpack(">BBIIII", ulpdu[:18])
    if (control, qn, msn, mo) != (0x41, 2, 1, 0):
        return "malformed: %s" % ulpdu[:18].hex()
    return ulpdu[18] >> 4, ulpdu[18] & 15, ulpdu[19]
