"""node: its HTTP server and client, with connections that are kept; its cluster module. SW_NODE=program: another version than node."""

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
