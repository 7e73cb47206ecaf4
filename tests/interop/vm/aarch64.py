"""
Debian for aarch64 out of its packages, without running any of it: a root folder, which is at once what the cross compiler links
against, and the kernel. Neither root nor a foreign architecture of dpkg's is needed.

    CACHE/arm64-RECIPE/root/       the packages' files
    CACHE/arm64-RECIPE/root.img    the same as a file system
    CACHE/arm64-RECIPE/vmlinuz, initramfs

CACHE as in kernel.py. What is there is taken as it is; it is made anew when this file changes.
"""

import fcntl
import glob
import hashlib
import os
import shutil
import subprocess

import initramfs
import kernel

PACKAGES = """?essential mount iproute2 procps python3-minimal python3 liburing-dev libunwind-dev libinih-dev
    libsmartcols-dev libibverbs-dev librdmacm-dev libcriterion-dev busybox-static linux-image-cloud-arm64""".split()
MODULES = ["virtio_mmio", "virtio_blk", "tcp_diag", "unix_diag", "veth"]
KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
LIBRARIES = "usr/lib/aarch64-linux-gnu"
CC = "aarch64-linux-gnu-gcc"
PROGRAMS = ["apt-get", "dpkg-deb", "mke2fs", CC]
INIT = b"""#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t devtmpfs dev /dev
for module in $(cat /modules/order); do insmod /modules/$module.ko; done
until [ -b /dev/vda ] && [ -b /dev/vdb ]; do usleep 50000; done
mount -t ext4 /dev/vda /new && mount -t ext4 /dev/vdb /new/sockwarp || echo 'Bail out! no file systems'
umount /dev
exec switch_root /new /bin/sh /sockwarp/init.sh
"""


def _suite():
    with open("/etc/os-release", encoding="utf-8") as f:
        said = dict(line.rstrip("\n").replace('"', "").split("=", 1) for line in f if "=" in line)
    if said.get("ID") != "debian" or "VERSION_CODENAME" not in said or not os.path.exists(KEYS):
        raise kernel.Missing("this is not Debian, or has not its keys (debian-archive-keyring)")
    return said["VERSION_CODENAME"]


def _must(*words, **options):
    done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace", check=False, **options)
    if done.returncode:
        raise kernel.Missing("%s: %s" % (" ".join(words[:3]), (done.stdout.splitlines() or ["(no output)"])[-1]))


def _download(work):
    """All packages that PACKAGES need, by an apt of our own: it knows of no installed ones, and of one architecture."""
    suite, state = _suite(), os.path.join(work, "apt")
    for folder in "lists/partial", "cache/archives/partial":
        os.makedirs(os.path.join(state, folder))
    with open(os.path.join(state, "status"), "w", encoding="ascii"):
        pass
    with open(os.path.join(state, "sources.list"), "w", encoding="ascii") as f:
        for url, name in ("debian", suite), ("debian", suite + "-updates"), ("debian-security", suite + "-security"):
            f.write("deb [signed-by=%s] http://deb.debian.org/%s %s main\n" % (KEYS, url, name))
    with open(os.path.join(state, "apt.conf"), "w", encoding="ascii") as f:
        f.write('APT { Architecture "arm64"; Architectures { "arm64"; }; Install-Recommends "false"; Sandbox::User "root"; };\n'
                'Dir { State "%s"; State::status "%s/status"; Cache "%s/cache"; Etc::sourcelist "%s/sources.list";\n'
                '      Etc::sourceparts "/dev/null"; Etc::parts "/dev/null"; };\n' % ((state,) * 4))
    env = dict(os.environ, APT_CONFIG=os.path.join(state, "apt.conf"), LC_ALL="C")
    _must("apt-get", "-q", "update", env=env)
    _must("apt-get", "-q", "-y", "--download-only", "install", *PACKAGES, env=env)
    return glob.glob(os.path.join(state, "cache", "archives", "*.deb"))


def _unpack(packages, root):
    for package in packages:
        _must("dpkg-deb", "-x", package, root)
    # What the packages' scripts would have done, as far as the tests want it; and links from the root, which are this machine's here.
    os.symlink("mawk", os.path.join(root, "usr/bin/awk"))
    for name, text in ("passwd", "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n"), (
            "group", "root:x:0:\nnogroup:x:65534:\n"), ("hosts", "127.0.0.1 localhost\n::1 localhost\n"):
        with open(os.path.join(root, "etc", name), "w", encoding="ascii") as f:
            f.write(text)
    os.makedirs(os.path.join(root, "sockwarp"))
    folder = os.path.join(root, LIBRARIES)
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        if os.path.islink(path) and os.readlink(path).startswith("/"):
            target = os.path.relpath(root + os.readlink(path), os.path.realpath(folder))
            os.unlink(path)
            os.symlink(target, path)


def _ramdisk(root, path):
    a = initramfs.Archive()
    for folder in "dev", "new":
        a.folder(folder)
    a.add("init", INIT, 0o755)
    a.copy("bin/busybox", os.path.join(root, "bin/busybox"))
    a.link("bin/sh", "busybox")
    known = {os.path.basename(p)[:-3].replace("-", "_"): p
             for p in glob.glob(os.path.join(root, "lib/modules/*/kernel/**/*.ko"), recursive=True)}
    order = []

    def take(name):
        if name in order or name not in known:  # (built into the kernel)
            return
        for other in kernel.depends(known[name]):
            take(other.replace("-", "_"))
        order.append(name)
        a.copy("modules/%s.ko" % name, known[name])

    for name in MODULES:
        take(name)
    a.add("modules/order", "\n".join(order).encode())
    a.write(path)


def filesystem(folder, image, megabytes):
    """An ext4 with the folder's files, all of them root's."""
    with open(image, "wb") as f:
        f.truncate(megabytes << 20)
    _must("mke2fs", "-q", "-t", "ext4", "-O", "^has_journal", "-E", "root_owner=0:0", "-d", folder, image)


def get(note):
    """The folder, from the cache or made now. note(text) is told what takes long. Raises kernel.Missing."""
    missing = [p for p in PROGRAMS if shutil.which(p) is None]
    if missing:
        raise kernel.Missing("missing: " + " ".join(missing))
    top = kernel.cache()
    with open(__file__, "rb") as f:
        target = os.path.join(top, "arm64-" + hashlib.sha256(f.read()).hexdigest()[:12])
    with open(os.path.join(top, "arm64.lock"), "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.path.isdir(target):
            return target
        for other in glob.glob(os.path.join(top, "arm64-*")):  # of other recipes, or left by a run that was ended
            shutil.rmtree(other, ignore_errors=True)
        work = target + ".new"
        root = os.path.join(work, "root")
        os.makedirs(root)
        note("downloading Debian's packages for arm64, 80 MB")
        packages = _download(work)
        _unpack(packages, root)
        shutil.rmtree(os.path.join(work, "apt"))
        shutil.copy(glob.glob(os.path.join(root, "boot/vmlinuz-*"))[0], os.path.join(work, "vmlinuz"))
        _ramdisk(root, os.path.join(work, "initramfs"))
        filesystem(root, os.path.join(work, "root.img"), 2048)
        os.rename(work, target)
    return target
