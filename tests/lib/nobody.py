"""Programs of another user: PREFIX comes before their command."""

import os
import shutil
import sys

import shim

UID = 65534
PREFIX = ["setpriv", "--reuid=%d" % UID, "--regid=%d" % UID, "--clear-groups"]


def can_run():
    """Why not, or None; and a Python that any user may run."""
    if os.geteuid() != 0:
        return "needs root to become another user", None
    if not shutil.which("setpriv"):
        return "setpriv is missing", None
    for what in shim.LAUNCHER, shim.LIBRARY, os.path.join(shim.LIB, "agent.py"), shim.tmp:
        if shim.run(*PREFIX, "test", "-r", what).returncode:
            return "another user may not read " + what, None
    for python in sys.executable, "/usr/bin/python3", "/usr/local/bin/python3":
        if shim.run(*PREFIX, "sh", "-c", "exec %s -c 0" % python).returncode == 0:
            return None, python
    return "another user may not run " + sys.executable, None
