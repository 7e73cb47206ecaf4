#!/usr/bin/env python3
"""
Other projects' socket test suites, each run plain and under sockwarp, compared test by test. Run by hand: it takes an hour,
and needs Debian's libpython3.11-testsuite, python3-twisted and python3-tornado.

    suites.py [--build DIR] [--list] [SUITE...]

Both ends of most connections are in the test's own process, so the rule has self=on. Exits with 0 if every test came to the
same outcome (but those in KNOWN), and connections were upgraded.
"""

import argparse
import fnmatch
import json
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as tree

PYTHON = "/usr/bin/python3"
LIMIT_S = 1200
SOCKET_MODULES = """socket select selectors poll epoll asyncore asynchat httplib httpservers urllib2_localnet ftplib
    smtplib smtpd poplib imaplib telnetlib nntplib xmlrpc docxmlrpc logging wsgiref signal os eintr ssl asyncio subprocess
    multiprocessing_fork multiprocessing_spawn multiprocessing_forkserver threading io file""".split()
TWISTED = "internet web names mail words conch spread test".split()

# Tests whose outcome differs, and why: patterns of names.
KNOWN = {
    "*test_multiprocessing_*.test_pickling": "an upgraded connection is not passed over AF_UNIX",
    "*test_newtls.*.test_startTLSAfterRegisterProducer*":
        "both ends in one thread: connect() is seen to succeed after the other end was accepted, and it has reset by then",
}


def python_outcomes(run, module):
    """CPython's own runner: {test: outcome}."""
    report = os.path.join(run.folder, "report.xml")
    run.call(PYTHON, "-m", "test", "-u", "all,-network,-urlfetch,-largefile,-gui,-audio", "-i", "*VSOCK*", "--junit-xml",
             report, "test_" + module)
    outcomes = {}
    if os.path.exists(report):
        for case in tree.parse(report).iter("testcase"):
            bad = [kind for kind in ("failure", "error", "skipped") if case.find(kind) is not None]
            outcomes[case.get("name")] = bad[0] if bad else case.get("result")
    return outcomes


def trial_outcomes(run, package):
    said = run.call(PYTHON, "-W", "ignore", "-m", "twisted.trial", "--temp-directory", os.path.join(run.folder, "trial"),
                    "--reporter=bwverbose", "twisted." + package)
    return dict(re.findall(r"^(\S+) \.\.\..*?\[(\w+)\]\s*$", said.split("\n=====")[0], re.MULTILINE))


def tornado_outcomes(run, _):
    said = run.call(PYTHON, "-W", "ignore", "-m", "tornado.test", "--verbose")
    return {name: how.split()[0] for name, how in
            re.findall(r"^(test\w* \([\w.]+\))(?:\n.*?)?? \.\.\. (.*)$", said, re.MULTILINE)}


SUITES = {"python-" + module: (python_outcomes, module) for module in SOCKET_MODULES}
SUITES.update({"twisted-" + package: (trial_outcomes, package) for package in TWISTED})
SUITES["tornado"] = tornado_outcomes, None
NEEDS = {"python": ("test.test_socket", "libpython3.11-testsuite"), "twisted": ("twisted.trial", "python3-twisted"),
         "tornado": ("tornado.test", "python3-tornado")}


class Run:
    """One run of one suite in a folder of its own."""

    def __init__(self, launcher):
        self.launcher = launcher
        self.holder = tempfile.TemporaryDirectory(prefix="suites-")
        self.folder = self.holder.name
        self.stats = os.path.join(self.folder, "stats")

    def call(self, *command):
        env = dict(os.environ, LANG="C.UTF-8")
        if self.launcher:
            command = (self.launcher, "-p", "any * auto self=on", "--stats", self.stats) + command
        # Its own session: what a test leaves behind ends with it.
        child = subprocess.Popen(command, cwd=self.folder, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT, start_new_session=True, text=True, errors="replace")
        try:
            return child.communicate(timeout=LIMIT_S)[0]
        except subprocess.TimeoutExpired:
            print("    ended after %d s" % LIMIT_S)
            os.killpg(child.pid, 9)
            return child.communicate()[0]
        finally:
            try:
                os.killpg(child.pid, 9)
            except ProcessLookupError:
                pass

    def upgraded(self):
        if not os.path.exists(self.stats):
            return 0, 0
        with open(self.stats, encoding="utf-8") as f:
            lines = [json.loads(line) for line in f]
        return sum(line["reason"] == "upgraded" for line in lines), len(lines)


def known(name):
    return next((why for pattern, why in KNOWN.items() if fnmatch.fnmatchcase(name, pattern)), None)


def compare(name, launcher):
    """True if nothing differs that is not known."""
    outcomes, what = SUITES[name]
    before, after = Run(None), Run(launcher)
    plain = outcomes(before, what)
    shimmed = outcomes(after, what)
    upgraded, all_lines = after.upgraded()
    print("%s: %d tests; %d of %d connection ends upgraded" % (name, len(plain), upgraded, all_lines), flush=True)
    good = bool(plain)
    if not plain:
        print("    no test ran")
    for test in sorted(set(plain) | set(shimmed)):
        if plain.get(test) == shimmed.get(test):
            continue
        why = known(test)
        good = good and why is not None
        print("    %s: plain %s, sockwarp %s%s" % (test, plain.get(test), shimmed.get(test), why and " (known: %s)" % why or ""))
    return good, upgraded


def main():
    parser = argparse.ArgumentParser(description="Other projects' socket test suites, plain and under sockwarp.")
    parser.add_argument("--build", default="build", help="the build folder (build)")
    parser.add_argument("--list", action="store_true", help="print the suites' names")
    parser.add_argument("suites", nargs="*", metavar="SUITE", help="names or patterns; default: all")
    args = parser.parse_args()
    names = [name for name in SUITES if not args.suites or any(fnmatch.fnmatchcase(name, p) for p in args.suites)]
    if args.list:
        print("\n".join(names))
        return 0
    launcher = os.path.abspath(os.path.join(args.build, "sockwarp"))
    if not os.access(launcher, os.X_OK) or not names:
        parser.error("no such suite" if not names else launcher + " is not there: --build")
    bad, missing, total = [], set(), 0
    for name in names:
        module, package = NEEDS[name.split("-")[0]]
        if subprocess.run([PYTHON, "-c", "import " + module], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                          check=False).returncode:
            missing.add(package)
            continue
        good, upgraded = compare(name, launcher)
        total += upgraded
        if not good:
            bad.append(name)
    for package in sorted(missing):
        print("not run: %s is not installed" % package)
    if total == 0:
        print("no connection was upgraded: this says nothing")
    print("differences in: " + ", ".join(bad) if bad else "no unknown difference")
    return 1 if bad or missing or total == 0 else 0


sys.exit(main())
