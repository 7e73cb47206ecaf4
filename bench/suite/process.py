"""Programs that are started, watched and ended by process id, with the processor time they took (wait4)."""

import os
import select
import shutil
import signal
import subprocess
import time

from suite.failure import Failure


def find(name):
    """The path of a program, also where the user's PATH does not lead; the newest of PostgreSQL's."""
    base = "/usr/lib/postgresql"
    versions = sorted(os.listdir(base), key=lambda v: (len(v), v), reverse=True) if os.path.isdir(base) else []
    return shutil.which(name, path=os.pathsep.join([os.path.join(base, v, "bin") for v in versions] + [
        os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", "/sbin"]))


class Child:
    """
    A process. Its output goes to files; with talk=True stdin and stdout are pipes, for line() and say(). The processor
    time is that of the process and of those of its children that it waited for.
    """

    def __init__(self, command, env, log, talk=False):
        self.command = command
        self.name = os.path.basename(command[-1] if len(command) == 1 else command[0])
        self.out_path, self.err_path = log + ".out", log + ".err"
        self.usage = None
        with open(self.out_path, "wb") as out, open(self.err_path, "wb") as err:
            self.popen = subprocess.Popen(command, env=env, stdin=subprocess.PIPE if talk else subprocess.DEVNULL,
                                          stdout=subprocess.PIPE if talk else out, stderr=err, cwd="/")
        self.pid = self.popen.pid
        self.talk = talk
        self.waiter = os.pidfd_open(self.pid)

    def status(self):
        """The exit status (negative: signal), None while it runs."""
        if self.usage is None and self.ended_within(0):
            _, status, usage = os.wait4(self.pid, 0)
            self.usage = {"user": usage.ru_utime, "sys": usage.ru_stime}
            self.popen.returncode = os.waitstatus_to_exitcode(status)
            os.close(self.waiter)
        return self.popen.returncode

    def ended_within(self, seconds):
        watch = select.poll()
        watch.register(self.waiter, select.POLLIN)
        return bool(watch.poll(seconds * 1000))

    def wait(self, seconds):
        """Its status; a Failure if it has not ended by then."""
        if self.popen.returncode is None and not self.ended_within(seconds):
            raise Failure("%s has not ended after %g s" % (self, seconds))
        return self.status()

    def stop(self, number=signal.SIGTERM, seconds=20):
        """Ends it as its users do, and must succeed with that."""
        if self.status() is None:
            os.kill(self.pid, number)
        if self.wait(seconds) != 0:
            raise Failure("%s ended with status %d at %s\n%s" % (self, self.status(), signal.Signals(number).name,
                                                                 self.said()))

    def leave(self):
        """However it is, it is gone afterwards."""
        if self.status() is None:
            os.kill(self.pid, signal.SIGKILL)
            self.wait(20)
        for pipe in self.popen.stdin, self.popen.stdout:
            if pipe:
                pipe.close()

    def line(self, seconds=60):
        """The next line of its output."""
        if not select.select([self.popen.stdout], [], [], seconds)[0]:
            raise Failure("%s says nothing for %g s\n%s" % (self, seconds, self.said()))
        text = self.popen.stdout.readline().decode()
        if not text:
            raise Failure("%s ended with status %s before it said what was waited for\n%s" % (
                self, self.wait(20), self.said()))
        return text.rstrip("\n")

    def say(self, text=""):
        self.popen.stdin.write(text.encode() + b"\n")
        self.popen.stdin.flush()

    def output(self):
        if self.talk:
            return self.popen.stdout.read().decode(errors="replace")
        with open(self.out_path, encoding="utf-8", errors="replace") as f:
            return f.read()

    def said(self):
        """The end of what it wrote, for a message."""
        text = "" if self.talk else self.output()
        with open(self.err_path, encoding="utf-8", errors="replace") as f:
            text += f.read()
        return text[-1500:]

    def maps(self):
        """What it has mapped; "" once it is gone."""
        try:
            with open("/proc/%d/maps" % self.pid, encoding="utf-8", errors="replace") as f:
                return f.read()
        except OSError:
            return ""

    def memory(self):
        """{"rss", "pss"} in octets."""
        found = {}
        with open("/proc/%d/smaps_rollup" % self.pid, encoding="ascii", errors="replace") as f:
            for line in f:
                key, _, rest = line.partition(":")
                if key in ("Rss", "Pss"):
                    found[key.lower()] = int(rest.split()[0]) * 1024
        return found

    def await_mapped(self, name):
        """Until a library of that name is in its memory; whether that came about before it ended."""
        while name not in self.maps():
            if self.ended_within(0.002):
                return False
        return True

    def listens(self, port):
        """Whether a socket of its network namespace listens on the port."""
        for table in "tcp", "tcp6":
            try:
                with open("/proc/%d/net/%s" % (self.pid, table), encoding="ascii") as f:
                    next(f)
                    for line in f:
                        word = line.split()
                        if word[3] == "0A" and int(word[1].rsplit(":", 1)[1], 16) == port:
                            return True
            except OSError:
                pass
        return False

    def await_listener(self, port, seconds=20):
        """Foreign programs do not say when they listen; the kernel's table does."""
        end = time.monotonic() + seconds
        while not self.listens(port):
            if self.status() is not None:
                raise Failure("%s ended with status %d before it listened\n%s" % (self, self.status(), self.said()))
            if time.monotonic() > end:
                raise Failure("%s does not listen on port %d after %g s\n%s" % (self, port, seconds, self.said()))
            time.sleep(0.002)

    def await_said(self, text, seconds=20):
        """Until it has said this; some listen before they are ready."""
        end = time.monotonic() + seconds
        while text not in self.said():
            if self.status() is not None or time.monotonic() > end:
                raise Failure("%s does not say %r\n%s" % (self, text, self.said()))
            time.sleep(0.002)

    def __str__(self):
        return " ".join(self.command)
