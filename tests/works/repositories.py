"""git daemon and svnserve, which have a process for each connection: a repository goes there and comes back."""

import os
import signal

import shim
from matrix import blob, digest, entry, file_digest

FILES = 200


def tree(run):
    """A folder with a large file and many small ones."""
    top = run.path("w")
    os.mkdir(top)
    run.write("w/large", blob(3 << 20, 3))
    for n in range(FILES):
        run.write("w/%d" % n, "%d\n" % n)
    return top


def compare(run, top):
    run.same(file_digest(os.path.join(top, "large")), digest(blob(3 << 20, 3)), "the large file's checksum")
    for n in range(FILES):
        with open(os.path.join(top, str(n)), encoding="ascii") as f:
            run.same(f.read(), "%d\n" % n, "a small file")


@entry("git", "git daemon; push and clone", needs=["git"], version=["git", "--version"], at_least=2, stays_plain={"std-fd": 2})
def git_daemon(run):
    port = shim.free_port()
    env = dict(os.environ, HOME=run.folder, GIT_CONFIG_GLOBAL="/dev/null", GIT_AUTHOR_NAME="a", GIT_AUTHOR_EMAIL="a@example",
               GIT_COMMITTER_NAME="a", GIT_COMMITTER_EMAIL="a@example")
    top = tree(run)
    run.call("git", "init", "-q", "--bare", run.path("r.git"), env=env, plain=True)
    run.write("r.git/git-daemon-export-ok", "")
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "x"]):
        run.call("git", "-C", top, *words, env=env, plain=True)
    child = run.serve(port, "git", "daemon", "--reuseaddr", "--listen=127.0.0.1", "--port=%d" % port,
                      "--base-path=" + run.folder, "--enable=receive-pack", run.folder, env=env)
    url = "git://127.0.0.1:%d/r.git" % port
    run.call("git", "-C", top, "push", "-q", url, "HEAD:refs/heads/main", env=env)
    run.call("git", "clone", "-q", "-b", "main", url, run.path("c"), env=env)
    compare(run, run.path("c"))
    run.stop(child, number=signal.SIGTERM, status=None)
    return "%d files came back" % (FILES + 1)


@entry("Subversion", "svnserve; import and checkout", needs=["svn", "svnserve", "svnadmin"], version=["svn", "--version", "-q"],
       at_least=1, stays_plain={"spoke-first": 8})
def svnserve(run):
    port = shim.free_port()
    top = tree(run)
    run.call("svnadmin", "create", run.path("r"), plain=True)
    run.write("r/conf/svnserve.conf", "[general]\nanon-access = write\n")
    child = run.serve(port, "svnserve", "-d", "--foreground", "--listen-host", "127.0.0.1", "--listen-port", str(port), "-r",
                      run.folder)
    url = "svn://127.0.0.1:%d/r/t" % port
    run.call("svn", "--config-dir", run.path("conf"), "import", "-q", "-m", "x", top, url)
    run.call("svn", "--config-dir", run.path("conf"), "checkout", "-q", url, run.path("c"))
    compare(run, run.path("c"))
    run.stop(child, number=signal.SIGTERM, status=None)
    return "%d files came back" % (FILES + 1)
