"""Programs under sockwarp and without, ended with the test; ports, readiness, statistics."""

import atexit
import json
import os
import random
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import tap

# A test run in the background of a shell is born with SIGINT ignored, and so would be the servers that it interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)

BUILD = os.environ.get("SW_BUILDDIR", ".")
LAUNCHER = os.environ.get("SW_LAUNCHER", os.path.join(BUILD, "sockwarp"))
LIBRARY = os.environ.get("SW_LIBRARY", os.path.join(BUILD, ".libs", "libsockwarp.so"))
LIB = os.path.dirname(os.path.realpath(__file__))

_children = []
tmp = tempfile.mkdtemp(prefix="sockwarp-test.", dir=os.environ.get("TMPDIR"))
os.chmod(tmp, 0o1777)  # some programs run as another user


@atexit.register
def _leave():
    for child in _children:
        if child.poll() is None:
            child.kill()
    for child in _children:
        child.wait()
    shutil.rmtree(tmp, ignore_errors=True)


def need(*programs):
    """Skips the whole test unless these and the built sockwarp are there."""
    sbin = os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", "/sbin"])
    os.environ["PATH"] = sbin
    missing = [p for p in programs if shutil.which(p) is None]
    if missing:
        tap.skip_all("missing: " + " ".join(missing))
    for path in LAUNCHER, LIBRARY:
        if not os.path.exists(path):
            tap.skip_all("not built: " + path)


def path(name):
    return os.path.join(tmp, name)


def program(name):
    """A helper that the build made of tests/preload/NAME.c."""
    return os.path.join(BUILD, "tests", "preload", name)


def stats_file(name):
    """A fresh statistics file that any user may append to."""
    where = path(name + ".stats")
    with open(where, "w", encoding="utf-8"):
        pass
    os.chmod(where, 0o666)
    return where


def under(stats, *command, rules=None):
    """The command line of a program under sockwarp."""
    line = [LAUNCHER]
    if stats:
        line += ["--stats", stats]
    if rules:
        line += ["-p", rules]
    return line + ["--", *command]


def start(*command, env=None, **more):
    """A child in the background."""
    child = subprocess.Popen(command, env=environment(env), **more)
    _children.append(child)
    return child


def environment(env):
    whole = dict(os.environ)
    for key in list(whole):
        if key.startswith("SOCKWARP_"):
            del whole[key]
    if "SW_TEST_IO" in whole:  # SW_TEST_IO=syscall make check: the same on plain system calls
        whole["SOCKWARP_IO"] = whole["SW_TEST_IO"]
    whole.update(env or {})
    return whole


def run(*command, env=None, timeout=60, **more):
    """Runs a command to its end; a timeout counts as status "timeout"."""
    more.setdefault("capture_output", True)
    child = None
    try:
        return subprocess.run(command, env=environment(env), timeout=timeout, check=False, **more)
    except subprocess.TimeoutExpired as late:
        child = subprocess.CompletedProcess(command, "timeout", late.stdout or b"", late.stderr or b"")
    if more.get("text"):
        for name in "stdout", "stderr":
            value = getattr(child, name)
            if isinstance(value, bytes):
                setattr(child, name, value.decode(errors="replace"))
    return child


def finish(child, timeout=10):
    """Waits for a child; its status, or "timeout" if it had to be killed."""
    try:
        return child.wait(timeout)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
        return "timeout"


def until(condition, timeout=10, step=0.005):
    """Asks again and again until it is true (its value) or the time is over (its last value)."""
    end = time.monotonic() + timeout
    while True:
        value = condition()
        if value or time.monotonic() >= end:
            return value
        time.sleep(step)


def free_port():
    """A TCP port that nothing uses, below those the kernel gives out."""
    for _ in range(1000):
        port = random.randrange(20000, 32000)
        taken = []
        try:
            for family, address in (socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::"):
                s = socket.socket(family)
                taken.append(s)
                if family == socket.AF_INET6:
                    s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                s.bind((address, port))
        except OSError as error:
            if error.errno not in (97, 99):  # no IPv6 here
                continue
        finally:
            for s in taken:
                s.close()
        return port
    raise RuntimeError("no free port")


def _listening(pid, port):
    for table in "tcp", "tcp6":
        try:
            with open("/proc/%d/net/%s" % (pid, table), encoding="ascii") as f:
                for line in f:
                    word = line.split()
                    if word[3] == "0A" and int(word[1].rsplit(":", 1)[1], 16) == port:
                        return True
        except OSError:
            pass
    return False


def await_listener(child, port, timeout=10):
    """Until somebody in child's network namespace listens on port. Fails the test run if that does not happen."""
    def there():
        if child.poll() is not None:
            raise RuntimeError("%s ended with %s before it listened" % (child.args, child.returncode))
        return _listening(child.pid, port)
    if not until(there, timeout):
        raise RuntimeError("%s does not listen on %d" % (child.args, port))


def has_ipv6():
    try:
        with socket.socket(socket.AF_INET6) as s:
            s.bind(("::1", 0))
            return True
    except OSError:
        return False


def fds(pid):
    """
    How many descriptors a process has open, but for what the library makes when it is first needed: its memory, and an
    eventfd for each thread.
    """
    count = events = 0
    where = "/proc/%d/fd" % pid
    for name in os.listdir(where):
        try:
            file = os.readlink(os.path.join(where, name))
        except FileNotFoundError:
            continue
        if file == "anon_inode:[eventfd]" and int(name) >= 200:
            events += 1
        else:
            count += not file.startswith("/memfd:sockwarp")
    return count + max(0, events - len(os.listdir("/proc/%d/task" % pid)))


# ---- statistics ----

def stats(where):
    """Its whole lines."""
    with open(where, encoding="utf-8") as f:
        return [json.loads(line) for line in f if line.endswith("\n")]


def await_stats(where, count, timeout=5):
    """The lines once there are so many (or when time is over)."""
    def enough():
        with open(where, encoding="utf-8") as f:
            return sum(1 for line in f if line.endswith("\n")) >= count
    until(enough, timeout)
    return stats(where)


def brief(lines):
    """Statistics for a failure's details."""
    return "\n".join("%(program)s %(role)s %(local)s %(peer)s %(transport)s %(reason)s rtr=%(rtr)s tx=%(tx_bytes)d "
                     "rx=%(rx_bytes)d errors=%(errors)d" % line for line in lines) or "(no lines)"


def mates(near, far):
    """Pairs of lines of the two ends of one connection, and the lines that have no other end."""
    there = {(line["peer"], line["local"]): line for line in far}
    pairs, alone = [], []
    for line in near:
        mate = there.pop((line["local"], line["peer"]), None)
        if mate is None:
            alone.append(line)
        else:
            pairs.append((line, mate))
    return pairs, alone + list(there.values())


def upgraded(line):
    return line["transport"] == "iwarp" and line["reason"] == "upgraded" and line["errors"] == 0


def ok_upgraded(near, far, name, count=None):
    """Test point: all connections of both ends were upgraded without errors, and each has its other end."""
    pairs, alone = mates(near, far)
    good = (bool(pairs) and not alone and all(upgraded(line) for line in near + far) and
            (count is None or len(pairs) == count))
    return tap.ok(good, name, "%d pairs, %d without another end, wanted: %s" % (len(pairs), len(alone), count),
                  "near:", brief(near[:20]), "far:", brief(far[:20]))


# ---- a Python under (or not under) sockwarp that does what it is told ----

class AgentError(Exception):
    """Something other than an OSError went wrong in the agent."""


class Agent:
    """
    A child that runs pieces of Python, one after the other. do(code) waits for its end and returns the value of its
    last expression; begin(code) and end() do the same in two steps, so that the test can act meanwhile. An OSError in
    the agent is raised here as an OSError with the same errno (None for a socket timeout).
    """

    def __init__(self, shim=True, rules=None, name="agent", env=None, prefix=(), python=sys.executable):
        command = [python, os.path.join(LIB, "agent.py")]
        self.stats_path = stats_file("%s-%d" % (name, len(_children)))
        if shim:
            command = under(self.stats_path, *command, rules=rules)
        self.child = start(*prefix, *command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = self.child.pid

    def begin(self, code):
        self.child.stdin.write(json.dumps(code) + "\n")
        self.child.stdin.flush()

    def end(self, timeout=20):
        if not select.select([self.child.stdout], [], [], timeout)[0]:
            raise AgentError("no answer within %s s" % timeout)
        line = self.child.stdout.readline()
        if not line:
            raise AgentError("the agent ended with status %s" % finish(self.child))
        answer = json.loads(line)
        if "error" in answer:
            raise AgentError(answer["error"])
        if "errno" in answer:
            raise OSError(answer["errno"], answer["text"])
        return eval(answer["value"])  # a repr of plain data

    def do(self, code, timeout=20):
        self.begin(code)
        return self.end(timeout)

    def errno(self, code, timeout=20):
        """0, or the errno of the OSError that the code raises ("timeout" for a socket timeout)."""
        try:
            self.do(code, timeout)
        except OSError as error:
            return "timeout" if error.errno is None else error.errno
        return 0

    def quit(self, timeout=10):
        """Ends it as a program ends; its status."""
        self.child.stdin.close()
        status = finish(self.child, timeout)
        self.child.stdout.close()
        return status

    def stats(self, count=None, timeout=5):
        return stats(self.stats_path) if count is None else await_stats(self.stats_path, count, timeout)


def joined(near_code, far_code, rules="any * auto", env=None, names=("writer", "reader")):
    """
    Two agents that have run their code, and a connection between them: `s` in the first, `c` in the second, which has `listener`, too.
    env: the first one's.
    """
    far = Agent(rules=rules, name=names[1])
    port = far.do(far_code + "listener = socket.create_server(('127.0.0.1', 0)); listener.getsockname()[1]")
    near = Agent(rules=rules, name=names[0], env=env)
    far.begin("c = listener.accept()[0]; c.settimeout(20); recv_all(c, 5)")
    near.do(near_code + "s = socket.create_connection(('127.0.0.1', %d)); s.sendall(b'hello')" % port)
    far.end()
    return near, far

