"""Test Anything Protocol for the script tests: ok(), same(), skip(), and an end that cannot be forgotten."""

import atexit
import os
import signal
import sys
import traceback

sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")  # whatever the caller's locale

# By so much time limits are longer: for an emulated machine.
SLOWER = int(os.environ.get("SW_SLOWER", "1"))

_count = 0
_bad = 0
_ended = False


def note(*lines):
    for text in lines:
        for line in str(text).splitlines():
            print("# " + line)
    sys.stdout.flush()


def ok(good, name, *details, todo=None):
    """
    One test point; the details are printed if it fails. Returns whether it passed. todo: why it is known to fail (then a
    failure does not count, and a success does).
    """
    global _count, _bad
    _count += 1
    print("%s %d - %s%s" % ("ok" if good else "not ok", _count, name.replace("#", "\\#"),
                            " # TODO " + todo if todo else ""))
    if bool(good) == bool(todo):
        _bad += 1
    if not good:
        note(*details)
    sys.stdout.flush()
    return bool(good)


def same(got, want, name, *details):
    return ok(got == want, name, "got:  %r" % (got,), "want: %r" % (want,), *details)


def retry(what, why):
    """Something is done once more: it can be seen in the log, which is searched for these lines."""
    note("RETRY %s: %s" % (what, " ".join(str(why).split())))


def skip(name, reason):
    global _count
    _count += 1
    print("ok %d - %s # SKIP %s" % (_count, name.replace("#", "\\#"), reason))
    sys.stdout.flush()


def skip_all(reason):
    global _ended
    _ended = True
    print("1..0 # SKIP " + reason)
    sys.stdout.flush()
    sys.exit(0)


def end():
    """The plan, and the exit status. To be called last."""
    global _ended
    _ended = True
    print("1..%d" % _count)
    sys.stdout.flush()
    sys.exit(1 if _bad or not _count else 0)


def _unexpected(kind, value, trace):
    global _ended
    _ended = True
    print("Bail out! %s: %s" % (kind.__name__, " ".join(str(value).split())))
    note("".join(traceback.format_exception(kind, value, trace)))


def _forgotten():
    if not _ended:
        print("Bail out! the test ended early")
        sys.stdout.flush()


sys.excepthook = _unexpected
atexit.register(_forgotten)


class TooLate(BaseException):
    """Not to be caught by a test's own except clauses."""


def limit(seconds):
    """The whole test may take so long: then it ends with what is known, and its children with it."""
    seconds *= SLOWER

    def late(_number, frame):
        where = "".join(traceback.format_stack(frame))
        raise TooLate("the test took more than %d s; it was at\n%s" % (seconds, where))
    signal.signal(signal.SIGALRM, late)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    signal.alarm(seconds)
    os.environ["LC_ALL"] = "C"
