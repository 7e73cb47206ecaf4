"""The child of shim.Agent: runs the pieces of Python that come in, one JSON string a line, and answers each."""

import ast
import errno
import fcntl
import hashlib
import json
import os
import select
import signal
import socket
import struct
import sys
import threading
import time
import traceback

space = {"errno": errno, "fcntl": fcntl, "hashlib": hashlib, "os": os, "select": select, "signal": signal,
         "socket": socket, "struct": struct, "threading": threading, "time": time}


def run(code):
    tree = ast.parse(code)
    last = None
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last = ast.Expression(tree.body.pop().value)
    exec(compile(tree, "<test>", "exec"), space)
    return eval(compile(last, "<test>", "eval"), space) if last else None


def recv_all(sock, count):
    """Exactly count octets, or fewer at the end of the stream."""
    data = b""
    while len(data) < count:
        piece = sock.recv(count - len(data))
        if not piece:
            break
        data += piece
    return data


def recv_end(sock):
    """What comes until the end: (octets, "eof" or the errno)."""
    data = b""
    try:
        while piece := sock.recv(65536):
            data += piece
        return data, "eof"
    except OSError as e:
        return data, e.errno or "timeout"


def echo(sock):
    """Sends back what comes until the end; (octets, "eof" or the errno)."""
    count = 0
    try:
        while piece := sock.recv(65536):
            sock.sendall(piece)
            count += len(piece)
        return count, "eof"
    except OSError as e:
        return count, e.errno or "timeout"


space.update(recv_all=recv_all, recv_end=recv_end, echo=echo)

for line in sys.stdin:
    try:
        answer = {"value": repr(run(json.loads(line)))}
    except OSError as e:
        answer = {"errno": e.errno, "text": str(e)}
    except BaseException:
        answer = {"error": traceback.format_exc()}
    print(json.dumps(answer), flush=True)
