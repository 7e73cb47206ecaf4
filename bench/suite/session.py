"""One sample: a server and a client of one side in one place, from their start to their end, and what they took."""

import itertools
import os
import shutil
import tempfile

from suite import places, proof
from suite.failure import Failure, Unproven
from suite.process import Child

SERVER, CLIENT = places.SERVER, places.CLIENT


class Tools:
    """
    The built programs, copied where every user may read them (PostgreSQL does not run as root), so that a build that
    goes on meanwhile does not change what is measured; and the folder for all that is written.
    """

    def __init__(self, build, launcher=None, library=True):
        memory = "/dev/shm"
        where = memory if os.access(memory, os.W_OK) else None
        self.folder = tempfile.mkdtemp(prefix="sockwarp-bench.", dir=where)
        os.chmod(self.folder, 0o755)
        self.bench = self.take(build, "sockwarp-bench")
        self.launcher = os.path.abspath(launcher) if launcher else None
        self.library = None
        if library and not launcher:
            self.launcher = self.take(build, "sockwarp")
            self.library = self.take(build, ".libs/libsockwarp.so")
        self.numbers = itertools.count()

    def take(self, build, name):
        source, target = os.path.join(build, name), os.path.join(self.folder, name)
        if not os.access(source, os.R_OK):
            raise Failure("%s is missing; --build names the build folder" % source)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        return shutil.copy(source, target)

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def leave(self):
        shutil.rmtree(self.folder, ignore_errors=True)


class Side:
    """Plain, or under sockwarp."""

    def __init__(self, name, shimmed):
        self.name, self.shimmed = name, shimmed
        # The caller's SOCKWARP_ settings are part of what is measured, on that side only.
        self.env = {k: v for k, v in os.environ.items()
                    if k != "LD_PRELOAD" and (shimmed or not k.startswith("SOCKWARP_"))}
        self.env["LC_ALL"] = "C"


class Session:
    """
    The programs of one sample. options: how sockwarp is asked, see workloads.Workload. stats: let it write statistics.
    """

    def __init__(self, tools, place, side, options, stats=True):
        self.tools, self.place, self.side, self.options = tools, place, side, options
        self.folder = tools.path("run-%d" % next(tools.numbers))
        os.mkdir(self.folder)
        self.children = []
        self.server_child = None
        self.commands = {SERVER: [], CLIENT: []}
        self.cpu = {}
        self.stats = None
        if side.shimmed and stats:
            self.stats = os.path.join(self.folder, "stats")
            with open(self.stats, "w", encoding="ascii"):
                pass
            os.chmod(self.stats, 0o666)

    # ---- commands ----

    def under(self, end, command, plain=False):
        """The command of an end, as it is run in this place on this side. plain: without sockwarp on either."""
        words = []
        if self.side.shimmed and end in self.options.shims and not plain:
            words.append(self.tools.launcher)
            if self.options.rules:
                words += ["-p", self.options.rules]
        self.commands[end].append(self.shown(end, words + list(command)))
        return words + list(command)

    def shown(self, end, command):
        """For the record: without what is of this machine and this moment only."""
        text = " ".join(os.path.basename(w) if os.path.isabs(w) and os.access(w, os.X_OK) and os.path.isfile(w) else w
                        for w in command).replace(self.folder, "RUN").replace(self.tools.folder, "DIR")
        return ("taskset -c %d " % places.CPU[end] if self.place.pinned else "") + text

    def env(self, more):
        env = dict(self.side.env, **(more or {}))
        if self.side.shimmed:
            env.update(self.options.env)
            if self.stats:
                env["SOCKWARP_STATS"] = self.stats
        return env

    def start(self, end, command, talk=False, before=(), env=None, plain=False):
        """before: words that come before the launcher, as setpriv."""
        whole = self.place.prefix(end) + list(before) + self.under(end, command, plain)
        log = os.path.join(self.folder, "%s-%d" % (end, len(self.children)))
        child = Child(whole, self.env(env), log, talk)
        self.children.append(child)
        return child

    # ---- the two ends ----

    def serve(self, *command, port=None, **more):
        """
        The server. Without a port it says "listening on port N" (sockwarp-bench); with one the kernel is asked. Returns
        the port as a string.
        """
        self.server_child = self.start(SERVER, command, talk=port is None, **more)
        if port is None:
            port = self.server_child.line().removeprefix("listening on port ")
        else:
            self.server_child.await_listener(int(port))
        if self.has_library(SERVER) and self.tools.library not in self.server_child.maps():
            raise Unproven("the library is not in the server's memory")
        return port

    def has_library(self, end):
        return self.side.shimmed and end in self.options.shims and self.tools.library is not None

    def call(self, *command, seconds=60, look=False, **more):
        """
        A client, to its end, which must be good; its output. look: where there are no statistics to show that it had
        the library, its memory must.
        """
        child = self.start(CLIENT, command, **more)
        try:
            if look and self.has_library(CLIENT) and not child.await_mapped(self.tools.library):
                raise Unproven("the library was not in the client's memory")
            if child.wait(seconds) != 0:
                raise Failure("%s side: %s: status %d\n%s" % (self.side.name, child, child.status(), child.said()))
        finally:
            child.leave()
        self.add_cpu(CLIENT, child)
        return child.output()

    def talk(self, *command, **more):
        """A client that is spoken with; end it by hang_up()."""
        return self.start(CLIENT, command, talk=True, **more)

    def hang_up(self, child, seconds=60):
        """The rest of what it says, when it has ended well."""
        text = child.output()
        if child.wait(seconds) != 0:
            raise Failure("%s side: %s: status %d\n%s" % (self.side.name, child, child.status(), child.said()))
        self.add_cpu(CLIENT, child)
        return text

    def stop(self, *number):
        """Ends the server."""
        self.server_child.stop(*number)
        self.add_cpu(SERVER, self.server_child)

    def add_cpu(self, end, child):
        total = self.cpu.setdefault(end, {"user": 0.0, "sys": 0.0})
        for key, value in child.usage.items():
            total[key] = round(total[key] + value, 6)

    def leave(self):
        for child in self.children:
            child.leave()
        shutil.rmtree(self.folder, ignore_errors=True)

    def prove(self):
        """When all has ended: that the run was what it is taken for."""
        if self.stats:
            self.options.prove(proof.records(self.stats))
