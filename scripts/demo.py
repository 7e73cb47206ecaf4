"""The measuring part of scripts/demo: iperf3 on loopback, plain and under sockwarp, in turns.

Exits 0 if every connection of the sockwarp runs was upgraded and ended without errors, 1 if not, 2 if it could not run.
"""

import argparse
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time


class Failure(Exception):
    """What to tell the user instead of a traceback."""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def listening(port):
    """Whether a TCP socket listens on port, by the kernel's table: a connect would use up a one-shot server."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table, encoding="ascii") as f:
                next(f)
                for line in f:
                    _, local, _, state = line.split()[:4]
                    if state == "0A" and int(local.rsplit(":", 1)[1], 16) == port:
                        return True
        except FileNotFoundError:
            pass
    return False


class Server:
    """iperf3 -s for one test, ended by its pid whatever happens."""

    def __init__(self, prefix, port, env, log):
        self.log = log
        with open(log, "wb") as out:
            self.process = subprocess.Popen(prefix + ["iperf3", "-s", "-1", "-B", "127.0.0.1", "-p", str(port)],
                                            stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env=env)
        self.port = port

    def __enter__(self):
        deadline = time.monotonic() + 10
        while not listening(self.port):
            if self.process.poll() is not None:
                raise Failure("the server ended with status %d:\n%s" % (self.process.returncode, self.said()))
            if time.monotonic() > deadline:
                self.__exit__()
                raise Failure("the server does not listen after 10 s:\n%s" % self.said())
            time.sleep(0.01)
        return self

    def said(self):
        with open(self.log, encoding="utf-8", errors="replace") as f:
            return f.read()[-2000:]

    def wait(self):
        """Its exit status after its one test; statistics are complete only then."""
        try:
            return self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            raise Failure("the server did not end after its test:\n%s" % self.said()) from None

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(timeout=3)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def run(prefix, env, args, tmp):
    """One server and one client; bits per second that arrived, and the congestion control in use."""
    port = free_port()
    with Server(prefix, port, env, os.path.join(tmp, "server.log")) as server:
        client = subprocess.run(prefix + ["iperf3", "-c", "127.0.0.1", "-p", str(port), "-t", str(args.seconds),
                                          "-P", str(args.streams), "-J"],
                                stdin=subprocess.DEVNULL, capture_output=True, env=env, check=False,
                                timeout=args.seconds + 30)
        try:
            report = json.loads(client.stdout)
        except ValueError:
            raise Failure("the client ended with status %d and no report:\n%s%s" % (
                client.returncode, client.stdout.decode(errors="replace")[-1000:],
                client.stderr.decode(errors="replace")[-1000:])) from None
        if "error" in report or client.returncode != 0:
            raise Failure("the client ended with status %d: %s" % (client.returncode, report.get("error")))
        status = server.wait()
        if status != 0:
            raise Failure("the server ended with status %d:\n%s" % (status, server.said()))
    end = report["end"]
    return end["sum_received"]["bits_per_second"], end.get("sender_tcp_congestion", "?")


def read_stats(path):
    try:
        with open(path, encoding="utf-8") as f:
            lines = f.readlines()
    except FileNotFoundError:
        raise Failure("sockwarp wrote no statistics: the library was not loaded") from None
    try:
        return [json.loads(line) for line in lines]
    except ValueError as e:
        raise Failure("the statistics are not JSON: %s" % e) from None


def faults(records, args):
    """Everything that keeps these records from proving that all connections were upgraded and whole."""
    found = []
    # iperf3 opens one control connection and one for each stream.
    want = args.rounds * (1 + args.streams)
    for role in ("connect", "accept"):
        count = sum(r["role"] == role for r in records)
        if count != want:
            found.append("%d %s connections in the statistics, not %d" % (count, role, want))
    for r in records:
        name = "%s %s -> %s" % (r["role"], r["local"], r["peer"])
        if r["transport"] != "iwarp":
            found.append("%s: transport %s (%s)" % (name, r["transport"], r["reason"]))
        else:
            # A transfer goes one way only; what goes must be in FPDUs.
            for way in ("tx", "rx"):
                if r[way + "_bytes"] and not r[way + "_fpdus"]:
                    found.append("%s: %d bytes but no FPDUs (%s)" % (name, r[way + "_bytes"], way))
            if not r["tx_fpdus"] + r["rx_fpdus"]:
                found.append("%s: no FPDUs" % name)
        if r["errors"]:
            found.append("%s: %d errors" % (name, r["errors"]))
    # Each connection shows up at both ends; what one has received, the other has sent. (A sender may have sent octets
    # that nobody read any more: iperf3's server closes when the time is over.)
    ends = {(r["local"], r["peer"]): r for r in records}
    for r in records:
        other = ends.get((r["peer"], r["local"]))
        if other is None:
            found.append("%s %s -> %s: the other end is not in the statistics" % (r["role"], r["local"], r["peer"]))
        elif r["rx_bytes"] > other["tx_bytes"]:
            found.append("%s %s -> %s: received %d bytes of %d sent" % (
                r["role"], r["local"], r["peer"], r["rx_bytes"], other["tx_bytes"]))
    return found


def show_proof(records):
    print("\nWhat sockwarp recorded (SOCKWARP_STATS), one line a connection end:\n")
    head = ("role", "local", "peer", "transport", "reason", "rtr", "crc", "tx_fpdus", "rx_fpdus", "sends", "writes",
            "tx_bytes", "rx_bytes", "errors")
    rows = [head] + [tuple(str(r.get(k, "")) for k in head) for r in records]
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    for row in rows:
        print("  " + "  ".join(text.ljust(w) for text, w in zip(row, widths)).rstrip())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--launcher", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--streams", type=int, default=1)
    args = parser.parse_args()

    # So that the servers and the folder go when we are told to.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if not shutil.which("iperf3"):
        raise Failure("iperf3 is not installed")
    if not os.access(args.launcher, os.X_OK):
        raise Failure("%s is missing: it has not been built" % args.launcher)

    plain_env = {k: v for k, v in os.environ.items() if not k.startswith("SOCKWARP_") and k != "LD_PRELOAD"}
    with tempfile.TemporaryDirectory(prefix="sockwarp-demo.") as tmp:
        stats = os.path.join(tmp, "stats")
        kinds = {
            "plain": ([], plain_env),
            "sockwarp": ([args.launcher], dict(plain_env, SOCKWARP_STATS=stats)),
        }
        print("\niperf3 on loopback, %d rounds, %d s a run, %d stream%s (GB/s that arrived)\n" % (
            args.rounds, args.seconds, args.streams, "" if args.streams == 1 else "s"), flush=True)
        ratios, control = [], "?"
        for round_number in range(1, args.rounds + 1):
            speed = {}
            order = ("plain", "sockwarp") if round_number % 2 else ("sockwarp", "plain")
            for kind in order:
                prefix, env = kinds[kind]
                speed[kind], control = run(prefix, env, args, tmp)
            ratios.append(speed["sockwarp"] / speed["plain"])
            print("  round %d: plain %6.3f, sockwarp %6.3f, ratio %.2f   (%s first)" % (
                round_number, speed["plain"] / 8e9, speed["sockwarp"] / 8e9, ratios[-1], order[0]), flush=True)
        print("\n  median ratio %.2f (from %.2f to %.2f), congestion control %s" % (
            statistics.median(ratios), min(ratios), max(ratios), control))

        records = read_stats(stats)
        show_proof(records)
        found = faults(records, args)
    if found:
        print("\nNOT every connection was upgraded and whole:")
        for f in found:
            print("  " + f)
        return 1
    print("\nAll %d connection ends were upgraded: iWARP, %d FPDUs sent, no errors." % (
        len(records), sum(r["tx_fpdus"] for r in records)))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failure as e:
        print("demo: %s" % e, file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
