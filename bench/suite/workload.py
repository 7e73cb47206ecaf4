"""What is run and measured: the form that all workloads have."""

import contextlib
import functools

from suite import places, proof
from suite.process import find

BOTH = (places.SERVER, places.CLIENT)
ALL_PLACES = tuple(places.NAMES)
PINNED_PLACES = tuple(name for name in places.NAMES if name.endswith(places.PINNED))
LO, LO_FREE = "lo-pinned", "lo"

PER_S, GB_S, US = ("/s", 1), ("GB/s", 1e9), ("µs", 1)


def at_least(limit, **more):
    return {"ratio": [">=", limit], **{key: ["<=", value] for key, value in more.items()}}


def at_most(limit):
    return {"ratio": ["<=", limit]}


def measure(key, unit, bar=None, title="", lower_is_better=False, compared=True):
    """
    A figure of a sample, as the table has it: values[key] / scale, in the unit. compared: a ratio to plain's means
    something.
    """
    return {"key": key, "unit": unit[0], "scale": unit[1], "title": title, "lower_is_better": lower_is_better,
            "compared": compared, "bar": bar}


def latencies(p50=None, p99=None):
    return [measure("p50", US, p50, "p50", True), measure("p99", US, p99, "p99", True),
            measure("p999", US, None, "p99.9", True)]


def octets(size):
    return "%s %siB" % (size[:-1], size[-1]) if size[-1] in "KM" else size + " B"


class Workload:
    """
    name      what --only matches
    title     for the table
    measures  see measure()
    places    where it runs unless --place says otherwise; the first one with --quick
    shims     the ends that run under sockwarp on sockwarp's side
    rules     for SOCKWARP_POLICY; None: the launcher's own
    env       the environment, on sockwarp's side only
    prove     what must be said by the statistics' records; raises Unproven
    apart     a line of statistics for each connection would be a good part of what is measured: each run under sockwarp
              is proven by a short one before it, and has none itself
    null      both sides are plain: what the noise is
    rounds    at most so many, for what takes long
    foreign   the programs choose no congestion control
    hosts     1 or 2: it is about one host, or about two; None: either
    """

    foreign = False
    apart = False
    needs = ()
    rounds = None
    least_s = 0  # a sample takes so long at least

    def __init__(self, name, title, measures, *, places=(LO,), shims=BOTH, rules=None, env=None, prove=None,
                 least=1, null=False, hosts=None):
        self.name, self.title, self.measures, self.places = name, title, measures, places
        self.shims, self.rules, self.env, self.null = shims, rules, env or {}, null
        self.hosts = hosts
        self.prove = prove or functools.partial(proof.upgraded, least=least)

    def missing(self):
        return [name for name in self.needs if not find(name)]

    def prepare(self, tools, place):
        """Once in a place, before the rounds."""

    def around(self):
        """A context for all of a place's rounds."""
        return contextlib.nullcontext()

    def run(self, session, seconds):
        """One sample: {"values", and "bytes" or "messages", and "congestion"}. The server is ended, too."""
        raise NotImplementedError
