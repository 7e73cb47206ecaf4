"""Results and reports on disk."""

import json
import os

from suite import arithmetic, plot, table
from suite.failure import Failure

BEGIN, END = "<!-- bench/report --readme: begin -->", "<!-- end -->"


def make_folder(path):
    os.makedirs(path, exist_ok=True)
    if os.listdir(path):
        raise Failure("%s is not empty" % path)


def result(whole, f):
    """As JSON, a line for each sample: diffs and eyes get along with it."""
    entries = []
    for entry in whole["entries"]:
        samples = ",\n    ".join(json.dumps(s, ensure_ascii=False) for s in entry["samples"])
        head = json.dumps({k: v for k, v in entry.items() if k != "samples"}, ensure_ascii=False)
        entries.append('  %s, "samples": [%s]}' % (head[:-1], "\n    " + samples if samples else ""))
    head = json.dumps({k: v for k, v in whole.items() if k != "entries"}, ensure_ascii=False, indent=1)
    f.write('%s,\n "entries": [\n%s\n]}\n' % (head[:-1].rstrip(), ",\n".join(entries)))


def pages(whole, folder):
    """The table and the plots; [(file, title)] of these. Where there are no plots it says why."""
    drawn, why_not = plot.draw(arithmetic.rows(whole), folder)
    if why_not:
        print(why_not)
    with open(os.path.join(folder, "README.md"), "w", encoding="utf-8") as f:
        f.write("\n".join(table.report(whole, drawn)) + "\n")
    return drawn


def short(whole, drawn, where):
    """For the project's README: the first plot, how many bars are met, and the rows of those that are not."""
    rows = [row for row in arithmetic.rows(whole) if row.met is not None]
    missed = [row for row in rows if not row.met]
    if drawn:
        yield "![%s](%s)" % (drawn[0][1], os.path.join(where, drawn[0][0]))
        yield ""
    yield from (text + "\n" for text in table.about(whole))
    yield "%d of %d bars are met%s" % (len(rows) - len(missed), len(rows), "." if not missed else "; these are not:")
    if missed:
        yield ""
        yield from table.markdown(missed)
    yield ""
    yield "All workloads, with every sample: [%s](%s/README.md)." % (where, where)


def into_readme(whole, drawn, folder, path):
    """Replaces what stands between the two markers in a file."""
    with open(path, encoding="utf-8") as f:
        text = f.read()
    head, found, rest = text.partition(BEGIN + "\n")
    _, found_end, tail = rest.partition(END + "\n")
    if not found or not found_end:
        raise Failure("%s does not have the lines %s and %s" % (path, BEGIN, END))
    where = os.path.relpath(os.path.abspath(folder), os.path.dirname(os.path.abspath(path)))
    with open(path, "w", encoding="utf-8") as f:
        f.write(head + BEGIN + "\n" + "\n".join(short(whole, drawn, where)) + "\n" + END + "\n" + tail)
