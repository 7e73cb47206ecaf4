"""tests/tiers.tsv: which test belongs to which tier, where it runs, how long it may take, and whether it may run again."""

import collections
import fnmatch
import os
import sys

OWN, HOST = "own", "host"  # namespaces of the test's own; the machine's
GATE, FULL, BESIDE = "gate", "full", "beside"
AGAIN, NEVER = "again", "never"
DEFAULT_LIMIT_S = 300
FILE = os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "tiers.tsv")

Row = collections.namedtuple("Row", "pattern tier place limit_s again why")


def read(path=None):
    """The rows; ValueError with file and line for what is wrong."""
    rows = []
    slower = int(os.environ.get("SW_SLOWER", "1"))  # as in tap.py
    path = path or os.environ.get("SW_TIERS") or FILE
    with open(path, encoding="utf-8") as f:
        for number, line in enumerate(f, 1):
            if not line.strip() or line.startswith("#"):
                continue
            word = line.rstrip("\n").split("\t")
            if (len(word) != 6 or word[1] not in (GATE, FULL, BESIDE) or word[2] not in (OWN, HOST) or not word[3].isdigit() or
                    word[4] not in (AGAIN, NEVER) or not word[5].strip()):
                raise ValueError("%s:%d: not PATTERN, gate|full|beside, own|host, SECONDS, again|never, WHY" % (path, number))
            rows.append(Row(word[0], word[1], word[2], int(word[3]) * slower, word[4], word[5]))
    return rows


def relative(test):
    """A test's path as the list has it: from the top of the sources, or of the build."""
    # (The build's folder first: it may lie in that of the sources.)
    for top in os.environ.get("SW_BUILDDIR"), os.environ.get("SW_SRCDIR"):
        if top and os.path.realpath(test).startswith(os.path.realpath(top) + os.sep):
            return os.path.relpath(os.path.realpath(test), os.path.realpath(top))
    return test


def matching(test, rows):
    return [row for row in rows if fnmatch.fnmatchcase(test, row.pattern)]


def row_of(test, rows=None):
    """The one row of a test; where there is none or more (harness.test says so) what suits most."""
    found = matching(relative(test), read() if rows is None else rows)
    return found[0] if found else Row(test, FULL, OWN, DEFAULT_LIMIT_S, NEVER, "not in the list")


if __name__ == "__main__":
    # tiers.py gate|full TEST...: prints those that belong to the tier; all belong to full.
    wanted, listed = sys.argv[1], read()
    print(*(test for test in sys.argv[2:] if wanted == FULL or row_of(test, listed).tier == GATE))
