"""node: its HTTP server and client, with connections that are kept; its cluster module; net, HTTP/2 and threads. SW_NODE=program:
another version than node."""

import os

import shim
from matrix import entry

NODE = os.environ.get("SW_NODE", "node")

SERVER = r"""
const http = require('http'), crypto = require('crypto');
// GET /N: N octets that the client knows; POST: the body comes back while its digest is made, which is the trailer.
const block = Buffer.alloc(65536, 0).map((_, i) => (i * 131 + (i >> 8) * 17) & 255);
const server = http.createServer((req, res) => {
    if (req.method === 'POST') {
        const hash = crypto.createHash('sha256');
        res.writeHead(200, { Trailer: 'Digest' });
        req.on('data', data => {
            hash.update(data);
            if (!res.write(data)) { req.pause(); res.once('drain', () => req.resume()); }
        });
        req.on('end', () => { res.addTrailers({ Digest: hash.digest('hex') }); res.end(); });
        return;
    }
    let left = parseInt(req.url.slice(1));
    res.writeHead(200, { 'Content-Length': left });
    const more = () => {
        while (left > 0) {
            const piece = block.subarray(0, Math.min(left, block.length));
            left -= piece.length;
            if (!res.write(piece)) { res.once('drain', more); return; }
        }
        res.end();
    };
    more();
});
server.keepAliveTimeout = 60000;
server.listen(parseInt(process.argv[2]), '127.0.0.1', 512);
process.on('SIGTERM', () => { server.close(() => process.exit(0)); server.closeAllConnections(); });
"""

CLIENT = r"""
const http = require('http'), crypto = require('crypto'), port = parseInt(process.argv[2]);
const requests = parseInt(process.argv[3]), size = parseInt(process.argv[4]);
const block = Buffer.alloc(65536, 0).map((_, i) => (i * 131 + (i >> 8) * 17) & 255);
const sha = crypto.createHash;
function pattern(count) {
    const hash = sha('sha256');
    for (; count > 0; count -= block.length) hash.update(block.subarray(0, Math.min(count, block.length)));
    return hash.digest('hex');
}
function request(agent, method, path, body) {
    return new Promise((done, fail) => {
        const req = http.request({ host: '127.0.0.1', port, agent, method, path }, res => {
            const hash = sha('sha256');
            let count = 0;
            res.on('data', data => { hash.update(data); count += data.length; });
            res.on('end', () => done({ status: res.statusCode, digest: hash.digest('hex'), count,
                                       trailer: res.trailers.digest }));
            res.on('error', fail);
        });
        req.on('error', fail);
        let left = body || 0;
        const more = () => {
            while (left > 0) {
                const piece = block.subarray(0, Math.min(left, block.length));
                left -= piece.length;
                if (!req.write(piece)) { req.once('drain', more); return; }
            }
            req.end();
        };
        more();
    });
}
(async () => {
    const agent = new http.Agent({ keepAlive: true, maxSockets: 8 });
    const sizes = [0, 1, 1000, 65536, 200001], wants = sizes.map(pattern);
    let right = 0;
    await Promise.all(Array.from({ length: requests }, async (_, n) => {
        const got = await request(agent, 'GET', '/' + sizes[n % 5]);
        if (got.status === 200 && got.digest === wants[n % 5]) right++;
    }));
    const want = pattern(size);
    const down = await request(agent, 'GET', '/' + size);
    const both = await request(agent, 'POST', '/', size);
    const alone = new http.Agent({ keepAlive: false });
    for (let n = 0; n < 20; n++) if ((await request(alone, 'GET', '/1000')).digest === wants[2]) right++;
    console.log(right, down.digest === want, both.digest === want, both.trailer === want, both.count);
    agent.destroy();
})();
"""


# The primary passes accepted connections to its workers (SCM_RIGHTS), or the listener.
CLUSTER = r"""
const cluster = require('cluster');
cluster.schedulingPolicy = cluster[process.argv[3]];
if (cluster.isPrimary) {
    for (let n = 0; n < 3; n++) cluster.fork();
    process.on('SIGTERM', () => { for (const worker of Object.values(cluster.workers)) worker.process.kill('SIGTERM'); });
    cluster.on('exit', () => { if (!Object.keys(cluster.workers).length) process.exit(0); });
} else {
""" + SERVER + "}\n"


def requests(run, port, count, size):
    said = run.call(NODE, run.write("client.js", CLIENT), str(port), str(count), str(size))
    run.same(said.split(), [str(count + 20), "true", "true", "true", str(size)],
             "right answers; 50 MB down, back, digest, size")
    return "%d answers and 3 checksums right" % (count + 20)


@entry("node", "http server and client: 8 kept connections and 20 new ones, 50 MB there and back", needs=[NODE],
       version=[NODE, "--version"], at_least=28)
def node_http(run):
    port = shim.free_port()
    child = run.serve(port, NODE, run.write("server.js", SERVER), str(port))
    count, size = (20000, 500_000_000) if run.long else (1000, 50_000_000)
    result = requests(run, port, count, size)
    run.stop(child)
    return result


def cluster(run, policy):
    port = shim.free_port()
    child = run.serve(port, NODE, run.write("cluster.js", CLUSTER), str(port), policy)
    result = requests(run, port, 200, 50_000_000)
    run.stop(child)
    return result


@entry("node", "cluster: 3 workers that have the listener", needs=[NODE], version=[NODE, "--version"], at_least=28)
def node_cluster_none(run):
    return cluster(run, "SCHED_NONE")


# (Who will get a connection that is passed is not known, so it stays plain; what is passed before the first one that was, may not.)
@entry("node", "cluster: 3 workers that are passed the connections", needs=[NODE], version=[NODE, "--version"], at_least=0,
       stays_plain={"shared-fd": 40, "peer-plain": 40, "no-local-shim": 40, "hello-nak": 40})
def node_cluster_rr(run):
    return cluster(run, "SCHED_RR")


# Echoes, half-closed by the client; the server pauses in between.
NET_SERVER = r"""
const net = require('net');
const server = net.createServer({ allowHalfOpen: true, noDelay: true }, socket => {
    let count = 0;
    socket.on('data', data => {
        const more = socket.write(data);
        if (++count % 7 === 0 || !more) {
            socket.pause();
            if (more) setImmediate(() => socket.resume()); else socket.once('drain', () => socket.resume());
        }
    });
    socket.on('end', () => socket.end('end of ' + socket.bytesRead));
    socket.on('error', () => {});
});
server.listen(parseInt(process.argv[2]), '127.0.0.1', 128);
process.on('SIGTERM', () => server.close(() => process.exit(0)));
"""

# The same in the main thread or in some threads (worker_threads), each with its clients; a socket that is destroyed among them.
NET_CLIENT = r"""
const net = require('net'), { createHash } = require('crypto');
const { Worker, isMainThread, parentPort, workerData } = require('worker_threads');
const [port, threads, clients] = process.argv.slice(2).map(Number);
function client(number) {
    return new Promise(done => {
        const socket = net.connect({ port, host: '127.0.0.1', allowHalfOpen: true }), sent = createHash('sha256'), got = [];
        let left = 100 + number % 50;
        const more = () => {
            while (left-- > 0) {
                const piece = Buffer.alloc(left % 5 ? left * 10 : 60000, left * number);
                sent.update(piece);
                if (!socket.write(piece)) { socket.once('drain', more); return; }
            }
            socket.end();
        };
        socket.on('connect', more);
        socket.on('data', data => got.push(data));
        socket.on('error', () => done(false));
        socket.on('end', () => {
            const all = Buffer.concat(got), tail = all.lastIndexOf('end of '), body = all.subarray(0, tail);
            done(createHash('sha256').update(body).digest('hex') === sent.digest('hex') &&
                 all.toString('latin1', tail) === 'end of ' + tail);
        });
    });
}
function lost() {
    return new Promise(done => {
        const socket = net.connect(port, '127.0.0.1', () => socket.write('x', () => socket.destroy()));
        socket.on('close', () => done(true));
    });
}
async function all(first) {
    const right = await Promise.all([...Array.from({ length: clients }, (_, n) => client(first + n)), lost()]);
    return right.filter(Boolean).length;
}
if (!isMainThread) all(workerData).then(count => parentPort.postMessage(count));
else if (!threads) all(1).then(console.log);
else {
    const workers = Array.from({ length: threads }, (_, n) =>
        new Worker(__filename, { workerData: 100 * n + 1, argv: process.argv.slice(2) }));
    Promise.all(workers.map(worker => new Promise(done => worker.on('message', done))))
        .then(counts => console.log(counts.reduce((a, b) => a + b)));
}
"""


def node_echo(run, threads):
    clients = 200 if run.long else 20
    want = (clients + 1) * (threads or 1)
    run.talk(NODE, NET_SERVER, NET_CLIENT, threads, clients, right=want, what="clients that were right")
    return "%d clients, octets and their number right" % want


@entry("node", "net: 21 clients at once, half-closed, paused, one destroyed", needs=[NODE], version=[NODE, "--version"], at_least=15)
def node_net(run):
    return node_echo(run, 0)


@entry("node", "worker_threads: the same in each of 4 threads", needs=[NODE], version=[NODE, "--version"], at_least=60)
def node_threads(run):
    return node_echo(run, 4)


HTTP2_SERVER = r"""
const http2 = require('http2'), { createHash } = require('crypto');
const server = http2.createServer();
const block = Buffer.alloc(50000, 0).map((_, i) => (i * 131 + (i >> 8) * 17) & 255);
server.on('stream', (stream, headers) => {
    stream.on('error', () => {});
    const hash = createHash('sha256');
    stream.on('data', data => hash.update(data));
    stream.on('end', () => {
        stream.respond({ ':status': 200, digest: hash.digest('hex') });
        for (let n = parseInt(headers[':path'].slice(1)); n > 0; n--) stream.write(block);
        stream.end();
    });
});
server.listen(parseInt(process.argv[2]), '127.0.0.1');
process.on('SIGTERM', () => process.exit(0));
"""

HTTP2_CLIENT = r"""
const http2 = require('http2'), { createHash } = require('crypto');
const sha = data => createHash('sha256').update(data).digest('hex');
const block = Buffer.alloc(50000, 0).map((_, i) => (i * 131 + (i >> 8) * 17) & 255);
function request(session, number, cancel) {
    return new Promise(done => {
        const count = number % 11, body = Buffer.alloc(number * 1000, number);
        const stream = session.request({ ':path': '/' + count, ':method': 'POST' }), got = [];
        let digest;
        stream.on('response', headers => {
            digest = headers.digest;
            if (cancel) { stream.close(http2.constants.NGHTTP2_CANCEL); done(true); }
        });
        stream.on('data', data => got.push(data));
        stream.on('error', () => done(cancel));
        stream.on('end', () => done(digest === sha(body) && Buffer.concat(got).equals(Buffer.concat(Array(count).fill(block)))));
        stream.end(body);
    });
}
(async () => {
    let right = 0;
    await Promise.all([1, 2, 3].map(async () => {
        const session = http2.connect('http://127.0.0.1:' + process.argv[2]);
        const all = await Promise.all(Array.from({ length: 90 }, (_, n) => request(session, n, n % 30 === 29)));
        right += all.filter(Boolean).length;
        await new Promise(done => session.close(done));
    }));
    console.log(right);
})();
"""


@entry("node", "http2 without TLS: 3 sessions of 90 streams at once, some of them cancelled", needs=[NODE],
       version=[NODE, "--version"], at_least=3)
def node_http2(run):
    run.talk(NODE, HTTP2_SERVER, HTTP2_CLIENT, right=270, what="streams that were right")
    return "270 streams, octets and digests right"
