"""qemu-nbd: a disk image over TCP; its block layer has an io_uring."""

import shim
from matrix import HANG, blob, entry, file_digest

NEEDS = ["qemu-nbd", "qemu-img", "qemu-io"]


@entry("qemu-nbd", "16 MB written, read back and converted by qemu-img; images by io_uring too", needs=NEEDS,
       version=["qemu-nbd", "--version"], at_least=5, stays_plain={"own-io-uring": 1, "no-local-shim": 1})
def qemu_nbd(run):
    # (What comes before the first request to its ring is plain: what that is for is not known yet.)
    size = 16 << 20
    source = run.write("source", blob(size, 9))
    for aio in "threads", "io_uring":
        port = shim.free_port()
        image = run.write("image-" + aio, b"")
        run.call("qemu-img", "create", "-q", "-f", "raw", image, str(size))
        child = run.serve(port, "qemu-nbd", "--persistent", "--shared=4", "-f", "raw", "--aio=" + aio, "-b", "127.0.0.1",
                          "-p", str(port), image)
        url = "nbd://127.0.0.1:%d" % port
        run.call("qemu-img", "convert", "-n", "-f", "raw", "-O", "raw", source, url, timeout=HANG)
        run.same(file_digest(image), file_digest(source), "the image that was written")
        run.call("qemu-img", "convert", "-f", "raw", "-O", "raw", url, run.path("back"))
        run.same(file_digest(run.path("back")), file_digest(source), "the image that was read")
        said = run.call("qemu-io", "-f", "raw", url, "-c", "write -P 7 4096 65536", "-c", "read -P 7 4096 65536")
        run.must("read 65536/65536" in said, "qemu-io", said)
        run.stop(child)
    return "checksums equal"
