"""
A virtual machine under qemu without KVM: Debian's kernel with siw and rdma_rxe, programs in an initramfs. What its scripts say
becomes test points.

    kernel.py    downloads and builds, with a cache folder
    initramfs.py the archive
    init.sh      the machine's first process
    common.sh    what the scripts of tests share
"""

import glob
import os
import platform
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "..", "lib")]

import initramfs
import kernel
import shim
import tap

LIBRARIES = "/usr/lib/x86_64-linux-gnu"


def built(name):
    """A program that the build made of tests/interop/vm/NAME*.c."""
    return os.path.join(shim.BUILD, "tests", "interop", "vm", name)


def archive(folder, guest, more):
    """The machine's files: guest is the script of tests, more(archive) adds what it runs."""
    a = initramfs.Archive()
    a.copy("init", os.path.join(HERE, "init.sh"))
    a.entries["init"] = (0o100755, a.entries["init"][1])
    a.copy("common.sh", os.path.join(HERE, "common.sh"))
    a.copy("guest.sh", os.path.join(HERE, guest))
    a.add("only", " ".join(sys.argv[1:]).encode())
    a.copy("bin/busybox", shutil.which("busybox"))
    a.link("bin/sh", "busybox")
    for name in "ip", "rdma", "rping", "tc":
        a.program("usr/bin/" + name, shutil.which(name))
    more(a)
    # What is loaded at run time only: the devices' providers, and libgcc_s for pthread_exit.
    for provider in "siw", "rxe":
        a.add("etc/libibverbs.d/%s.driver" % provider, b"driver %s\n" % provider.encode())
        for path in glob.glob(LIBRARIES + "/libibverbs/lib%s-*.so" % provider):
            a.program(path, path)
    a.copy(LIBRARIES + "/libgcc_s.so.1", os.path.realpath("/lib/x86_64-linux-gnu/libgcc_s.so.1"))
    for path in glob.glob(os.path.join(folder, "modules", "*")):
        a.copy("modules/" + os.path.basename(path), path)
    return a


def boot(folder, ramdisk, console):
    """Lines that the machine writes until it powers off."""
    child = shim.start("qemu-system-x86_64", "-accel", "tcg", "-smp", "2", "-m", "1536", "-cpu", "max", "-nodefaults",
                       "-display", "none", "-no-reboot", "-kernel", os.path.join(folder, "vmlinuz"), "-initrd", ramdisk,
                       "-append", "console=ttyS0 panic=-1 random.trust_cpu=on",
                       "-serial", "file:" + console, "-serial", "stdio",
                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                       errors="replace")
    for line in child.stdout:
        yield line.rstrip("\r\n")
    child.wait()


QUIET = 600  # seconds in which the machine says nothing: it hangs. An emulated processor has no speed that could be relied on.


def fetch():
    """The kernel's folder. What comes from outside, and what its next version makes of our recipe, are no verdict on sockwarp."""
    tap.limit(1800)
    try:
        return kernel.get(tap.note)
    except kernel.Missing as why:
        tap.skip_all(str(why))
    except tap.TooLate:
        tap.skip_all("Debian's kernel was not there in half an hour, downloaded and with siw built")


def follow(lines, quiet_s):
    """Turns what a machine says into test points. Did it run to the end of its tests?"""
    tap.limit(quiet_s)
    ended = None
    for line in lines:
        tap.limit(quiet_s)
        if line.startswith(("ok - ", "not ok - ")):
            state, _, name = line.partition(" - ")
            tap.ok(state == "ok", name)
        elif line.startswith("Bail out!"):
            ended = line
        else:
            tap.note(line.lstrip("# "))
            if line.startswith("# end of the tests"):
                ended = "whole"
    return tap.ok(ended == "whole", "the machine runs to the end of the tests", ended)


def run(guest, more, programs=(), build=()):
    """
    Boots and turns what the machine says into test points. programs: those needed here; build: those that the build makes, if it
    has libibverbs and librdmacm.
    """
    tap.limit(QUIET)
    if platform.machine() != "x86_64":
        tap.skip_all("the virtual machine is for x86-64, this is " + platform.machine())
    shim.need("qemu-system-x86_64", "busybox", "ip", "rdma", "rping", "tc", "ldd", *programs)
    if not glob.glob(LIBRARIES + "/libibverbs/libsiw-*.so"):
        tap.skip_all("missing: rdma-core's provider for siw (ibverbs-providers)")
    for path in build:
        if not os.path.exists(path):
            tap.skip_all("not built, for want of libibverbs and librdmacm: " + path)
    folder = fetch()
    ramdisk, console = shim.path("initramfs"), shim.path("console")
    archive(folder, guest, more).write(ramdisk)
    if not follow(boot(folder, ramdisk, console), QUIET):
        with open(console, encoding="utf-8", errors="replace") as f:
            tap.note(*f.read().splitlines()[-60:])
    tap.end()
