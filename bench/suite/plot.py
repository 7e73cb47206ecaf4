"""SVG plots, drawn by gnuplot from scripts that hold their data."""

import re
import subprocess

from suite import arithmetic
from suite.process import find

MISSING = "gnuplot is missing (Debian: gnuplot-nox): no plots"

SETUP = """set terminal svg size %d,%d font "sans-serif,12" background "white" noenhanced
set output
set title "%s"
set grid
set key outside below
set style line 1 linecolor rgb "#888888" linewidth 2 pointtype 7 pointsize 0.6
set style line 2 linecolor rgb "#0060ad" linewidth 2 pointtype 7 pointsize 0.6
set style line 3 linecolor rgb "#d95319" linewidth 2 pointtype 2 pointsize 0.8
"""


def quoted(text):
    return '"%s"' % text.replace("\\", "").replace('"', "'")


def block(name, lines):
    return "$%s << END\n%s\nEND\n" % (name, "\n".join(lines))


def gains(rows):
    """All rows with a bar, as one picture: how many times as good as plain, with the spread and the bar."""
    rows = [row for row in rows if "ratio" in row.bar and row.ratio]
    if not rows:
        return None
    good, bad, bars = [], [], []
    for height, row in enumerate(reversed(rows)):
        spread = sorted(arithmetic.gain(row, r) for r in (row.lowest, row.highest))
        line = "%g %d %g %g" % (arithmetic.gain(row, row.ratio), height, *spread)
        (good if row.met else bad).append(line)
        bars.append("%g %d" % (arithmetic.gain(row, row.bar["ratio"][1]), height))
    tics = ", ".join("%s %d" % (quoted(" ".join(filter(None, (row.name, row.measure["title"]))) + ", " + row.place), height)
                     for height, row in enumerate(reversed(rows)))
    # gnuplot has no empty data blocks: a point that is not drawn stands for them.
    return SETUP % (900, 130 + 18 * len(rows), "sockwarp compared with plain TCP") + """
set logscale x
set lmargin at screen 0.36
set xlabel "times as good as plain TCP (latencies: inverse ratio): median, smallest, largest"
set yrange [-1:%d]
set ytics (%s)
set arrow from 1, -1 to 1, %d nohead linecolor rgb "#444444"
""" % (len(rows), tics, len(rows)) + block("good", good or ["NaN NaN NaN NaN"]) + block(
        "bad", bad or ["NaN NaN NaN NaN"]) + block("bars", bars) + """
set bars small
plot $bars using 1:2 with points pointtype 6 pointsize 0.9 linecolor rgb "#000000" title "bar", \\
     $good using 1:2:3:4 with xerrorbars linestyle 2 title "bar met", \\
     $bad using 1:2:3:4 with xerrorbars linestyle 3 title "bar missed"
"""


SIZE = {"": 1, "K": 1 << 10, "M": 1 << 20}


def by_size(rows, pattern, key, place):
    """[(octets, row)] of the workloads whose name is the pattern with a size in its group."""
    found = []
    for row in rows:
        match = re.fullmatch(pattern, row.name)
        if match and row.place == place and row.measure["key"] == key:
            amount, letter = re.fullmatch(r"(\d+)([KM]?)", match.group(1)).groups()
            found.append((int(amount) * SIZE[letter], row))
    return sorted(found, key=lambda pair: pair[0])


def curves(rows, title, label, patterns, log_y, place):
    """Plain and sockwarp by size; patterns: [(pattern, key, what it is)]."""
    blocks, plots, sizes = [], [], []
    for pattern, key, what in patterns:
        points = by_size(rows, pattern, key, place)
        if len(points) < 2:
            continue
        name = "d%d" % len(blocks)
        sizes += [size for size, _ in points]
        blocks.append(block(name, ("%d %g %g" % (size, row.plain / row.measure["scale"], row.other / row.measure["scale"])
                                   for size, row in points)))
        for column, side in (2, "plain"), (3, "sockwarp"):
            plots.append("$%s using 1:%d with linespoints linestyle %d dashtype %d title %s" % (
                name, column, column - 1, len(blocks), quoted("%s%s" % (side, ", " + what if what else ""))))
    if not plots:
        return None
    return SETUP % (700, 450, title) + """
set logscale x 2
set xrange [%g:%g]
set xlabel "octets"
set ylabel "%s"
set xtics ("1" 1, "64" 64, "256" 256, "1 Ki" 1024, "4 Ki" 4096, "16 Ki" 16384, "64 Ki" 65536, "128 Ki" 131072, "1 Mi" 1048576)
set yrange [%s]
%s
""" % (min(sizes) / 1.3, max(sizes) * 1.3, label, "*:*" if log_y else "0:*", "set logscale y" if log_y else "") + "".join(blocks) + "plot " + \
        ", \\\n     ".join(plots) + "\n"


def scripts(rows, place="lo-pinned"):
    """[(name, title, gnuplot script)] of all pictures for which there are rows."""
    made = [
        ("ratios", "Ratios to plain TCP, and the bars", gains(rows)),
        ("bulk", "Bulk by size of the writes",
         curves(rows, "Bulk, one stream, loopback, a processor for each end", "GB/s",
                [(r"bulk-(\d+[KM]?)", "bytes_per_s", "")], False, place)),
        ("small", "Small writes a second",
         curves(rows, "Small writes, loopback, a processor for each end", "writes a second",
                [(r"small-(\d+[KM]?)-nodelay", "blocks_per_s", "TCP_NODELAY"),
                 (r"small-(\d+[KM]?)", "blocks_per_s", "Nagle")], True, place)),
        ("latency", "Round trip times",
         curves(rows, "Request and answer, loopback, a processor for each end", "microseconds",
                [(r"pingpong-(\d+[KM]?)", "p50", "median"), (r"pingpong-(\d+[KM]?)", "p99", "99 %")], True, place)),
    ]
    return [one for one in made if one[2]]


def draw(rows, folder):
    """Writes NAME.svg for each picture: ([(file, title)], None), or ([], why there are none)."""
    gnuplot = find("gnuplot")
    if not gnuplot:
        return [], MISSING
    drawn = []
    for name, title, script in scripts(rows):
        done = subprocess.run([gnuplot], input=script, capture_output=True, text=True, check=False, timeout=60)
        if done.returncode or not done.stdout.startswith("<?xml"):
            return drawn, "gnuplot failed at %s: %s" % (name, done.stderr.strip())
        with open("%s/%s.svg" % (folder, name), "w", encoding="utf-8") as f:
            f.write(done.stdout)
        drawn.append((name + ".svg", title))
    return drawn, None
