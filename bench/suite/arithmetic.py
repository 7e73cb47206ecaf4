"""
From a result's samples to the rows of the table: nothing is run or read here.

A result (the JSON that bench/run writes) has entries, one for each workload in each place; an entry has samples, two a
round: one of side "plain" and one of side "sockwarp" (--null: "plain" and "plain again"). A round's two samples ran one
right after the other, so they make one ratio; an entry's figure is the median of its rounds' ratios, not the ratio of
two medians.
"""

import statistics

PLAIN = "plain"


class Row:
    """A line of the table: one measure of one entry."""

    def __init__(self, entry, measure):
        self.entry, self.measure = entry, measure
        self.name, self.place = entry["workload"], entry["place"]
        self.title = entry["title"] + (" " + measure["title"] if measure["title"] else "")
        rounds = pairs(entry["samples"])
        key = measure["key"]
        self.plain = median([one["values"][key] for one, _ in rounds])
        self.other = median([two["values"][key] for _, two in rounds])
        ratios = [r for r in (quotient(two["values"][key], one["values"][key]) for one, two in rounds) if r is not None]
        if not measure["compared"]:
            ratios = []
        self.ratio = median(ratios)
        self.lowest, self.highest = (min(ratios), max(ratios)) if ratios else (None, None)
        self.cpu = cpu_ratio(rounds)
        self.rounds = len(rounds)
        self.bar = measure.get("bar") or {}
        self.met = meets(self)


def pairs(samples):
    """[(plain sample, other sample)], one a round; a round that is not whole is left out."""
    rounds = {}
    for sample in samples:
        rounds.setdefault(sample["round"], {})[sample["side"] == PLAIN] = sample
    return [(rounds[n][True], rounds[n][False]) for n in sorted(rounds) if len(rounds[n]) == 2]


def median(values):
    return statistics.median(values) if values else None


def quotient(value, base):
    return value / base if base else None


def cpu_s(sample):
    """Processor time of both ends, user and system, in seconds."""
    return sum(end["user"] + end["sys"] for end in sample["cpu"].values())


def cpu_per_unit(sample):
    """Of a byte where bytes were counted, else of a message (a request, a connection)."""
    return quotient(cpu_s(sample), sample.get("bytes") or sample.get("messages"))


def cpu_ratio(rounds):
    """The median of the rounds' ratios of processor time for the same work."""
    both = [(cpu_per_unit(one), cpu_per_unit(two)) for one, two in rounds]
    return median([r for r in (quotient(two, one) for one, two in both if two is not None) if r is not None])


# What a bar is about: the median ratio, the ratio of processor time, the median of sockwarp itself.
SUBJECTS = {"ratio": lambda row: row.ratio, "cpu": lambda row: row.cpu, "value": lambda row: row.other}


def meets(row):
    """Whether all of the row's bar is met; None: it has none, or nothing to compare with it."""
    verdicts = []
    for subject, (sign, limit) in row.bar.items():
        value = SUBJECTS[subject](row)
        if value is None:
            return None
        verdicts.append(value >= limit if sign == ">=" else value <= limit)
    return all(verdicts) if verdicts else None


def rows(result):
    """The rows of all entries that have a whole round, in the order in which they ran."""
    return [Row(entry, measure) for entry in result["entries"] if pairs(entry["samples"])
            for measure in entry["measures"]]


def gain(row, ratio):
    """A ratio of a row turned so that more than 1 is better than plain."""
    if ratio is None:
        return None
    return quotient(1, ratio) if row.measure["lower_is_better"] else ratio
