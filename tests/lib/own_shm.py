"""
A /dev/shm that no other program sees: enter() before anything else is imported. What the library keeps there is all programs' of a
user, and named by pid, and a test's pids are others' as well, in namespaces of their own.
"""

import os
import shutil
import subprocess
import sys

COMMAND = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o mode=1777 tmpfs /dev/shm && exec "$@"', "sh"]


def enter():
    """Runs the test anew, in a mount namespace of its own, where that is allowed: is_entered()."""
    if os.geteuid() == 0 and not is_entered() and shutil.which("unshare"):
        if subprocess.run([*COMMAND, "true"], capture_output=True, check=False).returncode == 0:
            os.environ["SW_OWN_SHM"] = "1"
            os.execvp(COMMAND[0], [*COMMAND, sys.executable, *sys.argv])


def is_entered():
    return "SW_OWN_SHM" in os.environ
