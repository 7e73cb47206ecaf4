"""Programs under sockwarp and without, ended with the test; ports, readiness, statistics."""

import atexit
import json
import os
import random
import resource
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
CC = os.environ.get("CC", "").split() or ["cc"]  # a launcher and options may belong to it

# How long a test waits for what has to come: this tells a hang from a busy machine. What is true ends the wait at once.
PATIENCE = 60 * tap.SLOWER  # for each single thing
HANG = 300 * tap.SLOWER  # for a piece of a program
# The same for the initiator, which then waits for the other program's accept() and does not go on plain: under(), Agent().
HELLO_TIMEOUT_MS = "200000"

resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))  # some crash on purpose
# The caller's that would change what is tested; urllib and curl are asked for things of this machine.
for _key in list(os.environ):
    if _key.lower() in ("http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy") or _key in (
            "MAKEFLAGS", "MFLAGS", "GNUMAKEFLAGS", "MAKELEVEL"):
        del os.environ[_key]
os.environ["LC_ALL"] = "C"


def _suits(folder):
    """
    A folder for everything a test makes: its name fits a socket's, a shell's word and LD_PRELOAD, programs can be run from it, and
    root's children that become another user get there.
    """
    folder = os.path.realpath(folder)
    if len(folder) > 60 or set(folder) & set(" \t:;,'\"") or not os.access(folder, os.W_OK | os.X_OK):
        return False
    above = [folder]
    while above[-1] != "/":
        above.append(os.path.dirname(above[-1]))
    return not os.statvfs(folder).f_flag & os.ST_NOEXEC and (os.geteuid() != 0 or all(os.stat(f).st_mode & 1 for f in above))


_children = []
_folders = [os.environ.get("TMPDIR") or "/tmp", "/tmp", "/var/tmp", "/dev/shm"]
tmp = tempfile.mkdtemp(prefix="sockwarp-test.", dir=next(filter(_suits, _folders), _folders[0]))
os.chmod(tmp, 0o1777)  # some programs run as another user
os.environ.setdefault("HOME", tmp)
os.environ["CURL_HOME"] = tmp  # no ~/.curlrc


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
    """A helper that the build made of tests/NAME.c."""
    return os.path.join(BUILD, "tests", name)


def stats_file(name):
    """A fresh statistics file that any user may append to."""
    where = path(name + ".stats")
    with open(where, "w", encoding="utf-8"):
        pass
    os.chmod(where, 0o666)
    return where


def patiently(rules):
    """
    Rules by which the initiator asks by Hello and waits as long as SOCKWARP_HELLO_TIMEOUT_MS says. (What it knows of a listener on
    this host makes it go on plain when that has not accepted within half a second, which no setting raises.)
    """
    return "; ".join(rule.strip() + " hello=always" for rule in (rules or "any * auto").split(";"))


def under(stats, *command, rules=None, patient=False):
    """The command line of a program under sockwarp. patient: its connections are upgraded however late they are accepted."""
    line = [LAUNCHER]
    if patient:
        line.insert(0, "SOCKWARP_HELLO_TIMEOUT_MS=" + HELLO_TIMEOUT_MS)
        line.insert(0, "env")
        rules = patiently(rules)
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
    whole["SOCKWARP_CONFIG"] = "/dev/null"  # not this machine's
    if "SW_TEST_IO" in whole:  # SW_TEST_IO=syscall make check: the same on plain system calls
        whole["SOCKWARP_IO"] = whole["SW_TEST_IO"]
    whole.update(env or {})
    return whole


def run(*command, env=None, timeout=HANG, **more):
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


def finish(child, timeout=HANG):
    """Waits for a child; its status, or "timeout" if it had to be killed."""
    try:
        return child.wait(timeout)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
        return "timeout"


def until(condition, timeout=PATIENCE, step=0.005):
    """Asks again and again until it is true (its value) or the time is over (its last value)."""
    end = time.monotonic() + timeout
    while True:
        value = condition()
        if value or time.monotonic() >= end:
            return value
        time.sleep(step)


_ports = []


def spoken_to(port):
    """Has a client of this port that is not accepted yet sent something, be it a Hello? IPv4."""
    with open("/proc/net/tcp", encoding="ascii") as table:
        for line in list(table)[1:]:
            word = line.split()
            if word[1].endswith(":%04X" % port) and word[3] != "0A" and word[9] == "0" and not word[4].endswith(":00000000"):
                return True
    return False


def _port_range():
    """Ports that the kernel does not give out by itself, some thousands."""
    try:
        with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as f:
            low, high = map(int, f.read().split())
    except OSError:
        return 20000, 32000
    if low >= 12000:
        return max(5000, low - 12000), low
    return (high + 1, 65536) if high < 60000 else (20000, 32000)


def free_port():
    """
    A TCP port that nothing uses. It stays this test's to its end: other tests find its name taken, which belongs to the network
    namespace as the port does.
    """
    for _ in range(1000):
        port = random.randrange(*_port_range())
        mine = socket.socket(socket.AF_UNIX)
        taken = [mine]
        try:
            mine.bind("\0sockwarp-test/port/%d" % port)
            for family, address in (socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::"):
                s = socket.socket(family)
                taken.append(s)
                if family == socket.AF_INET6:
                    s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                s.bind((address, port))
        except OSError as error:
            if error.errno not in (97, 99):  # no IPv6 here
                mine.close()
                continue
        finally:
            for s in taken[1:]:
                s.close()
        _ports.append(mine)
        return port
    raise RuntimeError("no free port")


def listens(pid, port):
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


def await_listener(child, port, timeout=HANG):
    """Waits until a process in child's network namespace listens on port. Fails the test run if that does not happen."""
    def there():
        if child.poll() is not None:
            raise RuntimeError("%s ended with %s before it listened" % (child.args, child.returncode))
        return listens(child.pid, port)
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


def await_stats(where, count, timeout=PATIENCE):
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


def ok_upgraded(near, far, name, count=None, leavers=0):
    """
    Test point: all connections of both ends were upgraded without errors, and each has its other end. leavers: so many may have been
    closed by the connecting program while their startup was under way.
    """
    pairs, alone = mates(near, far)
    left = [pair for pair in pairs if left_early(*pair)] + [line for line in alone if line in near and left_early(line)]
    pairs = [pair for pair in pairs if pair not in left]
    alone = [line for line in alone if line not in left]
    good = (bool(pairs) and not alone and all(upgraded(line) for pair in pairs for line in pair) and len(left) <= leavers and
            (count is None or len(pairs) == count))
    return tap.ok(good, name, "%d pairs, %d without another end, %d left, wanted: %s" % (len(pairs), len(alone), len(left), count),
                  "near:", brief(near[:20]), "far:", brief(far[:20]))


def left_early(mine, its=None):
    """Closed before anything was decided, and the other end, if it ever had the connection, says so, too; no octet went either way."""
    if mine["reason"] != "closed" or its is not None and its["reason"] not in ("closed", "mpa-failed"):
        return False
    return not any(line[count] for line in (mine, its) if line for count in ("tx_bytes", "rx_bytes"))


def ok_in_time(near, far, name, count):
    """
    Test point: each connection has its other end, and was upgraded at both, or withdrawn because the program accepted late (half a
    second, on one host); some were upgraded; no octet was lost.
    """
    pairs, alone = mates(near, far)
    late = [(n, f) for n, f in pairs if n["reason"] == "withdrawn" and f["reason"] in ("withdrawn", "peer-plain")]
    good = [(n, f) for n, f in pairs if upgraded(n) and upgraded(f)]
    if late:
        tap.note("%d of %d connections were withdrawn" % (len(late), len(pairs)))
    same = all(n["tx_bytes"] == f["rx_bytes"] and f["tx_bytes"] == n["rx_bytes"] for n, f in good)
    return tap.ok(not alone and len(pairs) == len(late) + len(good) == count and good and same, name,
                  "%d pairs, %d upgraded, %d withdrawn, %d without another end, wanted: %d" %
                  (len(pairs), len(good), len(late), len(alone), count),
                  *(brief(pair) for pair in pairs if pair not in late and pair not in good))


# ---- a Python under (or not under) sockwarp that does what it is told ----

class AgentError(Exception):
    """Something other than an OSError went wrong in the agent."""


class Agent:
    """
    A child that runs pieces of Python, one after the other. do(code) waits for its end and returns the value of its
    last expression; begin(code) and end() do the same in two steps, so that the test can act meanwhile. An OSError in
    the agent is raised here as an OSError with the same errno (None for a socket timeout). patient: as with under().
    """

    def __init__(self, shim=True, rules=None, name="agent", env=None, prefix=(), python=sys.executable, patient=False):
        command = [python, os.path.join(LIB, "agent.py")]
        self.stats_path = stats_file("%s-%d" % (name, len(_children)))
        if shim:
            command = under(self.stats_path, *command, rules=rules, patient=patient)
        self.child = start(*prefix, *command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = self.child.pid

    def begin(self, code):
        self.child.stdin.write(json.dumps(code) + "\n")
        self.child.stdin.flush()

    def begin_waiting(self, code):
        """begin(), and until it waits in a call of that code. (To be used after a do(): it has woken when begin() returns.)"""
        self.begin(code)
        def asleep():
            with open("/proc/%d/stat" % self.pid, encoding="ascii", errors="replace") as f:
                return f.read().rpartition(")")[2].split()[0] == "S"
        if not until(asleep):
            raise AgentError("it does not wait")

    def end(self, timeout=HANG):
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

    def do(self, code, timeout=HANG):
        self.begin(code)
        return self.end(timeout)

    def errno(self, code, timeout=HANG):
        """0, or the errno of the OSError that the code raises ("timeout" for a socket timeout)."""
        try:
            self.do(code, timeout)
        except OSError as error:
            return "timeout" if error.errno is None else error.errno
        return 0

    def quit(self, timeout=HANG):
        """Ends it as a program ends; its status."""
        self.child.stdin.close()
        status = finish(self.child, timeout)
        self.child.stdout.close()
        return status

    def stats(self, count=None, timeout=PATIENCE):
        return stats(self.stats_path) if count is None else await_stats(self.stats_path, count, timeout)


def joined(near_code, far_code, rules="any * auto", env=None, names=("writer", "reader")):
    """
    Two agents that have run their code, and a connection between them, upgraded: `s` in the first, `c` in the second, which has
    `listener`, too. env: the first one's.
    """
    far = Agent(rules=rules, name=names[1])
    port = far.do(far_code + "listener = socket.create_server(('127.0.0.1', 0)); listener.getsockname()[1]")
    near = Agent(rules=rules, name=names[0], env=env, patient=True)
    far.begin("c = listener.accept()[0]; c.settimeout(200); recv_all(c, 5)")
    near.do(near_code + "s = socket.create_connection(('127.0.0.1', %d)); s.sendall(b'hello')" % port)
    far.end()
    return near, far
