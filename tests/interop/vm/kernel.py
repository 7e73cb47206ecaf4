"""
Debian's kernel with siw, which Debian does not build: packages are downloaded, siw is built from linux-source, and what a
virtual machine needs is kept in a folder between runs. Neither root nor an installed kernel is needed.

    CACHE/debs/*.deb                  as downloaded
    CACHE/kernel-VERSION-RECIPE/      vmlinuz, modules/*.ko (siw.ko among them, and siw_options.ko)

siw as it comes is what the tests are about. What an initiator of it asks for (RTR, CRC, revision) are constants, though; so it
is built a second time with these as module parameters, siw_options.ko.

CACHE is $SOCKWARP_CACHE or $XDG_CACHE_HOME/sockwarp or ~/.cache/sockwarp.
"""

import collections
import fcntl
import glob
import hashlib
import os
import re
import shutil
import subprocess
import tempfile

# Modules that the machine loads, in this order; what they depend on is found out. (siw asks for crc32c by its name, rdma_rxe
# for crc32.)
MODULES = ["crc32c_generic", "crc32c-intel", "crc32_generic", "veth", "dummy", "ib_uverbs", "rdma_ucm", "siw", "rdma_rxe", "sch_netem"]

# siw_options.ko: (file, what stands there, what stands there then)
OPTIONS = [
    ("siw.h", "extern const bool mpa_crc_required;", "extern bool mpa_crc_required;"),
    ("siw.h", "extern const bool peer_to_peer;", "extern bool peer_to_peer;"),
    ("siw_main.c", "const bool mpa_crc_required;", "bool mpa_crc_required; module_param(mpa_crc_required, bool, 0644);"),
    ("siw_main.c", "const bool peer_to_peer;", "bool peer_to_peer; module_param(peer_to_peer, bool, 0644);"),
    ("siw_main.c", "u_char mpa_version = MPA_REVISION_2;",
     "u_char mpa_version = MPA_REVISION_2; module_param(mpa_version, byte, 0644);"),
    ("siw_cm.c", "static __be16 rtr_type = MPA_V2_RDMA_READ_RTR | MPA_V2_RDMA_WRITE_RTR;",
     "static __be16 rtr_type = MPA_V2_RDMA_READ_RTR | MPA_V2_RDMA_WRITE_RTR; module_param(rtr_type, ushort, 0644);"),
]

PROGRAMS = ["apt-get", "apt-cache", "dpkg-deb", "tar", "xz", "make", "gcc"]


class Missing(Exception):
    """Something that has to come from outside is not there, or is not what it was: a reason to skip."""


def cache():
    top = os.environ.get("SOCKWARP_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "sockwarp")
    os.makedirs(os.path.join(top, "debs"), exist_ok=True)
    return top


def _clean_env():
    """A make that runs this test has its own flags in the environment; kbuild is none of its children."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS", "CC", "CFLAGS", "LDFLAGS", "AR"))}
    env["LC_ALL"] = "C"
    return env


def _run(*words, **options):
    """(Without a time limit of its own: the test has one.)"""
    return subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace", check=False, env=_clean_env(), **options)


def _must(*words, **options):
    result = _run(*words, **options)
    if result.returncode:
        raise Missing("%s: status %d: %s" % (" ".join(words[:4]), result.returncode, _last(result.stdout)))
    return result.stdout


# packages: of the image, the headers (four) and the source; "NAME=VERSION".
Kernel = collections.namedtuple("Kernel", "name packages")


class Apt:
    """
    apt-get with the system's package lists or, where those name files that are gone, with lists of our own in the cache
    (which takes no root).
    """

    def __init__(self, top):
        self.top = top
        self.options = []

    def fresh_lists(self):
        state = os.path.join(self.top, "apt")
        os.makedirs(os.path.join(state, "lists", "partial"), exist_ok=True)
        os.makedirs(os.path.join(state, "cache", "archives", "partial"), exist_ok=True)
        self.options = ["-o", "Dir::State::lists=" + os.path.join(state, "lists"),
                        "-o", "Dir::Cache=" + os.path.join(state, "cache")]
        result = _run("apt-get", "-q", "-o", "APT::Update::Error-Mode=any", *self.options, "update")
        if result.returncode:
            raise Missing("no download of Debian's package lists: " + _last(result.stdout))

    def candidate(self, package):
        """Version that would be installed, or None."""
        found = re.search(r"Candidate: (\S+)", _run("apt-cache", *self.options, "policy", package).stdout)
        return found.group(1) if found and found.group(1) != "(none)" else None

    def kernel(self):
        """The kernel, or None."""
        found = re.search(r"Depends: linux-image-(\S+)",
                          _run("apt-cache", *self.options, "depends", "linux-image-amd64").stdout)
        if not found:
            return None
        name = found.group(1)
        # (The image is signed later than the others are there: these may be newer ones.)
        versions = [(p, self.candidate(p)) for p in (
            "linux-image-" + name, "linux-headers-" + name, "linux-headers-" + re.sub(r"-amd64$", "-common", name),
            "linux-kbuild-" + _series(name), "linux-compiler-gcc-12-x86", "linux-source-" + _series(name))]
        return Kernel(name, ["%s=%s" % v for v in versions]) if all(v[1] for v in versions) else None

    def download(self, folder, packages):
        result = _run("apt-get", "-q", "-o", "APT::Sandbox::User=root", *self.options, "download", *packages, cwd=folder)
        if result.returncode:
            raise Missing("no download of Debian's kernel packages: " + _last(result.stdout))


def _last(text):
    lines = [line for line in text.splitlines() if line.startswith("E: ")] or text.splitlines() or ["(no output)"]
    return lines[-1]


def _recipe():
    """Changes when this file does: what was built by another one is not taken."""
    with open(__file__, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()[:12]


def _series(name):
    return ".".join(name.split(".")[:2])


def _deb(top, package):
    name, version = package.split("=")
    found = glob.glob(os.path.join(top, "debs", "%s_%s_*.deb" % (name, version.replace(":", "%3a"))))
    return found[0] if found else None


def _headers(top, name, packages, work):
    """The headers' packages laid out in work, with their absolute paths turned to it. Returns where modules are built."""
    for package in packages[1:5]:
        _must("dpkg-deb", "-x", _deb(top, package), work)
    build = os.path.join(work, "usr/src/linux-headers-" + name)
    makefile = os.path.join(build, "Makefile")
    with open(makefile, encoding="ascii") as f:
        text = f.read()
    with open(makefile, "w", encoding="ascii") as f:
        f.write(text.replace("/usr/src", os.path.join(work, "usr/src")))
    return build


def _siw(top, source, build, work):
    """siw as it is and with OPTIONS: the two modules."""
    folder = os.path.join(work, "siw")
    os.mkdir(folder)
    _must("sh", "-c", 'dpkg-deb --fsys-tarfile "$1" | tar -xO --wildcards "./usr/src/linux-source-*.tar.xz" | '
          'tar -xJ -C "$2" --strip-components=5 --wildcards "*/drivers/infiniband/sw/siw/*"', "sh", _deb(top, source), folder)
    changed = folder + "-options"
    shutil.copytree(folder, changed)
    for name, old, new in OPTIONS:
        path = os.path.join(changed, name)
        with open(path, encoding="utf-8") as f:
            text = f.read()
        if text.count(old) != 1:
            raise Missing("siw's %s is not what it was, it has not one '%s'" % (name, old))
        with open(path, "w", encoding="utf-8") as f:
            f.write(text.replace(old, new))
    for where in folder, changed:
        _must("make", "-j2", "-C", build, "M=" + where, "CONFIG_RDMA_SIW=m", "modules")
    return os.path.join(folder, "siw.ko"), os.path.join(changed, "siw.ko")


def depends(module):
    """Names of the modules that a module file says it needs."""
    with open(module, "rb") as f:
        found = re.search(rb"\0depends=([^\0]*)\0", f.read())
    return [n for n in found.group(1).decode().split(",") if n] if found else []


def _name(path):
    return os.path.basename(path)[:-3].replace("-", "_")


def _collect(image, siw, target):
    """Copies MODULES and all that they need; writes the order to load them in."""
    known = {_name(p): p for p in glob.glob(os.path.join(image, "lib/modules/*/kernel/**/*.ko"), recursive=True)}
    known["siw"] = siw
    order = []

    def take(name):
        if name in order or name not in known:  # (built into the kernel)
            return
        for other in depends(known[name]):
            take(other.replace("-", "_"))
        order.append(name)

    for module in MODULES:
        take(module.replace("-", "_"))
    os.mkdir(os.path.join(target, "modules"))
    for name in order:
        shutil.copy(known[name], os.path.join(target, "modules", name + ".ko"))
    with open(os.path.join(target, "modules", "order"), "w", encoding="ascii") as f:
        f.write("".join(name + "\n" for name in order))


def _build(top, name, packages, target):
    work = tempfile.mkdtemp(prefix="build.", dir=top)
    try:
        image = os.path.join(work, "image")
        os.mkdir(image)
        _must("sh", "-c", 'dpkg-deb --fsys-tarfile "$1" | tar -x -C "$2" --wildcards "./boot/vmlinuz-*" "./lib/modules/*/kernel/*"',
              "sh", _deb(top, packages[0]), image)
        result = os.path.join(work, "result")
        os.mkdir(result)
        shutil.copy(os.path.join(image, "boot/vmlinuz-" + name), os.path.join(result, "vmlinuz"))
        siw, options = _siw(top, packages[5], _headers(top, name, packages, work), work)
        _collect(image, siw, result)
        shutil.copy(options, os.path.join(result, "modules", "siw_options.ko"))
        os.rename(result, target)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _forget_others(top, packages, target):
    """One kernel is kept: a new one is downloaded whenever Debian has one."""
    keep = {os.path.basename(_deb(top, p)) for p in packages}
    for deb in os.listdir(os.path.join(top, "debs")):
        if deb not in keep:
            os.unlink(os.path.join(top, "debs", deb))
    for other in glob.glob(os.path.join(top, "kernel-*")):
        if other != target:
            shutil.rmtree(other, ignore_errors=True)


def get(note):
    """
    A folder with vmlinuz and modules/, from the cache or made now. note(text) is told what takes long. Raises Missing.
    """
    missing = [p for p in PROGRAMS if shutil.which(p) is None]
    if missing:
        raise Missing("missing: " + " ".join(missing))
    top = cache()
    with open(os.path.join(top, "lock"), "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # (the test's time limit ends the wait)
        for left in glob.glob(os.path.join(top, "build.*")):  # by a run that was ended
            shutil.rmtree(left, ignore_errors=True)
        return _get(top, note)


def _get(top, note):
    apt = Apt(top)
    ready = sorted(glob.glob(os.path.join(top, "kernel-*-" + _recipe())), key=os.path.getmtime)
    kernel = apt.kernel()

    def target(kernel):
        version = kernel.packages[0].split("=")[1]
        return os.path.join(top, "kernel-%s-%s-%s" % (kernel.name, version.replace(":", "_"), _recipe()))

    if kernel and os.path.isdir(target(kernel)):
        return target(kernel)
    try:
        if not kernel:
            apt.fresh_lists()
            kernel = apt.kernel()
            if not kernel:
                raise Missing("Debian's linux-image-amd64, or what goes with it, is not in the package lists")
        wanted = [p for p in kernel.packages if not _deb(top, p)]
        if wanted:
            note("downloading " + " ".join(wanted))
            try:
                apt.download(os.path.join(top, "debs"), wanted)
            except Missing:
                if apt.options:
                    raise
                apt.fresh_lists()  # the lists may be too old
                kernel = apt.kernel() or kernel
                apt.download(os.path.join(top, "debs"), [p for p in kernel.packages if not _deb(top, p)])
    except Missing as why:
        if ready:
            note("%s; taking the kernel of an earlier run" % why)
            return ready[-1]
        raise
    if not os.path.isdir(target(kernel)):
        note("building siw for " + kernel.packages[0])
        try:
            _build(top, kernel.name, kernel.packages, target(kernel))
        except Missing as why:
            if ready:
                note("%s; taking the kernel of an earlier run" % why)
                return ready[-1]
            raise
    _forget_others(top, kernel.packages, target(kernel))
    return target(kernel)
