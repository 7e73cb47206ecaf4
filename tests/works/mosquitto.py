"""mosquitto, an MQTT broker: its own clients publish and subscribe."""

import shim
from matrix import blob, digest, entry

COUNT = 200


@entry("mosquitto", "200 messages of QoS 2 and one of 5 MB, its own clients", needs=["mosquitto", "mosquitto_pub", "mosquitto_sub"],
       version=["mosquitto", "-h"], at_least=4)
def mosquitto(run):
    port = shim.free_port()
    config = run.write("mosquitto.conf", "listener %d 127.0.0.1\nallow_anonymous true\npersistence false\nmax_queued_messages 0\n" % port)
    child = run.serve(port, "mosquitto", "-c", config)
    at = ("-h", "127.0.0.1", "-p", str(port))
    session = ("-i", "reader", "-c", "-q", "2")
    # A session that stays: what is published meanwhile waits for it.
    run.call("mosquitto_sub", *at, *session, "-t", "#", "-E")
    big = blob(5_000_000, 24)
    lines = "".join("message %d\n" % n for n in range(COUNT))
    run.call("mosquitto_pub", *at, "-q", "2", "-t", "lines", "-l", input=lines)
    said = run.call("mosquitto_sub", *at, *session, "-t", "#", "-C", str(COUNT))
    run.same(said, lines, "the messages")
    run.call("mosquitto_pub", *at, "-q", "2", "-r", "-t", "big", "-f", run.write("big", big))
    got = run.call("mosquitto_sub", *at, "-t", "big", "-C", "1", "-N", text=False)
    run.same(digest(got), digest(big), "the large message")
    run.stop(child)
    return "%d messages in order, checksum of 5 MB" % COUNT
