"""What a result says about where it comes from."""

import os
import platform
import re
import subprocess
import sys

from suite import places, programs


def field(path, key, cut=":"):
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            for line in f:
                name, _, value = line.partition(cut)
                if name.strip() == key:
                    return value.strip()
    except OSError:
        pass
    return None


def describe():
    flags = (field("/proc/cpuinfo", "flags") or field("/proc/cpuinfo", "Features") or "").split()
    return {
        "processor": field("/proc/cpuinfo", "model name") or platform.machine(),
        "processors": len(os.sched_getaffinity(0)),
        "architecture": platform.machine(),
        "virtual": "hypervisor" in flags,
        "crc_instructions": [f for f in ("sse4_2", "pclmulqdq", "vpclmulqdq", "avx512f", "crc32", "pmull") if f in flags],
        "memory_mib": int((field("/proc/meminfo", "MemTotal") or "0 kB").split()[0]) // 1024,
        "kernel": platform.release(),
        "system": field("/etc/os-release", "PRETTY_NAME", "=").strip('"') if os.path.exists("/etc/os-release") else "?",
        "libc": os.confstr("CS_GNU_LIBC_VERSION"),
        "congestion_default": places.default_congestion(),
        "congestion_available": places.available_congestion(),
        "load_at_begin": os.getloadavg()[0],
    }


def versions(launcher, source):
    """Of sockwarp and of the programs that are there."""
    found = {"Python": platform.python_version()}
    if launcher:
        done = subprocess.run([launcher, "--version"], capture_output=True, text=True, check=False)
        found["sockwarp"] = (re.search(r"\d[\w.+-]*", done.stdout) or ["?"])[0]
        commit = subprocess.run(["git", "-C", source, "describe", "--always", "--dirty", "--exclude", "*"],
                                capture_output=True, text=True, check=False) if programs.find("git") else None
        if commit and commit.returncode == 0:
            found["commit"] = commit.stdout.strip()
    for name, command in programs.VERSIONS.items():
        version = programs.version_of(command)
        if version:
            found[name] = version
    return found


class Processors:
    """How much of the processors' time went to others than us, since the last look: 0 to 1."""

    def __init__(self):
        self.last = self.read()

    @staticmethod
    def read():
        ticks = [int(n) for n in field("/proc/stat", "cpu", " ").split()[:8]]
        idle = ticks[3] + ticks[4]
        return (sum(ticks) - idle) / os.sysconf("SC_CLK_TCK"), sum(ticks) / os.sysconf("SC_CLK_TCK")

    def others(self, ours_s):
        busy, whole = self.read()
        was, self.last = self.last, (busy, whole)
        if whole <= was[1]:
            return 0.0
        return max(0.0, min(1.0, (busy - was[0] - ours_s) / (whole - was[1])))


def command_line():
    """Without what is of this machine only."""
    words, skip = [], False
    for word in sys.argv[1:]:
        if skip or word.split("=")[0] in ("--build", "--out"):
            skip = not skip and "=" not in word
            continue
        words.append(word)
    return " ".join([os.path.basename(sys.argv[0]), *words])
