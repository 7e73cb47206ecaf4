"""rsync's daemon, which forks for each connection: a tree there and back."""

import os

import shim
from matrix import blob, entry, file_digest

NEEDS = ["rsync"]


def plant(folder, size):
    """A tree of a few large, many small, and some peculiar files."""
    os.makedirs(os.path.join(folder, "many"))
    os.makedirs(os.path.join(folder, "empty"))
    for name, seed, part in ("half", 13, 50), ("third", 14, 30):
        with open(os.path.join(folder, name), "wb") as f:
            f.write(blob(size * part // 100, seed))
    small = blob(200_000, 15)
    for n in range(400):
        with open(os.path.join(folder, "many", str(n)), "wb") as f:
            f.write(small[n * 20:n * 20 + size * 20 // 100 // 400 // (1 + n % 5)])
    with open(os.path.join(folder, "hole"), "wb") as f:
        f.truncate(size // 10)
    os.symlink("half", os.path.join(folder, "link"))


def tree(folder):
    found = {}
    for where, folders, names in os.walk(folder):
        for name in folders + names:
            path = os.path.join(where, name)
            found[os.path.relpath(path, folder)] = ("-> " + os.readlink(path) if os.path.islink(path) else
                                                    "folder" if os.path.isdir(path) else file_digest(path))
    return found


@entry("rsync", "daemon; a tree of 100 MB there, back, and once more with a few changes", needs=NEEDS,
       version=["rsync", "--version"], at_least=4)
def rsync_daemon(run):
    port = shim.free_port()
    plant(run.path("source"), 1_000_000_000 if run.long else 100_000_000)
    os.mkdir(run.path("there"))
    owner = "uid = root\ngid = root\n" if os.geteuid() == 0 else ""
    config = run.write("rsyncd.conf",
                       "use chroot = no\nmunge symlinks = no\nreverse lookup = no\nlog file = %s\n%s"
                       "[there]\npath = %s\n"
                       "read only = no\n" % (run.path("rsyncd.log"), owner, run.path("there")))
    run.logs.append(run.path("rsyncd.log"))
    child = run.serve(port, "rsync", "--daemon", "--no-detach", "--address=127.0.0.1", "--port=%d" % port,
                      "--config=" + config)
    url = "rsync://127.0.0.1:%d/there/" % port
    want = tree(run.path("source"))
    run.call("rsync", "-a", run.path("source") + "/", url)
    run.same(tree(run.path("there")) == want, True, "the same tree there")
    run.call("rsync", "-a", "-z", url, run.path("back") + "/")
    run.same(tree(run.path("back")) == want, True, "the same tree back")
    with open(run.path("source", "half"), "r+b") as f:
        for offset in range(0, 50_000_000, 5_000_000):
            f.seek(offset)
            f.write(b"something else")
    os.unlink(run.path("source", "many", "7"))
    said = run.call("rsync", "-a", "-c", "--delete", "--stats", "--no-W", run.path("source") + "/", url)
    run.must("files transferred: 1\n" in said and "deleted files: 1 " in said, "not the changes were sent", said)
    run.same(tree(run.path("there")) == tree(run.path("source")), True, "the same tree after changes")
    run.call("rsync", "-r", "--list-only", url)
    run.stop(child, status=None)  # 0 or 20, as the version has it
    return "checksums of %d files equal" % len(want)
