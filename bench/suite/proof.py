"""What sockwarp's statistics must say about a run, for its figures to be worth something."""

import json

from suite.failure import Unproven


def records(path):
    """The lines of a statistics file."""
    try:
        with open(path, encoding="utf-8") as f:
            return [json.loads(line) for line in f]
    except ValueError as e:
        raise Unproven("the statistics are not JSON: %s" % e) from None


def name(r):
    return "%s %s %s -> %s" % (r["program"], r["role"], r["local"], r["peer"])


def first_few(wrong):
    return "; ".join(wrong[:3]) + (" (and %d more)" % (len(wrong) - 3) if len(wrong) > 3 else "")


def upgraded(found, least):
    """Every connection was upgraded at both ends and ended without errors; there were so many at least."""
    wrong = ["%s: transport %s (%s), %d errors" % (name(r), r["transport"], r["reason"], r["errors"])
             for r in found if r["transport"] == "plain" or r["errors"]]
    if wrong:
        raise Unproven("not upgraded: " + first_few(wrong))
    for role in "connect", "accept":
        count = sum(r["role"] == role for r in found)
        if count < least:
            raise Unproven("%d %s ends in the statistics, %d are wanted%s" % (
                count, role, least, "" if found else ": was the library loaded?"))


def plain(found, least, reasons):
    """Every connection stayed plain for one of these reasons; there were so many at least."""
    wrong = ["%s: transport %s (%s)" % (name(r), r["transport"], r["reason"]) for r in found if r["transport"] != "plain"]
    others = ["%s: %s" % (name(r), r["reason"]) for r in found if r["reason"] not in reasons]
    if wrong or others:
        raise Unproven("not plain for the reason %s: %s" % (" or ".join(reasons), first_few(wrong or others)))
    if len(found) < least:
        raise Unproven("%d ends in the statistics, %d are wanted" % (len(found), least))


def mixed(found, least, reasons):
    """So many connections at least were upgraded at both ends; the others stayed plain for one of these reasons."""
    upgraded([r for r in found if r["reason"] not in reasons], least)


def nothing(found):
    """No connection was looked at."""
    if found:
        raise Unproven("no rule matches, and yet: " + first_few([name(r) for r in found]))
