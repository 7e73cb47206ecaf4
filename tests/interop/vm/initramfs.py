"""The virtual machine's file system: programs with the libraries they need, in a cpio archive (format newc)."""

import gzip
import os
import re
import stat
import subprocess


class Archive:
    def __init__(self):
        self.entries = {}  # path: (mode, octets)

    def folder(self, path):
        """With its parents."""
        path = path.strip("/")
        if path and path not in self.entries:
            self.folder(os.path.dirname(path))
            self.entries[path] = (stat.S_IFDIR | 0o755, b"")

    def add(self, path, content, mode=0o644):
        self.folder(os.path.dirname(path))
        self.entries[path.strip("/")] = (stat.S_IFREG | mode, content)

    def link(self, path, target):
        self.folder(os.path.dirname(path))
        self.entries[path.strip("/")] = (stat.S_IFLNK | 0o777, target.encode())

    def copy(self, path, source):
        with open(source, "rb") as f:
            self.add(path, f.read(), 0o755 if os.access(source, os.X_OK) else 0o644)

    def libraries(self, source):
        """What ldd says a file needs, where it says so."""
        said = subprocess.run(["ldd", source], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
        for path in re.findall(r"(/\S+) \(0x", said.stdout):
            if path.strip("/") not in self.entries:
                self.copy(path, os.path.realpath(path))

    def program(self, path, source):
        self.copy(path, os.path.realpath(source))
        self.libraries(source)

    def write(self, path):
        out = bytearray()
        for number, name in enumerate([*self.entries, "TRAILER!!!"], 1):
            mode, content = self.entries.get(name, (0, b""))
            fields = [number, mode, 0, 0, 2 if stat.S_ISDIR(mode) else 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0]
            out += b"070701" + b"".join(b"%08x" % f for f in fields) + name.encode() + b"\0"
            out += bytes(-len(out) % 4) + content
            out += bytes(-len(out) % 4)
        with gzip.open(path, "wb", compresslevel=1) as f:
            f.write(out)
