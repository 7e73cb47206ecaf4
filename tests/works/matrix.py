"""
The programs that are run under sockwarp, plain and with both ends upgraded, and what came of it.

An entry is a function that takes a Run, starts programs by it, checks what they did and returns in a few words what
the result was; it raises Wrong when something is not as it must be. It is called twice: once with plain TCP, which says
whether the program works here at all, and once with everything it starts under sockwarp. Then the statistics lines must
show that every connection was upgraded, at both of its ends. It is called twice more: with only its servers (what it starts)
under sockwarp, and with only its clients (what it calls).
"""

import collections
import ctypes
import hashlib
import os
import random
import re
import shutil
import signal
import subprocess
import time

import shim
import tap

entries = []
UPGRADED = "upgraded"
PR_SET_CHILD_SUBREAPER = 36
HANG = 600  # seconds: a program that takes longer for anything hangs. No verdict on how fast it is
ATTEMPTS = 3
PYTHON, PACKAGES = "/usr/bin/python3", "/usr/lib/python3/dist-packages/"  # the one that Debian's packages are for
SERVERS, CLIENTS = SIDES = "servers", "clients"

# Servers' orphans become our children: they are found, and ended, with their entry.
ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


class Wrong(Exception):
    """What a program did is not what it had to do."""


class Entry:
    def __init__(self, body, program, what, needs, version, at_least, stays_plain, killed, todo, sides):
        self.body = body
        self.program = program
        self.what = what
        self.needs = needs
        self.version = version
        self.at_least = at_least
        self.stays_plain = stays_plain
        self.killed = killed
        self.todo = todo
        self.sides = sides

    def missing(self):
        return [name for name in self.needs if (not os.path.exists(name) if "/" in name else find(name) is None)]


def entry(program, what, *, needs, version, at_least=1, stays_plain=None, killed=0, todo=None, sides=SIDES):
    """
    Adds an entry. needs: the programs, and paths of files; version: the command that says it; at_least: so many upgraded connections there
    must be; stays_plain: {reason: number} of statistics lines that may be plain, at most so many for each reason;
    killed: so many connections' ends may be missing at most, because the program kills its processes, which leave no
    line;
    todo: why it is known to fail under sockwarp; sides: those that there are.
    """
    def add(body):
        entries.append(Entry(body, program, what, needs, version, at_least, stays_plain or {}, killed, todo, sides))
        return body
    return add


def find(name):
    """The path of a program, also where the user's PATH does not lead; the newest of PostgreSQL's."""
    extra = []
    for base in ("/usr/lib/postgresql",):
        if os.path.isdir(base):
            extra += [os.path.join(base, v, "bin") for v in sorted(os.listdir(base), key=lambda v: (len(v), v))][::-1]
    return shutil.which(name,
                        path=os.pathsep.join(extra + [os.environ["PATH"], "/usr/local/sbin", "/usr/sbin", "/sbin"]))


def version_of(command):
    """The first thing that looks like a version in what the command says."""
    path = find(command[0])
    if path is None:
        return "?"
    result = shim.run(path, *command[1:], text=True, timeout=30)
    found = re.search(r"\d+(\.\d+)+(p\d+)?", result.stdout + result.stderr)
    return found.group(0) if found else "?"


def blob(size, seed=1):
    """Random octets, always the same ones."""
    return random.Random(seed).randbytes(size)


def digest(data):
    return hashlib.sha256(data).hexdigest()


def file_digest(path):
    whole = hashlib.sha256()
    with open(path, "rb") as f:
        while piece := f.read(1 << 20):
            whole.update(piece)
    return whole.hexdigest()


def reachable():
    """From now on the built files are where every user can read them: the build folder may be root's alone."""
    folder = shim.path("built")
    if not os.path.exists(folder):
        os.makedirs(os.path.join(folder, ".libs"))
        shutil.copy(shim.LIBRARY, os.path.join(folder, ".libs"))
        shim.LAUNCHER = shutil.copy(shim.LAUNCHER, folder)


def children():
    with open("/proc/self/task/%d/children" % os.getpid(), encoding="ascii") as f:
        return [int(pid) for pid in f.read().split()]


class Run:
    """One run of an entry. Everything it starts is under sockwarp if shimmed, or that side of it, and is ended with it."""

    count = 0

    def __init__(self, shimmed, long, side=None):
        Run.count += 1
        self.side = side
        self.shimmed = shimmed
        self.long = long
        self.folder = shim.path("run-%d" % Run.count)
        os.mkdir(self.folder)
        os.chmod(self.folder, 0o755)
        self.stats = shim.stats_file("run-%d" % Run.count)
        self.logs = []
        self.running = []
        self.hooks = []

    # ---- files ----

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def write(self, name, data, mode=0o644):
        path = self.path(name)
        with open(path, "wb") as f:
            f.write(data.encode() if isinstance(data, str) else data)
        os.chmod(path, mode)
        return path

    # ---- programs ----

    def shims(self, side):
        """Does what is of this side run under sockwarp?"""
        return self.shimmed and self.side in (None, side)

    def under(self, command, plain, side):
        reachable()
        command = [find(command[0]) or command[0], *command[1:]]
        return shim.under(self.stats, *command) if self.shims(side) and not plain else command

    def start(self, *command, plain=False, side=SERVERS, **more):
        """A child in the background; what it says goes to a log that is shown if something is wrong."""
        log = self.path("log-%d-%s" % (len(self.logs), os.path.basename(command[0])))
        self.logs.append(log)
        with open(log, "wb") as out:
            more.setdefault("stdin", subprocess.DEVNULL)
            more.setdefault("stdout", out)
            more.setdefault("stderr", out)
            child = shim.start(*self.under(command, plain, side), **more)
        self.running.append(child)
        return child

    def serve(self, port, *command, timeout=HANG, says=None, **more):
        """The same, and waits until a process listens on the port; and, for one that is not ready then, until it says so."""
        child = self.start(*command, **more)
        log = self.logs[-1]
        try:
            shim.await_listener(child, port, timeout)
        except RuntimeError as error:
            raise Wrong(str(error)) from error

        def ready():
            with open(log, encoding="utf-8", errors="replace") as f:
                return says in f.read()
        self.must(says is None or shim.until(ready, timeout), "%s does not say %r" % (command[0], says))
        return child

    def call(self, *command, status=0, plain=False, timeout=HANG, text=True, **more):
        """Runs a program to its end, which must have the status; what it wrote."""
        result = shim.run(*self.under(command, plain, CLIENTS), timeout=timeout, text=text, **more)
        if result.returncode != status:
            raise Wrong("%s: status %s\n%s\n%s" % (" ".join(command)[:300], result.returncode,
                                                    brief(result.stdout), brief(result.stderr)))
        return result.stdout

    def talk(self, interpreter, server, client, *words, right, what, asks=None, status=0):
        """
        One script serves a port, the other asks it, with the words behind the port, and prints how many things were right.
        asks: the client's interpreter, if another one; status: the server's, as of stop().
        """
        port = shim.free_port()
        child = self.serve(port, interpreter, self.write("server", server), str(port))
        said = self.call(asks or interpreter, self.write("client", client), str(port), *map(str, words))
        self.same(said.strip(), str(right), what)
        self.stop(child, status=status)

    def curl(self, url, *options, **more):
        """What curl fetches."""
        return self.call("curl", "-sS", "--fail", "--noproxy", "*", "--max-time", str(HANG), *options, url, text=False,
                         **more)

    def stop(self, child, number=signal.SIGTERM, status=0, timeout=HANG):
        """Ends a child as its users do; it must end well (status None: however it likes)."""
        if child.poll() is None:
            child.send_signal(number)
        got = shim.finish(child, timeout)
        if got == "timeout" or status is not None and got != status:
            raise Wrong("%s ended with %s, not %s" % (os.path.basename(child.args[-1]), got, status))

    def at_end(self, function, *args):
        """Calls it when everything has ended."""
        self.hooks.append((function, args))

    def leave(self):
        """Ends what still runs. Returns what had outlived its parents."""
        for child in self.running:
            if child.poll() is None:
                child.kill()
            child.wait()
        left = []
        end = time.monotonic() + 40
        while time.monotonic() < end:
            pids = children()
            if not pids:
                break
            for pid in pids:
                done, _ = os.waitpid(pid, os.WNOHANG)
                if not done and time.monotonic() > end - 10 and pid not in [p for p, _ in left]:
                    left.append((pid, name_of(pid)))  # it had time to end by itself
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)
        for function, args in self.hooks[::-1]:
            function(*args)
        return left

    # ---- checks ----

    def same(self, got, want, what):
        if got != want:
            raise Wrong("%s: got %s, want %s" % (what, brief(got), brief(want)))

    def must(self, good, what, *details):
        if not good:
            raise Wrong("%s\n%s" % (what, "\n".join(brief(d) for d in details)))

    def log_tails(self):
        for log in self.logs:
            with open(log, errors="replace", encoding="utf-8") as f:
                text = f.read()
            if text:
                yield "%s: %s" % (os.path.basename(log), text[-1500:])


def name_of(pid):
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as f:
            return f.read().replace(b"\0", b" ").decode(errors="replace")[:80]
    except OSError:
        return "?"


def brief(value):
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 1200 else text[:600] + " […] " + text[-600:]


class Outcome:
    """What came of one run: error is None if all was well."""

    def __init__(self, entry_, shimmed, long, side=None):
        self.error, self.result = None, None
        run = Run(shimmed, long, side)
        begin = time.monotonic()
        try:
            self.result = entry_.body(run)
        except Wrong as wrong:
            self.error = str(wrong)
        except (OSError, ValueError, LookupError) as error:
            self.error = "%s: %s" % (type(error).__name__, error)
        self.left = run.leave()
        self.seconds = time.monotonic() - begin
        self.logs = list(run.log_tails()) if self.error else []
        self.lines = shim.stats(run.stats)
        self.stats = run.stats
        if not self.error:
            shutil.rmtree(run.folder, ignore_errors=True)


# A server that did not get to accept() for some milliseconds, on a busy machine: half of the connections at most.
LATE = "withdrawn"


def is_unheard(line, late):
    """A server that accepts after its client has withdrawn, on one host, finds nothing of the client's question. late: such clients."""
    return line["role"] == "accept" and line["reason"] == "peer-plain" and (line["local"], line["peer"]) in late


class Upgrades:
    """What the statistics lines of both ends say."""

    def __init__(self, lines, entry_):
        connect = collections.Counter()
        accept = collections.Counter()
        gone = collections.Counter()  # may have another end that is upgraded, if it was closed early
        self.bad = []
        self.plain = collections.Counter()
        late = {(line["peer"], line["local"]) for line in lines if line["role"] == "connect" and line["reason"] == LATE}
        for line in lines:
            if shim.upgraded(line):
                if line["role"] == "connect":
                    connect[line["local"], line["peer"]] += 1
                else:
                    accept[line["peer"], line["local"]] += 1
            elif (line["transport"] == "plain" and not line["errors"] and
                  (line["reason"] == LATE or shim.left_early(line) or is_unheard(line, late) or
                   self.plain[line["reason"]] < entry_.stays_plain.get(line["reason"], 0))):
                self.plain[line["reason"]] += 1
                key = (line["local"], line["peer"])
                gone[key if line["role"] == "connect" else key[::-1]] += 1
            else:
                self.bad.append(line)
        self.connect = sum(connect.values())
        self.accept = sum(accept.values())
        self.alone = list(((connect - accept) + (accept - connect) - gone).elements())
        self.pairs = sum((connect & accept).values())
        enough = self.pairs + self.plain[LATE] // 2 >= entry_.at_least and self.pairs * 2 >= entry_.at_least
        self.good = not self.bad and len(self.alone) <= entry_.killed and enough
        # Only too many of those that may be plain, each for its reason: how many there are depends on which end was faster.
        self.crowded = not self.good and all(line["transport"] == "plain" and not line["errors"] and
                                             line["reason"] in entry_.stays_plain for line in self.bad)

    def __str__(self):
        text = "%d / %d" % (self.connect, self.accept)
        for reason, count in sorted(self.plain.items()):
            text += ", %d plain: %s" % (count, reason)
        return text


def one_side(e, title, side, long):
    """Test points of a run with only its clients, or only its servers, under sockwarp; what the table says of it."""
    tap.limit(4 * HANG)
    only = Outcome(e, True, long, side)
    title = "%s, only the %s under sockwarp" % (title, side)
    good = tap.ok(not only.error, title, only.error, *only.logs)
    # (Servers may be each other's clients.)
    bad = [line for line in only.lines if line["errors"] or (side == CLIENTS and line["transport"] != "plain")]
    good &= tap.ok(bool(only.lines or e.at_least == 0) and not bad, title + ": without errors", shim.brief(bad[:10]))
    return "ok" if good else "**fails**"


def run_all(names, long):
    """Runs the entries whose program is named (or all) as test points; rows for the table."""
    rows = []
    for e in entries:
        if names and e.program not in names and e.body.__name__ not in names:
            continue
        title = "%s: %s" % (e.program, e.what)
        missing = e.missing()
        if missing:
            tap.skip(title, "missing: " + " ".join(missing))
            rows.append((e, "", "not run: %s is missing" % ", ".join(missing), "", "", "", ""))
            continue
        tap.limit(4 * HANG)
        plain = Outcome(e, False, long)
        tap.ok(not plain.error, title + ", plain", plain.error, *plain.logs)
        for attempt in range(ATTEMPTS):
            tap.limit(4 * HANG)
            shimmed = Outcome(e, True, long)
            upgrades = Upgrades(shimmed.lines, e)
            if shimmed.error or not upgrades.crowded or attempt == ATTEMPTS - 1:
                break
            tap.note("RETRY %s: %s" % (title, upgrades))
        tap.ok(not shimmed.error, title + ", under sockwarp", shimmed.error, *shimmed.logs,
               "plain: %s" % (plain.error or plain.result), todo=e.todo)
        tap.ok(upgrades.good, title + (": every connection is upgraded on both ends" if e.at_least else
                                       ": every connection is upgraded, or plain for its reason"),
               "connecting/accepting: %s, in pairs %d of %d at least" % (upgrades, upgrades.pairs, e.at_least),
               "alone: %s" % upgrades.alone[:10], "not upgraded:", shim.brief(upgrades.bad[:10]), todo=e.todo)
        if e.todo:
            rows.append((e, version_of(e.version), "ok", "**fails**: " + e.todo, "", "", ""))
            continue
        tap.same(sorted(name for _, name in shimmed.left), sorted(name for _, name in plain.left),
                 title + ": nothing is left running that plain would not leave")
        sides = [one_side(e, title, side, long) if side in e.sides else "" for side in SIDES]
        tap.note("%.1f s plain, %.1f s under sockwarp" % (plain.seconds, shimmed.seconds))
        rows.append((e, version_of(e.version), plain.error and "**fails**" or "ok",
                     shimmed.error and "**fails**" or shimmed.result,
                     upgrades if upgrades.good else "**%s**" % upgrades, *sides))
    return rows


def table(rows):
    """The rows as Markdown."""
    yield "| program | what is run | plain | under sockwarp, both ends | upgraded: connecting / accepting end | servers only | clients only |"
    yield "|---|---|---|---|---|---|---|"
    for e, version, *outcomes in rows:
        yield "| %s | %s |" % (("%s %s" % (e.program, version)).strip(), " | ".join(map(str, (e.what, *outcomes))))


BEGIN, END = "<!-- tests/works/works.test --into docs/WORKS.md: begin -->", "<!-- end -->"


def key(line):
    """What says which entry a line of the table is of: its program, without the version, and what is run."""
    program, what = line.split(" | ")[:2]
    return re.sub(r" (\S*\d\S*|\?)$", "", program.removeprefix("| ")), what


def merge(old, rows):
    """The table's lines: those of the rows, and in their order the old ones of entries that were not run."""
    kept = {key(line): line for line in old[2:]}
    head_1, head_2, *lines = table(rows)
    new = {(row[0].program, row[0].what): line for row, line in zip(rows, lines) if row[1] or (row[0].program, row[0].what) not in kept}
    both = {**kept, **new}
    return [head_1, head_2] + [both[e.program, e.what] for e in entries if (e.program, e.what) in both]


def put_into(path, rows):
    """Replaces those lines of the table between the two markers in a file whose entries were run."""
    with open(path, encoding="utf-8") as f:
        text = f.read()
    head, found, rest = text.partition(BEGIN + "\n")
    old, found_end, tail = rest.partition(END + "\n")
    if not found or not found_end:
        raise ValueError("%s does not have the lines %s and %s" % (path, BEGIN, END))
    with open(path, "w", encoding="utf-8") as f:
        f.write(head + BEGIN + "\n" + "\n".join(merge(old.splitlines(), rows)) + "\n" + END + "\n" + tail)
