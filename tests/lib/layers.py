"""Which folder may include and call which, and what the sources and the built library really do (HACKING.md, "Map").

tests/layering.test judges by this, scripts/rooms prints it.
"""

import ast
import glob
import os
import re
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))

# From the bottom. A folder may include itself and what comes before it.
ORDER = ["base", "endpoint.h", "transport", "mpa", "ddp", "rdmap", "iwarp", "stream", "negotiate", "policy"]
# State machines over buffers: no fd, clock, lock, allocation.
SANS_IO = {"mpa", "ddp", "rdmap", "iwarp", "stream"}
# Other things than the order that a folder must not include.
NOT = {folder: {"transport"} for folder in SANS_IO}
for folder in ("transport", "mpa", "ddp", "rdmap"):
    NOT.setdefault(folder, set())
for folder in ("mpa", "ddp", "rdmap"):
    NOT[folder].add("endpoint.h")
# preload/'s rooms, from the bottom; start.c is above all.
ROOMS = ["process", "sock", "conn", "device", "startup", "ready", "calls", ""]
# What a room asks of those above it, and nothing else: declared below, defined above.
UPWARDS = ["preload/process/start.h", "preload/sock/hooks.h", "preload/sock/notify.h", "preload/conn/conn_ops.h"]
# What tells one carrier of a stream from another (conn_ops.h), and where that may be read. All others ask the table.
CARRIER = re.compile(r"->(?:carrier|dev\.(?:ep|mixed|pid))\b|\bCONN_CARRIER_\w+|\bconn_soft\b(?!\.)|\bdevice_ops\b")
CARRIER_IN = ("preload/device/", "preload/conn/conn.h", "preload/conn/conn_ops.h", "preload/conn/conn_soft.c", "preload/start.c")
CYCLE_MAX = 8  # files of one room that all call each other
# What tools may take from preload/: the formats both sides share.
TOOLS_FROM_PRELOAD = {"preload/process/board_format.h", "preload/process/stats.h"}
ANYWHERE = {"config.h", "include/sockwarp.h"}

SANS_IO_HEADERS = {
    "fcntl.h", "malloc.h", "poll.h", "pthread.h", "semaphore.h", "signal.h", "stdlib.h", "threads.h", "time.h",
    "unistd.h", "liburing.h", "sys/epoll.h", "sys/ioctl.h", "sys/mman.h", "sys/socket.h", "sys/syscall.h",
    "sys/time.h", "netinet/in.h", "netinet/tcp.h",
}
SANS_IO_CALLS = re.compile(
    r"(?<![\w.>])(malloc|calloc|realloc|free|strdup|clock_gettime|gettimeofday|time|pthread_\w+|getenv|"
    r"read|write|send|recv|sendmsg|recvmsg|open|close|socket)\s*\(")
SETS_ERRNO = re.compile(r"(?<![\w.>])errno\s*=(?!=)\s*(\w*)")
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.M)


def without_comments(text):
    """Comments and string contents become blanks, lines stay where they are; include paths are kept."""
    out, pos = [], 0
    token = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
    for m in token.finditer(text):
        out.append(text[pos:m.start()])
        word = m.group()
        line_start = text.rfind("\n", 0, m.start()) + 1
        if word[0] == '"' and re.match(r"[ \t]*#[ \t]*include\b", text[line_start:m.start()]):
            out.append(word)
        else:
            out.append(re.sub(r"[^\n]", " ", word))
        pos = m.end()
    out.append(text[pos:])
    return "".join(out)


def sources(root):
    for top in ("core", "preload", "tools", "include"):
        for folder, _, names in sorted(os.walk(os.path.join(root, top))):
            for name in sorted(names):
                if name.endswith((".c", ".h", ".S")):
                    yield os.path.relpath(os.path.join(folder, name), root)


def layer(path):
    """core/mpa/fpdu.h -> mpa, core/endpoint.h -> endpoint.h, preload/sock/sock.c -> preload"""
    parts = path.replace("core/endpoint.c", "core/endpoint.h").split("/")
    return parts[1] if parts[0] == "core" and len(parts) > 1 else parts[0]


def room(path):
    """preload/sock/sock.c -> sock, preload/start.c -> ''"""
    return path.split("/")[1] if path.count("/") > 1 else ""


def include_finding(path, target):
    """Why path must not include target, or None."""
    if target in ANYWHERE:
        return None
    top = target.split("/")[0]
    if top not in ("core", "preload", "tools", "include"):
        return "is not a path from the top of the tree"
    where = layer(path)
    if path.startswith("preload/") and room(path) not in ROOMS:
        return "%s is no room" % room(path)
    if path.startswith("preload/") and top == "preload" and room(target) not in ROOMS:
        return "%s is no room" % room(target)
    if path.startswith("preload/") and top == "preload" and ROOMS.index(room(target)) > ROOMS.index(room(path)):
        return "%s/ is above %s/" % (room(target), room(path))
    if path.startswith("preload/"):
        return "the tools are above" if top == "tools" else None
    if path.startswith("tools/"):
        if top == "preload" and target not in TOOLS_FROM_PRELOAD:
            return "tools share only %s with the library" % ", ".join(sorted(TOOLS_FROM_PRELOAD))
        return None
    if path.startswith("include/"):
        return "the installed header includes nothing of ours"
    if top != "core":
        return "core/ knows nothing of %s/" % top
    what = layer(target)
    if what not in ORDER:
        return "%s has no place in the order" % what
    if ORDER.index(what) > ORDER.index(where):
        return "%s is above %s" % (what, where)
    if what in NOT.get(where, ()):
        return "%s does not know of %s" % (where, what)
    return None


def findings(root):
    """(kind, text) for each breach of a rule; kind is "include", "sans-io", "errno" or "carrier"."""
    found = []
    for path in sources(root):
        with open(os.path.join(root, path), encoding="utf-8") as f:
            text = without_comments(f.read())
        where = layer(path)

        def add(kind, offset, why):
            found.append((kind, "%s:%d: %s" % (path, text.count("\n", 0, offset) + 1, why)))

        if path.startswith("core/") and where not in ORDER:
            add("include", 0, "%s has no place in the order" % where)
            continue
        for m in INCLUDE.finditer(text):
            quote, target = m.groups()
            if quote == '"':
                why = include_finding(path, target)
                if why:
                    add("include", m.start(), '"%s": %s' % (target, why))
            elif where in SANS_IO and target in SANS_IO_HEADERS:
                add("sans-io", m.start(), "<%s> in protocol code" % target)
        if where in SANS_IO:
            for m in SANS_IO_CALLS.finditer(text):
                add("sans-io", m.start(), "%s() in protocol code" % m.group(1))
        if path.startswith("preload/") and not path.startswith(CARRIER_IN):
            for m in CARRIER.finditer(text):
                add("carrier", m.start(), "%s: only the carriers know which one a connection has" % m.group())
        if path.startswith("core/"):
            for m in SETS_ERRNO.finditer(text):
                if re.search(r"\bint\s+%s\s*=\s*errno\s*;" % m.group(1), text):
                    continue  # puts back what the program had
                add("errno", m.start(), "core/ returns errors, it does not set errno")
    return found


# ---- calls ----


def upward_names():
    """Names that the interfaces declare: name -> header."""
    names = {}
    for path in UPWARDS:
        with open(os.path.join(ROOT, path), encoding="utf-8") as f:
            text = without_comments(f.read())
        for pattern in (r"^(?!static)[a-z][\w *]*?(\w+)\(", r"^extern const struct \w+ (?:\*const )?(\w+)[;\[]"):
            names.update((name, path) for name in re.findall(pattern, text, re.M))
    return names


def objects(build, places=("preload",), library=r"\w+"):
    """source -> (what it defines, what it wants), by the objects in those folders that belong to such a library."""
    found = {}
    paths = [p for place in places for p in glob.glob(os.path.join(build, place, "**", ".libs", "lib*_la-*.o"), recursive=True)]
    for path in paths:
        if not re.match(r"lib%s_la-" % library, os.path.basename(path)):
            continue
        folder = os.path.relpath(os.path.dirname(os.path.dirname(path)), build)
        source = os.path.join(folder, re.sub(r"^lib\w+_la-(\w+)\.o$", r"\1.c", os.path.basename(path)))
        if not os.path.exists(os.path.join(ROOT, source)):
            continue  # left from before
        listed = subprocess.run([os.environ.get("NM", "gcc-nm"), path], stdout=subprocess.PIPE, text=True, check=True, timeout=60)
        words = [line.split() for line in listed.stdout.splitlines()]
        defined = {w[-1] for w in words if len(w) > 1 and w[-2] in "TDBRVWCi"}
        wanted = {w[-1] for w in words if len(w) > 1 and w[-2] == "U"}
        found[source] = (defined, wanted)
    return found


def call_edges(objs):
    """
    (who, whom, name). A call of what libc_calls.h lists is libc's, though one of our files has that name, too; and __read_chk is what the
    compiler may make of a read.
    """
    with open(os.path.join(ROOT, "preload/process/libc_calls.h"), encoding="utf-8") as f:
        libcs = set(re.findall(r"^SW_LIBC\((\w+)\)", f.read(), re.M))
    owner = {name: source for source, (defined, _) in objs.items() for name in defined - libcs}
    return {(source, owner[name], name) for source, (_, wanted) in objs.items() for name in wanted
            if owner.get(name, source) != source and not name.endswith("_chk")}


def runs_up(a, b):
    return ROOMS.index(room(b)) > ROOMS.index(room(a))


def upward_calls(edges, allowed):
    return sorted("%s calls %s(), which is %s's" % (a, name, b) for a, b, name in edges
                  if runs_up(a, b) and name not in allowed)


def circles(edges, longer_than=CYCLE_MAX):
    """The lists of more files than that, of one room, that all call each other."""
    calls = {}
    for a, b, _ in edges:
        if room(a) == room(b):
            calls.setdefault(a, set()).add(b)
    reach = {}
    for start in calls:
        seen, todo = set(), [start]
        while todo:
            for b in calls.get(todo.pop(), ()):
                if b not in seen:
                    seen.add(b)
                    todo.append(b)
        reach[start] = seen
    rings = {tuple(sorted(b for b in seen if a in reach.get(b, ()))) for a, seen in reach.items() if a in seen}
    return sorted((ring for ring in rings if len(ring) > longer_than), key=lambda ring: (-len(ring), ring))


# ---- Python ----


def import_edges(folder, planted=()):
    """As call_edges, of the modules of a package; planted: lines (module, text) more."""
    edges = set()
    for path in glob.glob(os.path.join(ROOT, folder, "*.py")):
        name = os.path.basename(path)[:-3]
        with open(path, encoding="utf-8") as f:
            text = f.read() + "".join(line + "\n" for module, line in planted if module == name)
        package = os.path.basename(folder)
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == package:
                modules = [a.name for a in node.names] if node.module == package else [node.module.split(".")[1]]
                edges.update((folder + "/" + name, folder + "/" + module, module) for module in modules)
    return edges


# ---- the rooms as text ----


def room_name(name):
    return name + "/" if name else "start.c"


def table(edges):
    """A line for each room, from above: files, lines, names that it calls in rooms below and above, its longest circle."""
    allowed = upward_names()
    lines = ["%-10s %5s %6s %11s %14s %14s %15s" % ("room", "files", "lines", "calls down", "up, interface", "up, otherwise",
                                                     "longest circle")]
    sums = [0] * 5
    for name in reversed(ROOMS):
        paths = [path for path in sources(ROOT) if path.startswith("preload/") and room(path) == name]
        count = 0
        for path in paths:
            with open(os.path.join(ROOT, path), encoding="utf-8") as f:
                count += len(f.readlines())
        out = {(b, call) for a, b, call in edges if room(a) == name and room(b) != name}
        up = {(b, call) for b, call in out if ROOMS.index(room(b)) > ROOMS.index(name)}
        declared = {(b, call) for b, call in up if call in allowed}
        rings = [ring for ring in circles(edges, 1) if room(ring[0]) == name]
        numbers = [len(paths), count, len(out - up), len(declared), len(up - declared)]
        sums = [a + b for a, b in zip(sums, numbers)]
        lines.append("%-10s %5d %6d %11d %14d %14d %15s" % (room_name(name), *numbers, len(rings[0]) if rings else "none"))
    lines.append("%-10s %5d %6d %11d %14d %14d" % ("all", *sums))
    return lines


def picture(edges):
    """The rooms, one above the other: which of those below each calls, and from where it is asked through which interface."""
    allowed = upward_names()
    rows = []
    for name in reversed(ROOMS):
        below = [r for r in reversed(ROOMS[:ROOMS.index(name)]) if any(room(a) == name and room(b) == r for a, b, _ in edges)]
        asked = {}
        for a, b, call in edges:
            if room(b) == name and runs_up(a, b) and call in allowed:
                asked.setdefault(os.path.basename(allowed[call]), set()).add(room(a))
        rows.append((room_name(name), " ".join(below), [
            "%s  from %s" % (header, " ".join(r for r in reversed(ROOMS) if r in rooms)) for header, rooms in sorted(asked.items())]))
    width = max(len(calls) for _, calls, _ in rows)
    edge = "  +----------+-%s-+" % ("-" * (width + 4))
    lines = ["   %-10s   %-*s   %s" % ("room", width + 4, "calls downward", "is asked from below through"), edge]
    for name, calls, asked in rows:
        for i, text in enumerate(asked or [""]):
            left = (name, "--> " + calls if calls else "") if i == 0 else ("", "")
            lines.append(("  | %-8s | %-*s |" % (left[0], width + 4, left[1]) + (" <.. " + text if text else "")).rstrip())
        lines.append(edge)
    return lines


# The page that has the picture, between these lines.
PAGE = "docs/DESIGN.md"
BEGIN = "<!-- scripts/rooms --update: begin -->\n"
END = "<!-- scripts/rooms --update: end -->\n"


def page_with(edges):
    """(the page as it is, the page with the picture of today)"""
    with open(os.path.join(ROOT, PAGE), encoding="utf-8") as f:
        text = f.read()
    head, rest = text.split(BEGIN)
    tail = rest.split(END)[1]
    return text, head + BEGIN + "```\n" + "\n".join(picture(edges)) + "\n```\n" + END + tail
