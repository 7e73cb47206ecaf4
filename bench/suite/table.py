"""Rows as text and as Markdown."""

from suite import arithmetic

# More than this of the processors' time used by others (or taken by the host) is worth a word.
NOISY = 0.05


def number(value):
    """Three digits or so."""
    if value is None:
        return "–"
    if value == 0 or abs(value) >= 99.95:
        return "{:,.0f}".format(value)
    return "%.3f" % value if abs(value) < 0.0995 else "%.2f" % value if abs(value) < 9.995 else "%.1f" % value


def amount(value, unit, scale):
    """With its unit; what is counted a second becomes k/s or M/s."""
    if value is None:
        return "–"
    value /= scale
    if unit == "/s":
        for limit, letter in (1e6, "M"), (1e3, "k"):
            if abs(value) >= limit:
                return "%s %s/s" % (number(value / limit), letter)
    return "%s %s" % (number(value), unit)


def ratio(value):
    return "–" if value is None else number(value)


def figures(row):
    """What the columns say: plain, other, ratio, spread, CPU."""
    scale, unit = row.measure["scale"], row.measure["unit"]
    return (amount(row.plain, unit, scale), amount(row.other, unit, scale), ratio(row.ratio),
            "%s to %s" % (ratio(row.lowest), ratio(row.highest)) if row.ratio is not None else "–", ratio(row.cpu))


SIGNS = {">=": "≥", "<=": "≤"}
NAMES = {"ratio": "", "cpu": "CPU ", "value": ""}


def bar(row):
    """ "≥ 1, CPU ≤ 1.15" """
    parts = []
    for subject, (sign, limit) in row.bar.items():
        text = amount(limit, row.measure["unit"], row.measure["scale"]) if subject == "value" else "%g" % limit
        parts.append("%s%s %s" % (NAMES[subject], SIGNS[sign], text))
    return ", ".join(parts)


def verdict(row):
    return {True: "yes", False: "**no**", None: ""}[row.met]


HEAD = ("workload", "where", "plain", "sockwarp", "ratio", "from … to", "CPU", "bar", "met")


def markdown(rows, null=False):
    """The table's lines. null: both sides are plain."""
    yield "| " + " | ".join("plain again" if null and word == "sockwarp" else word for word in HEAD) + " |"
    yield "|---|---|" + "---:|" * 5 + "---|---|"
    for row in rows:
        yield "| " + " | ".join((row.title, row.entry["place_title"], *figures(row), bar(row), verdict(row))) + " |"


def about(result):
    """A paragraph: what the figures come from."""
    m, v = result["machine"], result["versions"]
    told = ["%s %s" % item for item in sorted(v.items()) if item[0] not in ("sockwarp", "commit", "Python")]
    yield ("%s, %d processors%s, %d GiB, Linux %s, %s, %s. Congestion control %s at both ends." % (
        m["processor"], m["processors"], " (virtual)" if m["virtual"] else "", round(m["memory_mib"] / 1024), m["kernel"],
        m["system"], m["libc"], result["congestion"]))
    if "sockwarp" in v:
        told.insert(0, "sockwarp %s%s" % (v["sockwarp"], " (%s)" % v["commit"] if "commit" in v else ""))
    yield ", ".join(told) + "."
    yield ("%s; %d rounds of %g s for each side, in turns: the ratio is the median of the rounds' ratios"
           " to plain, CPU that of the processor time of both ends (user and system) for each byte or message."
           % (result["began"].replace("T", " "), result["options"]["rounds"], result["options"]["seconds"]))
    if result["settings"]:
        yield "Settings: " + ", ".join("%s=%s" % item for item in result["settings"].items()) + "."


def remarks(result):
    """What did not run, failed, was repeated or was disturbed: never left out."""
    for e in result["entries"]:
        where = "%s, %s" % (e["workload"], e["place_title"])
        if "not_run" in e:
            yield "%s: not run: %s" % (where, e["not_run"])
        if "failed" in e:
            yield "%s: **failed**: %s" % (where, first_line(e["failed"]))
        elif e["repeats"]:
            yield "%s: %d round%s run again: %s" % (where, len(e["repeats"]), "s" * (len(e["repeats"]) > 1),
                                                    first_line(e["repeats"][0]["reason"]))
        if e.get("others_cpu", 0) > NOISY and "busy" not in e["workload"]:
            yield "%s: others took %.0f %% of the processors meanwhile" % (where, 100 * e["others_cpu"])


def first_line(text):
    return text.strip().splitlines()[0] if text.strip() else "?"


def report(result, plots):
    """The whole page."""
    rows = arithmetic.rows(result)
    null = result["options"].get("null", False)
    yield "# Plain TCP and plain TCP: the noise" if null else "# sockwarp and plain TCP"
    yield ""
    for paragraph in about(result):
        yield paragraph
        yield ""
    with_bar = [row for row in rows if row.met is not None]
    if with_bar:
        yield "%d of %d bars are met." % (sum(row.met for row in with_bar), len(with_bar))
        yield ""
    yield from markdown(rows, null)
    told = list(remarks(result))
    if told:
        yield ""
        yield from ("- " + text for text in told)
    for name, title in plots:
        yield ""
        yield "![%s](%s)" % (title, name)


LINE = "%-26s %-16s %12s %12s  %8s  %-18s %6s  %s"


def text_head(other="sockwarp"):
    return LINE % ("workload", "where", "plain", other, "ratio", "from ... to", "CPU", "")


def text_lines(rows):
    """For a terminal, while it runs."""
    for row in rows:
        name = row.name + (" " + row.measure["title"] if row.measure["title"] else "")
        says = " ".join(filter(None, ("less is better" if row.measure["lower_is_better"] else "",
                                      "bar " + bar(row) if row.bar else "", {True: "met", False: "MISSED", None: ""}[row.met])))
        yield LINE % (name, row.place, *figures(row), says)
