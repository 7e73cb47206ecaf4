"""distcc: compiles by another machine's compiler."""

import os
import signal

import shim
from matrix import entry, file_digest

FILES = 8


@entry("distcc", "distccd and 8 files, 4 at a time", needs=["distcc", "distccd", "gcc", "make"],
       version=["distcc", "--version"], at_least=0, stays_plain={"defer-accept": FILES, "no-local-shim": FILES})
def distcc(run):
    port = shim.free_port()
    compiler = os.path.realpath(run.call("sh", "-c", "command -v gcc", plain=True).strip())
    os.mkdir(run.path("distcc"))
    os.mkdir(run.path("tmp"))
    os.chmod(run.path("tmp"), 0o777)
    env = {"DISTCC_HOSTS": "127.0.0.1:%d/8" % port, "DISTCC_DIR": run.path("distcc"), "DISTCC_FALLBACK": "0", "DISTCC_CMDLIST": "",
           "TMPDIR": run.path("tmp"), "DISTCC_IO_TIMEOUT": "300"}
    child = run.serve(port, "distccd", "--no-detach", "--daemon", "--listen", "127.0.0.1", "--port", str(port), "--allow", "127.0.0.1",
                      "--jobs", "4", "--log-stderr", "--enable-tcp-insecure", *(["--user", "nobody"] if os.geteuid() == 0 else []),
                      env=env, start_new_session=True)
    for n in range(FILES):
        run.write("f%d.c" % n, "#include <stdio.h>\n" + "".join("int f%d_%d(int a) { return printf(\"%d\", a * %d); }\n" % (n, m, m, m)
                                                             for m in range(20 * n)))
    run.write("Makefile", "CC = distcc %s\nall: %s\n%%.o: %%.c\n\t$(CC) -O0 -c -o $@ $<\n" %
              (compiler, " ".join("f%d.o" % n for n in range(FILES))))
    run.call("make", "-s", "-j4", "-C", run.folder, "all", env=env)
    for n in range(FILES):
        run.call(compiler, "-O0", "-c", "-o", run.path("here.o"), "f%d.c" % n, plain=True, cwd=run.folder)
        run.same(file_digest(run.path("f%d.o" % n)), file_digest(run.path("here.o")), "object of f%d.c" % n)
    os.killpg(child.pid, signal.SIGTERM)
    run.stop(child, status=None)
    return "8 objects as the compiler makes them here"
