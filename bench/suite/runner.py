"""Runs workloads in their places: rounds of one plain and one sockwarp sample, in turns (A B, B A, A B, ...)."""

import os
import time

from suite import arithmetic, machine, places
from suite.failure import Failure
from suite.session import Session, Side

# A pair of samples that failed, or whose statistics do not prove it, is thrown away, told, and run again; so often in an
# entry, then the entry has failed.
REPEATS = 2
# A run that only proves takes so long, see Workload.apart.
PROOF_S = 0.1


class Runner:
    def __init__(self, tools, congestion, rounds, seconds, null=False, say=print):
        self.tools, self.congestion, self.rounds, self.seconds, self.null, self.say = (
            tools, congestion, rounds, seconds, null, say)
        self.places, self.cables = {}, {}
        self.processors = machine.Processors()

    def sides(self, workload):
        if self.null or workload.null:
            return Side(arithmetic.PLAIN, False), Side("plain again", False)
        return Side(arithmetic.PLAIN, False), Side("sockwarp", True)

    def place(self, name):
        if name not in self.places:
            self.places[name] = places.Place(name, self.congestion)
        return self.places[name]

    def why_not(self, workload, place):
        missing = workload.missing()
        if missing:
            return "missing: " + " ".join(missing)
        if workload.hosts not in (None, place.hosts):
            return "it is about %s" % ("one host" if workload.hosts == 1 else "two hosts")
        return place.why_not() or (place.why_not_foreign() if workload.foreign else None)

    def estimate(self, workload):
        """Seconds, about."""
        rounds = min(self.rounds, workload.rounds or self.rounds)
        return rounds * 2 * (max(self.seconds, workload.least_s) + 0.12)

    def entry(self, workload, place_name):
        """Runs a workload in a place. The entry; with "not_run" or "failed" it says why there are no or few samples."""
        place = self.place(place_name)
        entry = {"workload": workload.name, "title": workload.title, "place": place.name, "place_title": place.title,
                 "congestion": self.congestion, "null": self.null or workload.null,
                 "measures": [dict(m, bar=None) if self.null else m for m in workload.measures],
                 "environment": {} if self.null or workload.null else workload.env,
                 "commands": {}, "repeats": [], "samples": []}
        reason = self.why_not(workload, place)
        if reason:
            return dict(entry, not_run=reason)
        self.processors.others(0)
        try:
            place.open(self.cables)
            workload.prepare(self.tools, place)
            with workload.around():
                for number in range(min(self.rounds, workload.rounds or self.rounds)):
                    self.round(workload, place, number, entry)
        except Failure as failure:
            entry["failed"] = str(failure)
        ours = sum(arithmetic.cpu_s(s) for s in entry["samples"])
        entry["others_cpu"] = round(self.processors.others(ours), 3)
        return entry

    def round(self, workload, place, number, entry):
        sides = self.sides(workload)
        for attempt in range(REPEATS + 1):
            try:
                samples = [dict(self.sample(workload, place, side, entry), round=number, side=side.name, turn=turn)
                           for turn, side in enumerate(sides if number % 2 == 0 else sides[::-1])]
            except Failure as failure:
                reason = str(failure)
                entry["repeats"].append({"round": number, "reason": reason})
                self.say("  %s, %s: round %d is not counted: %s" % (workload.name, place.name, number + 1, reason))
                if len(entry["repeats"]) > REPEATS or attempt == REPEATS:
                    raise
            else:
                entry["samples"] += samples
                return

    def sample(self, workload, place, side, entry):
        if side.shimmed and workload.apart:
            self.run(workload, place, side, min(self.seconds, PROOF_S), True)
        result, session = self.run(workload, place, side, self.seconds, not workload.apart)
        if result["congestion"] != self.congestion:
            raise Failure("congestion control %s, not %s" % (result["congestion"], self.congestion))
        entry["commands"].setdefault(side.name, session.commands)
        del result["congestion"]
        return dict(result, cpu=session.cpu)

    def run(self, workload, place, side, seconds, stats):
        session = Session(self.tools, place, side, workload, stats)
        try:
            result = workload.run(session, seconds)
            session.prove()
        finally:
            session.leave()
        return result, session

    def leave(self):
        for pair in self.cables.values():
            for space in pair:
                space.leave()


def result_of(runner, chosen, options, progress):
    """Runs [(workload, place name)] one after the other; the result. progress(entry) is called after each."""
    begin = time.time()
    result = {
        "format": 1,
        "began": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(begin)),
        "command": machine.command_line(),
        "options": options,
        "settings": {k: v for k, v in sorted(os.environ.items()) if k.startswith("SOCKWARP_")},
        "machine": machine.describe(),
        "versions": machine.versions(runner.tools.launcher, os.path.dirname(os.path.abspath(__file__))),
        "congestion": runner.congestion,
        "entries": [],
    }
    for workload, place in chosen:
        entry = runner.entry(workload, place)
        result["entries"].append(entry)
        progress(entry)
    result["took_s"] = round(time.time() - begin, 1)
    return result
