"""socat as a server that forks, and executes other programs on the connection; socat or bash as the client."""

import shim
from matrix import blob, digest, entry

DATA = blob(10_000_000, 10)
VERSION = ["socat", "-V"]


def talk(run, port, data, *options):
    """What comes back over socat as a client, which half-closes after the data."""
    return run.call("socat", "-t", "30", *options, "-", "TCP:127.0.0.1:%d" % port, input=data, text=False)


def serve(run, what, *options):
    port = shim.free_port()
    return port, run.serve(port, "socat", *options, "TCP-LISTEN:%d,bind=127.0.0.1,reuseaddr,fork" % port, what)


def echoes(run, what, count=2):
    """10 MB come back from each of some connections."""
    port, child = serve(run, what, "-t", "30")
    for _ in range(count):
        run.same(digest(talk(run, port, DATA)), digest(DATA), "10 MB through " + what)
    run.same(talk(run, port, b""), b"", "nothing through " + what)
    run.stop(child, status=143)
    return "checksums of %d MB equal" % (count * len(DATA) // 1_000_000)


@entry("socat", "TCP-LISTEN,fork EXEC:cat, socat as the client", needs=["socat"], version=VERSION, at_least=3)
def socat_exec(run):
    return echoes(run, "EXEC:cat")


@entry("socat", "TCP-LISTEN,fork EXEC:cat,nofork: cat has the connection itself", needs=["socat"], version=VERSION,
       at_least=3)
def socat_nofork(run):
    return echoes(run, "EXEC:cat,nofork")


@entry("socat", "TCP-LISTEN,fork SYSTEM: a pipeline of sh", needs=["socat"], version=VERSION, at_least=3)
def socat_system(run):
    return echoes(run, "SYSTEM:cat | cat")


@entry("socat", "TCP-LISTEN,fork EXEC:bash,nofork: a script reads and prints lines on the connection",
       needs=["socat", "bash"],
       version=VERSION, at_least=21)
def socat_bash(run):
    script = run.write("script",
                       'echo "hello from $0"\nsum=0\nwhile read -r n; do sum=$((sum + n)); echo "$n $sum"; done\n'
                                 'echo "end $sum"\n')
    port, child = serve(run, "EXEC:bash %s,nofork" % script)
    lines = "".join("%d\n" % n for n in range(2000))
    want = "hello from %s\n" % script + "".join("%d %d\n" % (n,
                                                             n * (n + 1) // 2) for n in range(2000)) + "end 1999000\n"
    for _ in range(20):
        run.same(talk(run, port, lines.encode()).decode(), want, "the script's lines")
    # bash as the client: /dev/tcp
    said = run.call("bash", "-c", "exec 5<>/dev/tcp/127.0.0.1/%d; read -r line <&5; echo \"$line\"; echo 7 >&5; "
                    "read -r line <&5; echo \"$line\"" % port)
    run.same(said, "hello from %s\n7 7\n" % script, "bash's own client")
    run.stop(child, status=143)
    return "%d lines right" % (20 * 2002)


@entry("socat", "as a relay between two that listen: TCP-LISTEN,fork TCP", needs=["socat"], version=VERSION, at_least=6)
def socat_relay(run):
    back, child = serve(run, "EXEC:cat", "-t", "30")  # (PIPE loses octets now and then, by plain TCP as well)
    port, relay = serve(run, "TCP:127.0.0.1:%d" % back, "-t", "30")
    for _ in range(3):
        run.same(digest(talk(run, port, DATA)), digest(DATA), "10 MB through the relay")
    run.stop(relay, status=143)
    run.stop(child, status=143)
    return "checksums of 30 MB equal"
