"""Libraries and brokers for messages: ZeroMQ, gRPC, RabbitMQ."""

import os

import shim
from matrix import CLIENTS, PACKAGES, PYTHON, entry

ZMQ_SERVER = """
import hashlib, sys, zmq
context = zmq.Context()
ports = [int(word) for word in sys.argv[1:]]
echo, pull, news = (context.socket(kind) for kind in (zmq.ROUTER, zmq.PULL, zmq.PUB))
for sock, port in zip((pull, news, echo), ports[1:] + ports[:1]):
    sock.bind("tcp://127.0.0.1:%d" % port)
poller = zmq.Poller()
for sock in echo, pull:
    poller.register(sock, zmq.POLLIN)
while True:
    for sock, _ in poller.poll():
        parts = sock.recv_multipart()
        if sock is echo:
            echo.send_multipart(parts)
        else:  # what is pulled is published as its digest
            news.send_multipart([parts[0], hashlib.sha256(parts[1]).hexdigest().encode()])
"""

# The clients are there before the server: they connect again until it is. A subscriber misses what is published before it has
# subscribed, so it goes on asking until it hears something.
ZMQ_CLIENT = """
import hashlib, random, sys, zmq
ports, count = [int(word) for word in sys.argv[1:4]], int(sys.argv[4])
context = zmq.Context()
socks = {}
for name, kind, port in (("dealer", zmq.DEALER, ports[0]), ("req", zmq.REQ, ports[0]),
                         ("push", zmq.PUSH, ports[1]), ("sub", zmq.SUB, ports[2])):
    socks[name] = context.socket(kind)
    socks[name].connect("tcp://127.0.0.1:%d" % port)
print("connects", flush=True)
dealer, req, push, sub = socks.values()
rng = random.Random(5)
sizes = [0, 1, 250, 260, 5000, 70000, 1000000]
right = 0
for n in range(count):
    text = b"%d" % n
    req.send(text)
    right += req.recv() == text
messages = [rng.randbytes(sizes[n % len(sizes)]) for n in range(200)]
for message in messages:
    dealer.send_multipart([b"", message, b"end"])
for message in messages:
    right += dealer.recv_multipart() == [b"", message, b"end"]
sub.setsockopt(zmq.SUBSCRIBE, b"")
while not sub.poll(100):
    push.send_multipart([b"early", b""])
for n, message in enumerate(messages):
    push.send_multipart([b"%d" % n, message])
heard = []
while len(heard) < len(messages):
    name, whole = sub.recv_multipart()
    if name != b"early":
        heard.append((int(name), whole.decode()))
right += heard == [(n, hashlib.sha256(message).hexdigest()) for n, message in enumerate(messages)]
print(right)
context.destroy(linger=0)
"""


@entry("ZeroMQ", "REQ, DEALER, PUSH, SUB to ROUTER, PULL, PUB; the client is there before the server", needs=[PACKAGES + "zmq"],
       version=[PYTHON, "-c", "import zmq; print(zmq.zmq_version())"], at_least=4,
       stays_plain={"no-local-shim": 1000})  # in vain, before the server is there
def zeromq(run):
    ports = [str(shim.free_port()) for _ in range(3)]
    count = 20000 if run.long else 2000
    client = run.start(PYTHON, run.write("client.py", ZMQ_CLIENT), *ports, str(count), side=CLIENTS)
    log = run.logs[-1]

    def said():
        with open(log, encoding="utf-8", errors="replace") as f:
            return f.read()
    run.must(shim.until(lambda: said() or client.poll() is not None), "the client does not start")
    child = run.serve(int(ports[0]), PYTHON, run.write("server.py", ZMQ_SERVER), *ports)
    run.same(shim.finish(client), 0, "the client's status")
    run.same(said().split(), ["connects", str(count + 201)], "right answers")
    run.stop(child, status=None)
    return "%d answers and 200 digests right" % (count + 200)


GRPC_SERVER = """
import hashlib, sys, signal
from concurrent import futures
import grpc

def unary(message, context):
    if message == b"fail":
        context.abort(grpc.StatusCode.NOT_FOUND, "not here")
    return message[::-1]

def down(message, context):
    for n in range(int(message)):
        yield b"%d" % n * 20000

def up(messages, context):
    whole = hashlib.sha256()
    for message in messages:
        whole.update(message)
    return whole.hexdigest().encode()

def both(messages, context):
    for message in messages:
        yield message.upper()

handlers = {"unary": grpc.unary_unary_rpc_method_handler(unary), "down": grpc.unary_stream_rpc_method_handler(down),
            "up": grpc.stream_unary_rpc_method_handler(up), "both": grpc.stream_stream_rpc_method_handler(both)}
server = grpc.server(futures.ThreadPoolExecutor(8))
server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("t", handlers),))
server.add_insecure_port("127.0.0.1:" + sys.argv[1])
server.start()
signal.signal(signal.SIGTERM, lambda *_: server.stop(0))
server.wait_for_termination()
"""

GRPC_CLIENT = """
import hashlib, sys
from concurrent.futures import ThreadPoolExecutor
import grpc

def client(number):
    right = []
    with grpc.insecure_channel("127.0.0.1:" + sys.argv[1], [("grpc.use_local_subchannel_pool", 1)]) as channel:
        call = channel.unary_unary("/t/unary")
        right.append(all(call(text) == text[::-1] for text in (b"%d of %d" % (n, number) * (n % 500) for n in range(300))))
        try:
            call(b"fail")
        except grpc.RpcError as error:
            right.append(error.code() == grpc.StatusCode.NOT_FOUND and error.details() == "not here")
        later = [call.future(b"%d" % n * 9) for n in range(100)]
        right.append([one.result() for one in later] == [(b"%d" % n * 9)[::-1] for n in range(100)])
        right.append(list(channel.unary_stream("/t/down")(b"100")) == [b"%d" % n * 20000 for n in range(100)])
        parts = [b"%d" % (n * number) * 30000 for n in range(60)]
        right.append(channel.stream_unary("/t/up")(iter(parts)) == hashlib.sha256(b"".join(parts)).hexdigest().encode())
        right.append(list(channel.stream_stream("/t/both")(b"line %d" % n for n in range(500))) == [b"LINE %d" % n for n in range(500)])
    return right.count(True)

with ThreadPoolExecutor(4) as pool:
    print(sum(pool.map(client, range(4))))
"""


@entry("gRPC", "Python's: unary calls, one after the other and at once, streams there, back, both ways; 4 channels",
       needs=[PACKAGES + "grpc"], version=[PYTHON, "-c", "import grpc; print(grpc.__version__)"], at_least=4)
def grpc(run):
    run.talk(PYTHON, GRPC_SERVER, GRPC_CLIENT, right=24, what="right results")
    return "results of 1,600 calls and 12 streams right"


PIKA_CLIENT = """
import hashlib, random, sys
import pika
connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", int(sys.argv[1])))
out, back = connection.channel(), connection.channel()
out.confirm_delivery()
out.queue_declare("q", durable=True)
back.basic_qos(prefetch_count=50)
rng = random.Random(7)
messages = [rng.randbytes(rng.choice((0, 1, 1000, 200000))) for _ in range(300)]
for n, message in enumerate(messages):
    out.basic_publish("", "q", message, pika.BasicProperties(message_id=str(n), delivery_mode=2), mandatory=True)
got = []
for method, properties, body in back.consume("q"):
    got.append((int(properties.message_id), body))
    if len(got) % 10 == 0:
        back.basic_ack(method.delivery_tag, multiple=True)
    if len(got) == len(messages):
        break
back.cancel()
print(got == list(enumerate(messages)), out.queue_declare("q", passive=True).method.message_count)
connection.close()
"""

RABBIT = "/usr/lib/rabbitmq/bin/rabbitmq-server"


@entry("RabbitMQ", "a node of its own, and epmd; pika: 300 messages, confirmed and acknowledged", needs=[RABBIT, "epmd", PACKAGES + "pika"],
       version=["dpkg-query", "-W", "rabbitmq-server"], at_least=1,
       stays_plain={"self": 1, "peer-plain": 1})  # pika wakes itself by a connection
def rabbitmq(run):
    port, names, nodes = (shim.free_port() for _ in range(3))
    os.mkdir(run.path("data"))
    env = {"HOME": run.folder, "ERL_EPMD_PORT": str(names), "ERL_EPMD_ADDRESS": "127.0.0.1", "RABBITMQ_NODENAME": "sw%d@localhost" % port,
           "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1", "RABBITMQ_NODE_PORT": str(port), "RABBITMQ_DIST_PORT": str(nodes),
           "RABBITMQ_MNESIA_BASE": run.path("data"), "RABBITMQ_LOG_BASE": run.path("data"), "RABBITMQ_CONF_ENV_FILE": "/dev/null",
           "RABBITMQ_PID_FILE": run.path("pid"), "RABBITMQ_ENABLED_PLUGINS_FILE": run.write("plugins", "[].\n"),
           "RABBITMQ_CONFIG_FILE": run.path("none")}
    epmd = run.serve(names, "epmd", env=env)
    broker = run.serve(port, RABBIT, env=env)
    said = run.call(PYTHON, run.write("client.py", PIKA_CLIENT), str(port))
    run.same(said.split(), ["True", "0"], "the messages, and how many are left")
    run.stop(broker, status=None)
    run.stop(epmd, status=None)
    return "300 messages right and in order"
