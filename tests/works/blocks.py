"""Block devices over TCP: nbdkit with libnbd's programs, tgtd with libiscsi's."""

import shim
from matrix import blob, entry, file_digest

SIZE = 32 << 20


@entry("nbdkit", "nbdcopy there and back by 4 connections, and between two servers; nbdinfo", needs=["nbdkit", "nbdcopy", "nbdinfo"],
       version=["nbdkit", "--version"], at_least=8)
def nbdkit(run):
    source = run.write("source", blob(SIZE, 51))
    ports = [shim.free_port() for _ in range(2)]
    urls = ["nbd://127.0.0.1:%d" % port for port in ports]
    children = [run.serve(ports[0], "nbdkit", "-f", "-i", "127.0.0.1", "-p", str(ports[0]), "memory", str(SIZE)),
                run.serve(ports[1], "nbdkit", "-f", "-i", "127.0.0.1", "-p", str(ports[1]), "file", run.write("disk", b"\0" * SIZE))]
    run.call("nbdcopy", "--connections=4", source, urls[0])
    run.call("nbdcopy", "--connections=4", "--flush", *urls)
    run.call("nbdcopy", "--synchronous", urls[1], run.path("back"))
    run.same({file_digest(run.path(name)) for name in ("source", "disk", "back")}, {file_digest(source)}, "checksums")
    run.same(run.call("nbdinfo", "--size", urls[0]).strip(), str(SIZE), "the size")
    for child in children:
        run.stop(child)
    return "checksums of 32 MB equal on both"


@entry("tgt", "tgtd; libiscsi's iscsi-ls, iscsi-readcapacity16, iscsi-perf, and its tests of reads and writes",
       needs=["tgtd", "tgtadm", "iscsi-ls", "iscsi-perf", "iscsi-test-cu"],
       version=["dpkg-query", "-W", "tgt"], at_least=3)
def tgt(run):
    port = shim.free_port()
    disk = run.write("disk", blob(SIZE, 52))
    child = run.start("tgtd", "-f", "-C", str(port), "--iscsi", "portal=127.0.0.1:%d" % port)
    shim.await_listener(child, port)

    def admin(*words):
        run.call("tgtadm", "-C", str(port), "--lld", "iscsi", *words, plain=True)
    admin("--op", "new", "--mode", "target", "--tid", "1", "-T", "iqn.t:one")
    admin("--op", "new", "--mode", "logicalunit", "--tid", "1", "--lun", "1", "-b", disk)
    admin("--op", "bind", "--mode", "target", "--tid", "1", "-I", "ALL")
    url = "iscsi://127.0.0.1:%d" % port
    said = run.call("iscsi-ls", "-s", url)
    run.must("iqn.t:one" in said and "Lun:1" in said, "iscsi-ls", said)
    said = run.call("iscsi-readcapacity16", url + "/iqn.t:one/1")
    run.must("Total size:%d" % SIZE in said, "iscsi-readcapacity16", said)
    said = run.call("iscsi-perf", "-t", "1", "-m", "16", "-b", "64", url + "/iqn.t:one/1")
    run.must("iops average" in said, "iscsi-perf", said)
    said = run.call("iscsi-test-cu", "--dataloss", "-t", "SCSI.Write10.Simple", "-t", "SCSI.Read10.Simple", url + "/iqn.t:one/1")
    run.must("Tests completed with return value: 0" in said, "iscsi-test-cu", said)
    admin("--op", "delete", "--mode", "target", "--tid", "1", "--force")
    run.call("tgtadm", "-C", str(port), "--op", "delete", "--mode", "system", plain=True)
    run.same(shim.finish(child), 0, "how tgtd ends")
    return "a disk of 32 MB found, and read"
