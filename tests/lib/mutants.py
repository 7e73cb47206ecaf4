"""Mutants of single lines, which a test of the requirement that they break has to find (scripts/compliance --mutants).

docs/compliance/mutants.tsv has one a line: RFC and id, the file, the line as it is, the line as the mutant has it. The file is compiled
with that line and linked into the unit tests whose tags name the requirement, before the library's archive, so that the mutant is
what they get; one of those tests has to fail. Nothing in the tree is changed.
"""

import os
import random
import re
import shutil
import subprocess
import tempfile

FILE = "docs/compliance/mutants.tsv"
LIMIT_S = 240  # A mutant that loops for ever is no good one: whether it was found would be a question of time.
PLACE = re.compile(r"(tests/unit/test_\w+)\.c:\d+ (\w+)/(\w+)$")


class Mutant:
    def __init__(self, at, rfc, rid, path, old, new):
        self.at, self.rfc, self.id, self.path, self.old, self.new = at, rfc, rid, path, old, new

    def __str__(self):
        return "%s: RFC %s %s, %s" % (self.at, self.rfc, self.id, self.path)


def rows(top, path):
    """(place, fields) of each line of a list."""
    with open(os.path.join(top, path), encoding="utf-8") as f:
        for number, line in enumerate(f.read().splitlines(), 1):
            if line and not line.startswith("#"):
                yield "%s:%d" % (path, number), line.split("\t")


def read(top, lists):
    """The mutants, and what is wrong with them: each belongs to a requirement that is done, and its line is there, once."""
    mutants, wrong, texts = [], [], {}
    for at, fields in rows(top, FILE):
        if len(fields) != 4 or fields[2] == fields[3]:
            wrong.append("%s: not RFC and id, file, line, another line" % at)
            continue
        rfc, _, rid = fields[0].partition(" ")
        r = lists.get(rfc, {}).get(rid)
        if r is None or r.status != "done":
            wrong.append("%s: RFC %s %s is not done" % (at, rfc, rid))
        elif not tests_of(r):
            wrong.append("%s: no unit test names RFC %s %s" % (at, rfc, rid))
        path = fields[1]
        if path not in texts:
            full = os.path.join(top, path)
            texts[path] = []
            if re.fullmatch(r"core/\w+/\w+\.c", path) and os.path.isfile(full):
                with open(full, encoding="utf-8") as f:
                    texts[path] = [text.strip() for text in f]
        if texts[path].count(fields[2]) != 1:
            wrong.append("%s: %d lines of %s are «%s»" % (at, texts[path].count(fields[2]), path, fields[2]))
        mutants.append(Mutant(at, rfc, rid, path, fields[2], fields[3]))
    return mutants, wrong


def tests_of(requirement):
    """{program: its Criterion tests} that name the requirement."""
    found = {}
    for place in requirement.tests:
        m = PLACE.match(place)
        if m:
            found.setdefault(m.group(1), []).append("%s/%s" % m.group(2, 3))
    return found


class Bench:
    """Compiles, links and runs with what a build has."""

    def __init__(self, top, build):
        self.top, self.build = top, build
        with open(os.path.join(build, "Makefile"), encoding="utf-8") as f:
            made = dict(re.findall(r"(?m)^(CC|CFLAGS|DEFS) = (.*)$", f.read()))
        # What the objects of a sanitized or counting build need of whoever links them.
        self.cc = made["CC"].split() + [f for f in made["CFLAGS"].split() if f.startswith(("-fsanitize", "--coverage", "-fprofile"))]
        self.flags = made["DEFS"].split() + ["-I" + build, "-I" + top, "-D_GNU_SOURCE=", '-DSW_PKGLIBDIR="/"', '-DSW_VERSION="0"',
                                             "-std=gnu11", "-O1", "-w", "-ftls-model=initial-exec"]
        with open(os.path.join(top, "tests", "local.mk"), encoding="utf-8") as f:
            self.sources = dict(re.findall(r"(?m)^(tests_unit_\w+)_SOURCES = (.*)$", f.read()))
        self.archive = os.path.join(build, ".libs", "libwhole.a")
        self.tmp = tempfile.mkdtemp(prefix="sockwarp-mutant.")

    def close(self):
        shutil.rmtree(self.tmp)

    def _do(self, command, **more):
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", **more)

    def compile(self, path, old, new):
        """The object with this line; None and why if it is no C."""
        with open(os.path.join(self.top, path), encoding="utf-8") as f:
            text = f.read().split("\n")
        at = [n for n, line in enumerate(text) if line.strip() == old]
        text[at[0]] = new
        source, obj = os.path.join(self.tmp, "mutant.c"), os.path.join(self.tmp, "mutant.o")
        with open(source, "w", encoding="utf-8") as f:
            f.write("\n".join(text))
        r = self._do(self.cc + self.flags + ["-I" + os.path.join(self.top, os.path.dirname(path)), "-c", source, "-o", obj])
        return (obj, "") if r.returncode == 0 else (None, r.stdout)

    def run(self, obj, program, tests):
        """The tests of the program that fail; None and why if it cannot be linked, or does not end."""
        exe = os.path.join(self.tmp, "test")
        sources = self.sources.get(program.replace("/", "_"), program + ".c").split()
        objects = [os.path.join(self.build, s[:-2] + ".o") for s in sources if s.endswith(".c")]
        r = self._do(self.cc + ["-o", exe] + objects + [obj, self.archive, "-lcriterion", "-lpthread"])
        if r.returncode != 0:
            return None, r.stdout
        failed = []
        for test in tests:
            try:
                r = self._do([exe, "--filter", test, "-j1"], timeout=LIMIT_S,
                             env={**os.environ, "SW_SRCDIR": self.top, "MALLOC_PERTURB_": "90"})
            except subprocess.TimeoutExpired:
                return None, "%s does not end" % test
            if r.returncode != 0:
                failed.append(test)
        return failed, ""

    def found(self, mutant, requirement):
        """Which tests find it ([]: none), and what went wrong otherwise."""
        obj, why = self.compile(mutant.path, mutant.old, mutant.new)
        if obj is None:
            return [], "the mutant is no C: " + why
        for program, tests in tests_of(requirement).items():
            failed, why = self.run(obj, program, tests)
            if failed is None:
                return [], why
            if failed:
                return failed, ""
        return [], ""


def check(top, build, lists, sample, say):
    """Runs all mutants, or a sample of them. What is wrong."""
    mutants, wrong = read(top, lists)
    if wrong:
        return wrong
    if sample:
        mutants = random.Random(int(os.environ.get("SW_SEED") or 1)).sample(mutants, min(sample, len(mutants)))
    bench = Bench(top, build)
    try:
        for mutant in mutants:
            failed, why = bench.found(mutant, lists[mutant.rfc][mutant.id])
            if why:
                wrong.append("%s: %s" % (mutant, why))
            elif not failed:
                wrong.append("%s: no test that names it finds «%s»" % (mutant, mutant.new))
            else:
                say("%s: found by %s" % (mutant, failed[0]))
    finally:
        bench.close()
    return wrong
